"""Tables of one run: results to cells, for any format to print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bt_bench.compare import QuantityPair, baseline_index, pair_quantity, typical_us, unique_labels
from bt_bench.model import (
    CaseResult,
    LaunchCensus,
    Quantity,
    Status,
    VariantResult,
)
from bt_bench.operation import Operation
from bt_bench.report.document import ABSENT, Cell, Table
from bt_bench.stats import percentile, step_medians
from bt_bench.units import format_number, format_percent, us_to_ms

EVENT_COLUMNS = ("Config", "Baseline (ms)", "Fused (ms)", "Savings (us)", "Savings (%)")

QUANTITY_TITLES: dict[Quantity, str] = {
    Quantity.EVENT_US: "event",
    Quantity.HOST_US: "host",
    Quantity.STAGE_US: "stage",
    Quantity.GPU_US: "device",
    Quantity.STEP_US: "step",
}
_TIME_QUANTITIES = (Quantity.HOST_US, Quantity.STAGE_US, Quantity.GPU_US, Quantity.STEP_US)
_PERCENTILES = (10, 50, 90, 99, 100)

_UNRESOLVED = {
    False: "not told from 0: the 95 % interval of the median over rounds contains it",
    None: "too few rounds to tell from 0",
}

_KIND_PLURALS = {
    "kernel": "kernels",
    "copy": "copies",
    "memset": "memsets",
    "torch_op": "torch ops",
}


@dataclass(frozen=True)
class CaseId:
    """What makes rows of two variants the same case."""

    operation: Operation
    case: str
    digest: str


@dataclass(frozen=True)
class Arm:
    """One variant of the run, with its cases at hand."""

    name: str
    result: VariantResult
    cases: dict[CaseId, CaseResult]


@dataclass(frozen=True)
class Arms:
    """All variants of a run, and all cases that any of them has, in the order of the files."""

    baseline: Arm
    others: tuple[Arm, ...]
    case_ids: tuple[CaseId, ...]

    @property
    def all(self) -> tuple[Arm, ...]:
        """The baseline, then the others."""
        return (self.baseline, *self.others)

    def cases_of(self, operation: Operation) -> list[CaseId]:
        """Cases of one operation."""
        return [case_id for case_id in self.case_ids if case_id.operation is operation]


def arrange(results: Sequence[VariantResult]) -> Arms:
    """Sorts results into the baseline arm and the others."""
    arms = [
        Arm(name, result, {_identify(case): case for case in result.cases})
        for name, result in zip(unique_labels(results), results, strict=True)
    ]
    baseline = arms.pop(baseline_index(results))
    case_ids = dict.fromkeys(case_id for arm in (baseline, *arms) for case_id in arm.cases)
    return Arms(baseline, tuple(arms), tuple(case_ids))


def event_table(arms: Arms, operation: Operation) -> Table:
    """The origin's table: medians of `event_us`, a row per case and variant."""
    rows = []
    for case_id in arms.cases_of(operation):
        for other in arms.others:
            config = f"{case_id.case} · {other.name}" if len(arms.others) > 1 else case_id.case
            pair = _pair(arms, other, case_id, Quantity.EVENT_US)
            rows.append(
                (
                    Cell(config),
                    _time_cell(arms.baseline, case_id, Quantity.EVENT_US, _in_ms),
                    _time_cell(other, case_id, Quantity.EVENT_US, _in_ms),
                    *savings_cells(pair),
                )
            )
    return Table(EVENT_COLUMNS, tuple(rows), num_text_columns=1)


def savings_cells(pair: QuantityPair | None) -> tuple[Cell, Cell]:
    """Savings in µs and in percent; the cells of the two sides say why they are absent."""
    savings_us = pair.savings_us if pair else None
    percent = pair.savings_percent if pair else None
    note = _UNRESOLVED.get(pair.resolved) if pair and pair.paired else None
    return (
        Cell(ABSENT) if savings_us is None else Cell(format_number(savings_us), note),
        Cell(ABSENT) if percent is None else Cell(format_percent(percent), note),
    )


def time_table(arms: Arms, operation: Operation) -> Table:
    """Host, staging, device and step times and launches, a row per case and variant."""
    columns = (
        "Config",
        "Variant",
        *(f"{QUANTITY_TITLES[quantity].capitalize()} (us)" for quantity in _TIME_QUANTITIES),
        "Launches",
    )
    rows = tuple(
        (
            Cell(case_id.case),
            Cell(arm.name),
            *(_time_cell(arm, case_id, quantity, _in_us) for quantity in _TIME_QUANTITIES),
            _launch_cell(arm, case_id),
        )
        for case_id in arms.cases_of(operation)
        for arm in arms.all
    )
    return Table(columns, rows, num_text_columns=2)


def distribution_table(arms: Arms, operation: Operation) -> Table | None:
    """How step times spread over a window of several steps; `None` where no case has such."""
    columns = ("Config", "Variant", "Time (us)", "Steps", "p10", "p50", "p90", "p99", "max")
    rows = tuple(
        row
        for case_id in arms.cases_of(operation)
        for arm in arms.all
        for row in _distribution_rows(arm, case_id)
    )
    return Table(columns, rows, num_text_columns=3) if rows else None


def _distribution_rows(arm: Arm, case_id: CaseId) -> Iterator[tuple[Cell, ...]]:
    case = arm.cases.get(case_id)
    if case is None or case.status is not Status.OK or case.workload.num_steps == 1:
        return
    # Without a GPU there is no step time, and staging is what varies from step to step.
    for quantity in (Quantity.STEP_US, Quantity.STAGE_US):
        medians = step_medians(case.samples(quantity) or [])
        if len(medians):
            yield (
                Cell(case_id.case),
                Cell(arm.name),
                Cell(QUANTITY_TITLES[quantity]),
                Cell(str(len(medians))),
                *(Cell(format_number(percentile(medians, p))) for p in _PERCENTILES),
            )
            return


def _identify(case: CaseResult) -> CaseId:
    return CaseId(case.operation, case.case, case.workload.digest)


def _pair(arms: Arms, other: Arm, case_id: CaseId, quantity: Quantity) -> QuantityPair | None:
    """A quantity of the baseline and another arm, or `None` where one lacks or failed the case."""
    left, right = arms.baseline.cases.get(case_id), other.cases.get(case_id)
    if left is None or right is None or {left.status, right.status} != {Status.OK}:
        return None
    one_run = arms.baseline.result.run_id == other.result.run_id
    return pair_quantity(left, right, quantity, one_run=one_run)


def _time_cell(
    arm: Arm, case_id: CaseId, quantity: Quantity, shown: Callable[[CaseResult, Quantity], str]
) -> Cell:
    case = arm.cases.get(case_id)
    if case is None or case.status is not Status.OK:
        return _no_case_cell(arm, case)
    if typical_us(case, quantity) is None:
        return Cell(ABSENT, _why_absent(arm.result, case, quantity))
    return Cell(shown(case, quantity))


def _no_case_cell(arm: Arm, case: CaseResult | None) -> Cell:
    if case is not None:
        return Cell(case.status.value)
    if arm.result.complete:
        return Cell(ABSENT, f"{arm.name} has no such case")
    return Cell(ABSENT, "not reached: the run was interrupted")


def _why_absent(result: VariantResult, case: CaseResult, quantity: Quantity) -> str:
    if case.operation is Operation.STAGE and quantity is not Quantity.STAGE_US:
        return "staging is host work and is timed as such"
    if result.environment.device == "cpu" and quantity is not Quantity.STAGE_US:
        if quantity in (Quantity.GPU_US, Quantity.EVENT_US):
            return "device times need a GPU"
        return "needs a GPU: here it would be the interpreter's time"
    return case.reason.message if case.reason else "not measured"


def _in_ms(case: CaseResult, quantity: Quantity) -> str:
    value_us = typical_us(case, quantity)
    return ABSENT if value_us is None else format_number(us_to_ms(value_us))


def _in_us(case: CaseResult, quantity: Quantity) -> str:
    """`median`, or `median / p99` over the steps of a longer window."""
    medians = step_medians(case.samples(quantity) or [])
    text = format_number(percentile(medians, 50))
    if case.workload.num_steps == 1:
        return text
    return f"{text} / {format_number(percentile(medians, 99))}"


def _launch_cell(arm: Arm, case_id: CaseId) -> Cell:
    case = arm.cases.get(case_id)
    if case is None or case.status is not Status.OK:
        return _no_case_cell(arm, case)
    if case.launches is None or not case.launches.steps:
        reason = case.reason.message if case.reason else "not counted"
        return Cell(ABSENT, reason)
    return Cell(describe_launches(case.launches))


def describe_launches(census: LaunchCensus) -> str:
    """`2`; `2–5` where steps differ; `4 (3 kernels, 1 copy)` where not all are kernels."""
    kinds = dict.fromkeys(launch.kind for step in census.steps for launch in step)
    total = range_text(census.totals())
    if not set(kinds) - {"kernel"}:
        return total
    parts = []
    for kind in kinds:
        counts = [sum(la.count for la in step if la.kind == kind) for step in census.steps]
        name = kind.replace("_", " ") if set(counts) == {1} else _KIND_PLURALS[kind]
        parts.append(f"{range_text(counts)} {name}")
    return f"{total} ({', '.join(parts)})"


def range_text(counts: Sequence[int]) -> str:
    """`2`, or `2–5`."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"
