"""Finds the scenario that finds each unseen wrong variant; writes `first/found.json`.

    python benchmarks/unseen.py [NAME...]

Plays scenarios 0 to 59, which takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FIRST = Path(__file__).resolve().parent.parent / "tests" / "unseen" / "first"
LAST = 59


def main() -> None:
    """Finds them, two at a time."""
    report = FIRST / "found.json"
    known = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    names = sys.argv[1:] or sorted(path.stem for path in (FIRST / "wrong").glob("*.py"))
    with ThreadPoolExecutor(2) as pool:
        for name, told in zip(names, pool.map(find, names), strict=True):
            number, line = told
            known[name] = number
            print(f"{name}: {line}", flush=True)
            text = json.dumps(known, indent=1, sort_keys=True)
            report.write_text(f"{text}\n", encoding="utf-8")
    survive = [name for name, number in known.items() if number is None]
    print(f"{len(known) - len(survive)} of {len(known)} found; not: {', '.join(survive)}")


def find(name: str) -> tuple[str | None, str]:
    """The scenario, or all up to it if it takes these, and what it shows."""
    options = ("--kernels", str(FIRST / "wrong"), "--variants", name, "--scenario", f"0-{LAST}")
    done = subprocess.run(
        [sys.executable, "-m", "bt_bench", "check", "quick", *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if not done.stdout:
        raise SystemExit(f"{name}: {done.stderr}")
    found = json.loads(done.stdout)["explored"][0]["found"]
    if found is None:
        return None, "not found"
    return found["again"], f"{found['title']}: {found['reason']['message']}"


if __name__ == "__main__":
    main()
