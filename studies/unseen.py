"""Finds the scenario that finds each unseen wrong variant; writes `SET/found.json`.

    python studies/unseen.py SET [NAME...] [--deep] [--workers N]

First it tries what has found each before. If that finds it no more, it checks the variant as
`bt-bench check` does by default, or as `--deep` does: its workloads, and then a fixed number of
scenarios. Names of right variants of the set may be given, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
UNSEEN = TESTS / "unseen"
sys.path.insert(0, str(TESTS))

from support.planted import plant  # noqa: E402


def main() -> None:
    """Find them, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=sorted(path.parent.name for path in UNSEEN.glob("*/wrong")))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_intermixed_args()
    folder = UNSEEN / options.set
    report = folder / "found.json"
    known = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    names = options.names or names_in(folder)
    way = "deep" if options.deep else "quick"
    with ThreadPoolExecutor(options.workers) as pool:
        looking = {
            pool.submit(find, folder, name, known.get(name, {}).get(way), deep=options.deep): name
            for name in names
        }
        for done in as_completed(looking):  # so that what is known is kept if time is up
            name, (scenario, line) = looking[done], done.result()
            print(f"{name}: {line}", flush=True)
            if (folder / "right" / f"{name}.py").is_file():
                continue
            known.setdefault(name, {})[way] = scenario
            text = json.dumps(known, indent=1, sort_keys=True)
            report.write_text(f"{text}\n", encoding="utf-8")
    survive = [name for name in sorted(known) if known[name].get(way) is None]
    told = f"not: {', '.join(survive)}" if survive else "all"
    print(f"{len(known) - len(survive)} of {len(known)} found, {told}")


def names_in(folder: Path) -> list[str]:
    """The wrong variants of a set: files, and patches of the shipped kernels."""
    paths = [*folder.glob("wrong/*.py"), *folder.glob("planted/*.patch")]
    return sorted(path.stem for path in paths)


def find(folder: Path, name: str, known: str | None, *, deep: bool) -> tuple[str | None, str]:
    """Return what finds it: a scenario, all up to one if it takes these, or `workload`.

    Args:
        folder: of the set.
        name: of the variant.
        known: what found it before, if anything did.
        deep: whether to check as `--deep` does.

    Returns:
        What finds it, and in which words.
    """
    options = ["--deep", "--seed", "0"] * deep
    if known is not None:
        found = find_by(folder, name, [*options, *replaying(known)])
        if found[0] is not None:
            return found
    return find_by(folder, name, options)


def replaying(known: str) -> tuple[str, str]:
    """Return the options that play only what found a variant."""
    return ("--explore", "0") if known == "workload" else ("--scenario", known)


def find_by(folder: Path, name: str, options: list[str]) -> tuple[str | None, str]:
    """Return what `bt-bench check` finds with these options, and in which words."""
    with tempfile.TemporaryDirectory() as made:
        done = check(folder, name, Path(made), "--json", *options)
    if not done.stdout:
        raise SystemExit(f"{name}: {done.stderr}")
    answer = json.loads(done.stdout)
    for each in answer["checks"]:
        if each["status"] == "failed":
            return "workload", f"{each['workload']}: {each['reason']['message']}"
    if not answer["explored"]:
        return None, "not found by the workloads"
    (explored,) = answer["explored"]
    found = explored["found"]
    if found is None:
        return None, f"not found by {explored['scenarios']} scenarios"
    return found["numbers"], f"{found['title']}: {found['reason']['message']}"


# What is found is not made smaller: that may take 20 s, and only whether it is found counts.
COMMAND = (
    "from bt_bench.runs import explore; explore.SHRINK_SECONDS = 0.0; "
    "from bt_bench.cli import main; main()"
)


def check(folder: Path, name: str, made: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Check a variant of a set by the command.

    Args:
        folder: of the set.
        name: of the variant.
        made: an empty folder, for the copy of the kernels that a patch makes, and for what is
            found.
        options: of `bt-bench check`.
    """
    patch = folder / "planted" / f"{name}.patch"
    if patch.is_file():
        kernels = plant(patch, made).parent
    else:
        places = (folder / each for each in ("wrong", "right"))
        kernels = next(place for place in places if (place / f"{name}.py").is_file())
    given = ("-k", "uniform_1grp", "--kernels", str(kernels), "--variants", name)
    path = os.pathsep.join([str(made), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "check", "quick", "--device", "cpu", *given, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=made,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )


if __name__ == "__main__":
    main()
