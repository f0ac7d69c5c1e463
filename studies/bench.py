"""Benchmarks of bt-bench's own promised speed and memory; run with `make bench`.

Each command runs in a fresh process, as a user would start it, and its figures are printed beside
their limits. Exits with 1 if a limit is exceeded. These are not tests: the results depend on the
machine and its load.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from common import ROOT, has_gpu

BT_BENCH = (sys.executable, "-m", "bt_bench")
COMPARE = """
import sys
sys.modules["torch"] = sys.modules["triton"] = None
from bt_bench.cli import main
main()
"""
CASES = 10_000


@dataclass(frozen=True)
class Promise:
    """A command with its limits of time and memory.

    Args:
        what: description to print.
        command: the process to run.
        seconds: limit of the median wall time.
        runs: number of timed runs; with more than one, a warm-up run precedes them.
        mebibytes: limit of the peak memory; `None`: no limit.
    """

    what: str
    command: tuple[str, ...]
    seconds: float
    runs: int = 1
    mebibytes: float | None = None


def promises(folder: Path) -> list[Promise]:
    """Return the promises that apply to this machine, with or without a GPU."""
    # Other processes make the input, which keeps their cost out of the measurement.
    build = (sys.executable, __file__, "build-trace")
    compare = (sys.executable, "-c", COMPARE, "compare", "--fail-on", "none")
    found = [
        Promise("bt-bench --help", (*BT_BENCH, "--help"), 0.25, runs=9),
        Promise("steps of the whole azure_conv trace", (*build, "azure_conv"), 30, mebibytes=1024),
        Promise("steps of the whole azure_code trace", (*build, "azure_code"), 30, mebibytes=1024),
    ]
    for count, seconds in ((1, 2), (8, 10)):
        what = f"compare 2 × 10,000 cases × 50 samples × {count} quantities, no torch"
        results = write_results(folder / f"compare{count}", count)
        found.append(Promise(what, (*compare, *results), seconds, runs=3, mebibytes=500))
    if has_gpu():
        command = (*BT_BENCH, "sweep", "origin", "--out", str(folder / "origin"))
        return [*found, Promise("sweep origin, all variants, on the GPU", command, 90)]
    command = (*BT_BENCH, "sweep", "quick", "--device", "cpu", "--out", str(folder / "quick"))
    return [*found, Promise("sweep quick without a GPU", command, 60)]


def write_results(folder: Path, count: int) -> tuple[str, str]:
    """Write two results of one run with `count` quantities, in another process; return paths."""
    command = (sys.executable, __file__, "make-results", str(folder), str(count), str(CASES))
    subprocess.run(command, check=True)
    return str(folder / "baseline.json"), str(folder / "fused.json")


def build_trace(trace: str) -> int:
    """Build all steps of a whole trace, and return their number."""
    from bt_bench.suites.block_tables.workloads import TraceParameters
    from bt_bench.suites.block_tables.workloads.serving.scheduler import Scheduler, iterate_steps

    parameters = TraceParameters(workload="trace", trace=trace)
    return sum(1 for _ in iterate_steps(Scheduler(parameters)))


def make_results(folder: Path, count: int, cases: int) -> None:
    """Write results of `baseline` and `fused`: 50 samples of `count` quantities for each case."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.factories import make_case, make_launches, make_result

    from bt_bench.results import Quantity, RunFolder, metric_named
    from bt_bench.results.files.writing import write_result

    quantities = [quantity for quantity in Quantity if quantity not in ("gap_us", "last_us")]
    quantities.append("host_us/compiled")
    random.seed(1)
    folder.mkdir(exist_ok=True)
    for variant in ("baseline", "fused"):
        made = []
        for index in range(cases):
            typical = 10 + index % 90
            samples = {
                metric_named(name).series: [
                    [round(typical * random.lognormvariate(0, 0.01), 3)] for _ in range(50)
                ]
                for name in quantities[:count]
            }
            launches = make_launches(["a"])
            made.append(make_case(f"case{index}", samples=samples, launches=launches))
        write_result(RunFolder(folder), make_result(variant, made))


def measure(promise: Promise) -> tuple[float, float]:
    """Return the median wall seconds, and the peak memory in MiB.

    Raises:
        subprocess.CalledProcessError: if the command fails.
    """
    if promise.runs > 1:
        run(promise.command)
    seconds, mebibytes = zip(*(run(promise.command) for _ in range(promise.runs)), strict=True)
    return median(seconds), max(mebibytes)


def run(command: tuple[str, ...]) -> tuple[float, float]:
    """Run a command without its output; return its wall seconds and peak memory in MiB."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, usage.ru_maxrss / 1024


def main() -> int:
    """Measure and print all promises; return 1 if one is not kept."""
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        for promise in promises(Path(folder)):
            try:
                seconds, mebibytes = measure(promise)
            except subprocess.CalledProcessError:
                print(f"FAILED  {promise.what}: {' '.join(promise.command)}")
                over += 1
                continue
            limit = promise.mebibytes or float("inf")
            kept = seconds <= promise.seconds and mebibytes <= limit
            over += not kept
            memory = f", {mebibytes:.0f} of {limit:.0f} MiB" if promise.mebibytes else ""
            verdict = "ok  " if kept else "OVER"
            print(f"{verdict}  {promise.what}: {seconds:.2f} of {promise.seconds:g} s{memory}")
    return 1 if over else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.exit(main())
        case ["build-trace", trace]:
            print(build_trace(trace), "steps")
        case ["make-results", folder, count, cases]:
            make_results(Path(folder), int(count), int(cases))
        case unknown:
            sys.exit(
                f"bench.py takes no arguments, not {' '.join(unknown)}; run it by `make bench`"
            )
