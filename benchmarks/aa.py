"""How often equal code is found different: one variant against a copy of itself, many times.

    python benchmarks/aa.py --runs 20 --out reports/h200/aa

Each run is a sweep of the `origin` cases with a variant, a copy of its file under another name,
and the control arm; runs take the operations `step` and `gather_slots` in turn. Every series that
both have is compared, and the ones that are reported as resolved are counted: all are false. Writes
`aa.json` (every comparison, with the parts of its resolution) and `aa.md`. Ends with 1 if more than
1 % came out resolved.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bt_bench.analysis import pair_series
from bt_bench.config.load import load_config
from bt_bench.config.stock import stock_config_path
from bt_bench.names import Operation
from bt_bench.results.folders import RunFolder
from bt_bench.results.result import VariantResult
from bt_bench.runs.progress import CaseReport
from bt_bench.runs.sweep import SweepRequest, run_sweep
from bt_bench.worker.device import choose_device

PROMISED_SHARE = 0.01
LONGEST_RUN_S = 15.0
OPERATIONS = (Operation.STEP, Operation.GATHER_SLOTS)


class Quiet:
    """Ignores a sweep's progress."""

    def start(self, total: int, done: int = 0, unit: str = "") -> None: ...

    def phase(self, what: str, of: str = "") -> None: ...

    def round(self, progress: object) -> None: ...

    def worker_replaced(self, why: str) -> None: ...

    def advance(self, report: CaseReport | None = None) -> None:
        if report is not None and report.failed:
            raise SystemExit(f"{report.key}: failed for {', '.join(report.failed)}")

    def say(self, text: str) -> None: ...


def main() -> int:
    """Runs the sweeps and writes what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--variant", default="baseline")
    parser.add_argument("--seconds", type=float, default=0.35, help="of rounds per case")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    choose_device("cuda")
    found = []
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        runs = _Runs(args.variant, args.seconds, Path(scratch))
        runs.warm_up()
        for number in range(args.runs):
            started = time.monotonic()
            comparisons = runs.run(number)
            seconds.append(time.monotonic() - started)
            found += comparisons
            resolved = sum(entry["resolved"] is True for entry in comparisons)
            print(
                f"run {number + 1}: {seconds[-1]:.1f} s, {resolved} of {len(comparisons)} resolved",
                file=sys.stderr,
            )
        environment = runs.environment
    args.out.mkdir(parents=True, exist_ok=True)
    document = {
        "schema_version": 1,
        "variant": args.variant,
        "seconds": [round(value, 2) for value in seconds],
        "environment": environment,
        "comparisons": found,
    }
    lines = ",\n".join(json.dumps(entry) for entry in document.pop("comparisons"))
    head = json.dumps(document)[:-1]
    (args.out / "aa.json").write_text(f'{head}, "comparisons": [\n{lines}\n]}}\n', encoding="utf-8")
    text = render(args.variant, environment, seconds, found)
    (args.out / "aa.md").write_text(text, encoding="utf-8")
    print(text)
    share = resolved_share(found)
    return 0 if share <= PROMISED_SHARE and max(seconds) <= LONGEST_RUN_S else 1


class _Runs:
    """Sweeps in this process, so that starting one takes no time."""

    def __init__(self, variant: str, seconds: float, scratch: Path) -> None:
        from bt_bench.variants.catalogue import choose, find_variants
        from bt_bench.worker.environment import read_environment
        from bt_bench.worker.measuring.bench import CudaBench

        copies = scratch / "copies"
        copies.mkdir()
        copy = f"{variant}_copy"
        original = find_variants()[variant].path
        (copies / f"{copy}.py").write_bytes(original.read_bytes())
        self._entries = choose([variant, copy], find_variants([copies]))
        self._bench = CudaBench()
        self._environment = read_environment("cuda")
        self._scratch = scratch
        self._seconds = seconds
        spec = load_config(str(stock_config_path("origin")))
        self._spec = spec.model_copy(update={"variants": [variant, copy]})

    @property
    def environment(self) -> dict[str, Any]:
        """Where the runs were made."""
        return self._environment.model_dump(mode="json")

    def warm_up(self) -> None:
        """Compiles everything, which is not part of a run."""
        self._sweep("warm-up", {"rounds": 4}, list(OPERATIONS))

    def run(self, number: int) -> list[dict[str, Any]]:
        """One sweep; its comparisons."""
        changes = {"seed": number, "case_seconds": self._seconds, "rounds": 100_000}
        changes |= {"profile_rounds": 16, "graph_rounds": 16}
        operation = OPERATIONS[number % len(OPERATIONS)]
        results = self._sweep(f"run{number}", changes, [operation])
        return _compared(results, number)

    def _sweep(
        self, name: str, changes: dict[str, Any], operations: list[Operation]
    ) -> list[VariantResult]:
        from bt_bench.variants.catalogue import load_apart
        from bt_bench.worker.executor import Executor, LocalRunner

        plan = self._spec.plan.model_copy(update=changes)
        spec = self._spec.model_copy(update={"plan": plan, "operations": operations})
        folder = RunFolder.create_exact(self._scratch / name)
        request = SweepRequest(spec, self._entries, self._environment, folder, ["aa.py"])
        # Loaded anew for every run, so that no run shares the luck of another.
        classes = {entry.name: load_apart(entry) for entry in self._entries}
        control = load_apart(self._entries[0])
        executor = Executor(classes, self._bench, plan, lambda _name: control)
        return run_sweep(request, LocalRunner(executor), Quiet())


def _compared(results: list[VariantResult], number: int) -> list[dict[str, Any]]:
    """Every series that both arms of a run have."""
    base, other = results
    return [
        {
            "run": number,
            "operation": left.operation.value,
            "case": left.case,
            **one.series.model_dump(mode="json"),
            "base_us": one.base_us,
            "savings_us": one.savings_us,
            "resolved": one.resolved,
            "smallest_us": one.resolution.smallest_us if one.resolution else None,
            "limit": one.resolution.limit.value if one.resolution else None,
            "rounds": one.resolution.rounds if one.resolution else None,
        }
        for left, right in zip(base.cases, other.cases, strict=True)
        for series in left.series
        for one in [pair_series(left, right, series, base.calibration, one_run=True)]
        if one.savings_us is not None
    ]


def render(
    variant: str, environment: dict[str, Any], seconds: list[float], found: list[dict[str, Any]]
) -> str:
    """The summary: how many comparisons came out resolved, by series."""
    names = [_name(entry) for entry in found]
    total = Counter(names)
    resolved = Counter(
        name for name, entry in zip(names, found, strict=True) if entry["resolved"] is True
    )
    unknown = sum(entry["resolved"] is None for entry in found)
    width = max(map(len, total))
    gpu = environment["gpus"][0]["name"]
    versions = f"torch {environment['torch']}, Triton {environment['triton']}"
    share = 100 * resolved_share(found)
    lines = [
        f"# A/A: {variant} against a copy of itself",
        "",
        f"{len(seconds)} runs of at most {max(seconds):.1f} s on one {gpu}, {versions}.",
        f"{sum(resolved.values())} of {len(found)} case-quantities came out resolved "
        f"({share:.2f} %); at most 1 % may.",
        f"For {unknown} there were too few rounds to tell.",
        "",
        "Smallest resolvable difference: median over runs and cases, relative to the median time.",
        "",
        f"| {'Series':{width}} | Compared | Resolved | Smallest (%) | Largest A/A difference (%) |",
        f"| {'-' * width} | -------: | -------: | -----------: | -------------------------: |",
    ]
    for name in total:
        entries = [entry for entry, its in zip(found, names, strict=True) if its == name]
        known = [entry for entry in entries if entry["smallest_us"] and entry["base_us"]]
        smallest = sorted(100 * entry["smallest_us"] / entry["base_us"] for entry in known)
        largest = max((100 * abs(e["savings_us"]) / e["base_us"] for e in known), default=0.0)
        middle = smallest[len(smallest) // 2] if smallest else float("nan")
        lines.append(
            f"| {name:{width}} | {total[name]:8} | {resolved[name]:8} | {middle:12.2f} "
            f"| {largest:26.2f} |"
        )
    return "\n".join(lines) + "\n"


def resolved_share(found: list[dict[str, Any]]) -> float:
    """Share of the comparisons that came out resolved, of those of which it could be told."""
    known = [entry for entry in found if entry["resolved"] is not None]
    return sum(entry["resolved"] for entry in known) / len(known)


def _name(entry: dict[str, Any]) -> str:
    parts = [entry["quantity"], entry["launch_path"], entry["load"], entry["l2"], entry["method"]]
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
