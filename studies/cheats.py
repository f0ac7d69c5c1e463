"""Run variants that fake their times, with all defences and then without those that catch them.

    python studies/cheats.py [NAME...] [--out cheats.json] [--jobs N]

Each cheat is swept and checked. With all defences, the sweep or the check has to reject it. Without
the defences that `tests/cheats/caught.json` names for it, both have to pass. Most cheats fake GPU
times, and do nothing dishonest without a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import ROOT, bt_bench
from unseen import COMMAND

CHEATS = ROOT / "tests" / "cheats"
TAKEN_OUT = CHEATS / "taken_out"
CAUGHT = CHEATS / "caught.json"
SECONDS = 240  # timeout of a command
QUICK = ("--explore", "4")


def main() -> None:
    """Run the cheats; exit with 1 if one passes or is rejected contrary to expectation."""
    known = json.loads(CAUGHT.read_text(encoding="utf-8")) if CAUGHT.is_file() else {}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = options.names or sorted(known)
    with ThreadPoolExecutor(options.jobs) as pool:
        found = dict(
            zip(names, pool.map(lambda n: examine(n, known.get(n, [])), names), strict=True)
        )
    for name, of_cheat in found.items():
        print(f"{name}: {of_cheat['told']}")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sys.exit(not all(of_cheat["right"] for of_cheat in found.values()))


def examine(name: str, defences: list[str], *, quick: bool = False) -> dict[str, object]:
    """Return the verdicts of sweep and check on a cheat, with all defences and without some.

    Args:
        name: name of the cheat.
        defences: the defences that catch it.
        quick: run only the command that should reject it, with and without `defences`. The check
            explores few scenarios, unless exploring is one of the defences.
    """
    by_exploring = "exploring" in defences
    swept = None if quick and by_exploring else sweep(name, "")
    checked = None if quick and swept else check(name, "")
    if quick and not checked and swept is None:
        swept = sweep(name, "")
    explore = QUICK if quick and not by_exploring else ()
    rejected = swept or checked
    found: dict[str, object] = {"sweep": swept, "check": checked, "defences": defences}
    without: dict[str, str | None] = {}
    if defences:
        out = ",".join(defences)
        if not quick or swept:
            without["sweep"] = sweep(name, out)
        if not quick or not swept:
            without["check"] = check(name, out, *explore)
        found["without them"] = without
    passes = not any(without.values())
    found["right"] = rejected is not None and bool(defences) and passes
    end = f"passes without {', '.join(defences)}" if passes else f"still rejected: {without}"
    found["told"] = f"{rejected or 'NOT REJECTED'}; {end if defences else 'no defence is named'}"
    return found


def sweep(name: str, taken_out: str) -> str | None:
    """Return a sweep's reason to reject a cheat, or `None` if it passes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        done = run(taken_out, "sweep", str(CHEATS / "sweep.yaml"), "--variants", f"fused,{name}",
                   "--out", str(out))  # fmt: skip
        for path in out.glob(f"{name}.json"):
            cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
            reasons = [case["reason"] for case in cases if case["status"] == "failed"]
            return None if not reasons else f"{reasons[0]['code']}: {reasons[0]['message']}"
    return told(done)


def check(name: str, taken_out: str, *options: str) -> str | None:
    """Return a check's reason to reject a cheat, or `None` if it passes."""
    given = ("--variants", name, "--json", *options)
    done = run(taken_out, "check", str(CHEATS / "sweep.yaml"), *given)
    if not done.stdout:
        return told(done)
    answer = json.loads(done.stdout)
    failed = [each["reason"] for each in answer["checks"] if each["status"] == "failed"]
    failed += [each["found"]["reason"] for each in answer["explored"] if each["found"]]
    return f"{failed[0]['code']}: {failed[0]['message']}" if failed else None


def told(done: subprocess.CompletedProcess[str]) -> str | None:
    """Return the error of a command that ended without a result; `None` if it succeeded."""
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if re.match(r"bt-bench: error", line)]
    return lines[-1] if lines else f"exit code {done.returncode}: {done.stderr[-300:]}"


def run(taken_out: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a bt-bench command with some defences disabled in all of its processes."""
    return bt_bench(
        *(*command, "--kernels", CHEATS),
        folders=[TAKEN_OUT] * bool(taken_out),
        code=COMMAND,
        timeout=SECONDS,
        TAKEN_OUT=taken_out,
        OMP_NUM_THREADS="1",
    )


if __name__ == "__main__":
    main()
