"""Finds the scenario that finds each unseen wrong variant; writes `SET/found.json`.

    python benchmarks/unseen.py SET [NAME...] [--deep]

Each is checked as `bt-bench check` does it by default, or by `--deep` with that: its workloads, and
then scenarios for 15 seconds or three minutes. On two cores a set of 30 takes a quarter of an hour,
or half an hour with `--deep`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

UNSEEN = Path(__file__).resolve().parent.parent / "tests" / "unseen"


def main() -> None:
    """Finds them, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=sorted(path.parent.name for path in UNSEEN.glob("*/wrong")))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--deep", action="store_true")
    options = parser.parse_args()
    folder = UNSEEN / options.set
    report = folder / "found.json"
    known = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    names = options.names or sorted(path.stem for path in (folder / "wrong").glob("*.py"))
    way = "deep" if options.deep else "quick"
    with ThreadPoolExecutor(2) as pool:
        look = partial(find, folder / "wrong", deep=options.deep)
        for name, told in zip(names, pool.map(look, names), strict=True):
            scenario, line = told
            known.setdefault(name, {})[way] = scenario
            print(f"{name}: {line}", flush=True)
            text = json.dumps(known, indent=1, sort_keys=True)
            report.write_text(f"{text}\n", encoding="utf-8")
    survive = [name for name in sorted(known) if known[name].get(way) is None]
    told = f"not: {', '.join(survive)}" if survive else "all"
    print(f"{len(known) - len(survive)} of {len(known)} found, {told}")


def find(folder: Path, name: str, *, deep: bool) -> tuple[str | None, str]:
    """What finds it: a scenario, all up to one if it takes these, or `workload`."""
    options = ("--kernels", str(folder), "--variants", name, *["--deep"] * deep)
    done = subprocess.run(
        [sys.executable, "-m", "bt_bench", "check", "quick", "-k", "uniform_1grp", *options,
         "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if not done.stdout:
        raise SystemExit(f"{name}: {done.stderr}")
    answer = json.loads(done.stdout)
    for check in answer["checks"]:
        if check["status"] == "failed":
            return "workload", f"{check['workload']}: {check['reason']['message']}"
    found = answer["explored"][0]["found"]
    if found is None:
        return None, "not found"
    return found["again"], f"{found['title']}: {found['reason']['message']}"


if __name__ == "__main__":
    main()
