"""Find a scenario that exposes each unseen wrong variant; write `SET/found.json`.

    python studies/unseen.py SET [NAME...] [--deep] [--workers N]

For each variant, it first tries the scenario or workload that exposed it before. If that passes
now, it checks the variant as `bt-bench check` does, by default or with `--deep`: its workloads, and
then a fixed number of scenarios. NAME may also be a right variant of the set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from common import ROOT, bt_bench

from bt_bench.base.limits import cores_here

UNSEEN = ROOT / "tests" / "unseen"
sys.path.insert(0, str(ROOT / "tests"))

from support.planted import plant  # noqa: E402


def main() -> None:
    """Find the wrong variants, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=sorted(path.parent.name for path in UNSEEN.glob("*/wrong")))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--workers", type=int, default=max(1, cores_here() // 2))
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
        for done in as_completed(looking):  # each result is stored at once, in case time runs out
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
    """Return the wrong variants of a set: files, and patches of the shipped kernels."""
    paths = [*folder.glob("wrong/*.py"), *folder.glob("planted/*.patch")]
    return sorted(path.stem for path in paths)


def find(folder: Path, name: str, known: str | None, *, deep: bool) -> tuple[str | None, str]:
    """Check a variant, first with the scenario or workload that exposed it before.

    Args:
        folder: folder of the set.
        name: name of the variant.
        known: the first item that an earlier call returned.
        deep: whether to check as `--deep` does.

    Returns:
        The scenario that exposes the variant, as numbers for `--scenario` (several if earlier
        scenarios are needed), `workload`, or `None`; and a line to print.
    """
    options = ["--deep", "--seed", "0"] * deep
    if known is not None:
        found = find_by(folder, name, [*options, *replaying(known)])
        if found[0] is not None:
            return found
    return find_by(folder, name, options)


def replaying(known: str) -> tuple[str, str]:
    """Return the options that replay only the scenario or workload that exposed a variant."""
    return ("--explore", "0") if known == "workload" else ("--scenario", known)


def find_by(folder: Path, name: str, options: list[str]) -> tuple[str | None, str]:
    """Check a variant by `bt-bench check` with these options; return as `find` does."""
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


# Failures are not shrunk: that may take 20 s, and only their existence matters here.
COMMAND = (
    "from bt_bench.runs import faults; faults.SHRINK_SECONDS = 0.0; "
    "from bt_bench.cli import main; main()"
)


def check(folder: Path, name: str, made: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `bt-bench check` on a variant of a set.

    Args:
        folder: folder of the set.
        name: name of the variant.
        made: an empty folder, for a patched copy of the kernels, and for the command's files.
        options: options of `bt-bench check`.
    """
    patch = folder / "planted" / f"{name}.patch"
    if patch.is_file():
        kernels = plant(patch, made).parent
    else:
        places = (folder / each for each in ("wrong", "right"))
        kernels = next(place for place in places if (place / f"{name}.py").is_file())
    return bt_bench(
        *("check", "quick", "--device", "cpu", "-k", "uniform_1grp"),
        *("--kernels", kernels, "--variants", name, *options),
        folders=(made,),
        code=COMMAND,
        cwd=made,
        OMP_NUM_THREADS="1",
    )


if __name__ == "__main__":
    main()
