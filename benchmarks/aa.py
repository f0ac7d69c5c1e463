"""How often equal code is found different: one variant against a copy of itself, many times.

    python benchmarks/aa.py --runs 20 --out reports/h200/aa

Each run is a sweep of the `origin` cases with a variant, a copy of its file under another name,
and the control arm; runs take the operations `step` and `gather_slots` in turn. Every metric that
both have is judged as `bt-bench compare` judges it; every `SLOWER` and `FASTER` is false. Writes
`aa.json` (every judgement) and `aa.md`. Ends with 1 if more than 1 % of them were false.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from bt_bench.analysis import Judgement, Verdict, judge_run
from bt_bench.base.names import Operation
from bt_bench.config.load import load_config
from bt_bench.config.stock import stock_config_path
from bt_bench.report import (
    Cell,
    Document,
    Section,
    Table,
    print_document,
    render_document,
)
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.run.result import VariantResult
from bt_bench.runs.progress import CaseReport
from bt_bench.runs.sweep import SweepRequest, run_sweep
from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker.machine.device import choose_device

PROMISED_SHARE = 0.01
FALSE = (Verdict.SLOWER.value, Verdict.FASTER.value)
LONGEST_RUN_S = 15.0
OPERATIONS = (ops.STEP, ops.GATHER_SLOTS)


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
            false = sum(entry["verdict"] in FALSE for entry in comparisons)
            print(
                f"run {number + 1}: {seconds[-1]:.1f} s, {false} of {len(comparisons)} false",
                file=sys.stderr,
            )
        environment = runs.environment
    args.out.mkdir(parents=True, exist_ok=True)
    document = {
        "schema_version": 2,
        "variant": args.variant,
        "seconds": [round(value, 2) for value in seconds],
        "environment": environment,
        "comparisons": found,
    }
    lines = ",\n".join(json.dumps(entry) for entry in document.pop("comparisons"))
    head = json.dumps(document)[:-1]
    (args.out / "aa.json").write_text(f'{head}, "comparisons": [\n{lines}\n]}}\n', encoding="utf-8")
    summary = page(args.variant, environment, seconds, found)
    (args.out / "aa.md").write_text(render_document(summary), encoding="utf-8")
    print_document(summary)
    share = false_share(found)
    return 0 if share <= PROMISED_SHARE and max(seconds) <= LONGEST_RUN_S else 1


class _Runs:
    """Sweeps in this process, so that starting one takes no time."""

    def __init__(self, variant: str, seconds: float, scratch: Path) -> None:
        from bt_bench.variants.catalogue import choose, find_variants
        from bt_bench.worker.machine.environment import read_environment
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
        from bt_bench.worker.process.executor import Executor, LocalRunner

        plan = self._spec.plan.model_copy(update=changes)
        spec = self._spec.model_copy(update={"plan": plan, "operations": operations})
        folder = RunFolder.create_exact(self._scratch / name)
        request = SweepRequest(spec, self._entries, self._environment, folder, ["aa.py"])
        # Loaded anew for every run, so that no run shares the luck of another.
        classes = {entry.name: load_apart(entry) for entry in self._entries}
        control = load_apart(self._entries[0])
        copies = {name: [variant] for name, variant in classes.items()}
        executor = Executor(copies, self._bench, plan, lambda _name: control)
        return run_sweep(request, LocalRunner(executor), Quiet())


def _compared(results: list[VariantResult], number: int) -> list[dict[str, Any]]:
    """Every metric of the copy against the original that statistics could judge."""
    judged = judge_run(results)
    assert judged is not None
    return [_entry(each, number) for each in judged.judgements if each.evidence is not None]


def _entry(judgement: Judgement, number: int) -> dict[str, Any]:
    evidence = judgement.evidence
    assert evidence is not None
    return {
        "run": number,
        "operation": judgement.operation,
        "case": judgement.case,
        "metric": judgement.metric,
        "exploratory": judgement.exploratory,
        "base_us": judgement.base_value,
        "percent": judgement.percent,
        "low_percent": 100 * ((judgement.low or 0.0) - 1),
        "high_percent": 100 * ((judgement.high or 0.0) - 1),
        "margin_percent": 100 * evidence.margin.share,
        "verdict": judgement.verdict.value,
        "tests": evidence.tests,
    }


def page(
    variant: str, environment: dict[str, Any], seconds: list[float], found: list[dict[str, Any]]
) -> Document:
    """The summary: how many verdicts were false, by metric."""
    total = Counter(entry["metric"] for entry in found)
    false = Counter(entry["metric"] for entry in found if entry["verdict"] in FALSE)
    same = Counter(entry["metric"] for entry in found if entry["verdict"] == Verdict.SAME.value)
    runs = {entry["run"] for entry in found}
    red = {entry["run"] for entry in found if entry["verdict"] in FALSE}
    primary = {e["run"] for e in found if e["verdict"] in FALSE and not e["exploratory"]}
    gpu = environment["gpus"][0]["name"]
    versions = f"torch {environment['torch']}, Triton {environment['triton']}"
    lead = (
        f"{len(seconds)} runs of at most {max(seconds):.1f} s on one {gpu}, {versions}. "
        f"{sum(false.values())} of {len(found)} verdicts were false, SLOWER or FASTER "
        f"({100 * false_share(found):.2f} %); at most 1 % may be. {len(red)} of {len(runs)} runs "
        f"had any, {len(primary)} of them in a primary metric.",
        "Half of an interval, and the margin: medians over runs and cases, in percent of the time.",
    )
    rows = []
    for name in total:
        entries = [entry for entry in found if entry["metric"] == name]
        half = median([(e["high_percent"] - e["low_percent"]) / 2 for e in entries])
        margin = median([entry["margin_percent"] for entry in entries])
        largest = max(abs(entry["percent"]) for entry in entries)
        counts = [str(counted[name]) for counted in (total, false, same)]
        widths = [f"{value:.2f}" for value in (half, margin, largest)]
        rows.append(tuple(map(Cell, (name, *counts, *widths))))
    columns = ("Metric", "Judged", "False", "SAME", "± (%)", "Margin (%)", "Largest change (%)")
    title = f"A/A: {variant} against a copy of itself"
    return Document(title, lead, (Section("By metric", (Table(columns, tuple(rows), 1),)),))


def false_share(found: list[dict[str, Any]]) -> float:
    """Share of the verdicts that were false."""
    return sum(entry["verdict"] in FALSE for entry in found) / len(found)


if __name__ == "__main__":
    sys.exit(main())
