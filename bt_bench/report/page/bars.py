"""Bars that show where the time of a step goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bt_bench.analysis import Budget, budgets
from bt_bench.base import Cell, Table, format_number
from bt_bench.base.errors import listed
from bt_bench.report.page.parts import Bar, BarChart, Segment
from bt_bench.report.run.arranged import Arms, CaseId
from bt_bench.report.run.cells import number_cell
from bt_bench.results import LaunchPath

_KINDS = {
    "host": "host, until the call returns",
    "device": "device work left then",
    "latency": "launch latency and synchronize",
    "rest": "not explained",
}

_LAUNCHED = {
    LaunchPath.JIT: "Triton's own call",
    LaunchPath.COMPILED: "the handle of a compiled kernel",
    LaunchPath.DIRECT: "the driver's cuLaunchKernel",
    LaunchPath.GRAPH: "a replayed CUDA graph",
}


def budget_chart(arms: Arms, case_id: CaseId, where: str = "") -> BarChart | None:
    """Draw the budget of one case, a bar for each variant and launch path; `None` without any.

    Args:
        arms: the run.
        case_id: the case.
        where: a text to end the title with.
    """
    found = _budgets(arms, case_id)
    if not found:
        return None
    longest = max(max(each.step_us, sum(parts_of(each).values())) for _, each in found)
    several = len({each.launch_path for _, each in found}) > 1
    bars = []
    for name, budget in found:
        label = f"{name}, {budget.launch_path}" if several else name
        bars.append(Bar(label, tuple(_segments(budget, longest)), _text(budget)))
    sentences = ", ".join(f"{bar.label} {bar.text}" for bar in bars)
    return BarChart(
        name=f"budget/{case_id.key}",
        title=f"Where the time of a step goes, on an idle GPU{where}",
        alternative=f"Parts of a step of {case_id.case}, in µs: {sentences}.",
        legend=tuple(_KINDS.items()),
        bars=tuple(bars),
        data=_data(found),
    )


def budget_sentence(arms: Arms, case_id: CaseId) -> str | None:
    """Say which share of a step of one case is the host's, per variant; `None` without budgets.

    The step is launched by Triton's call, as in the speed-ups that are said beside this.
    """
    shares = []
    for name, found in _budgets(arms, case_id):
        if found.launch_path is LaunchPath.JIT:
            percent = 100 * found.host_us / found.step_us
            share = f"{format_number(percent, 2)} % of {format_number(found.step_us, 3)} µs"
            shares.append(f"{share} with {name}")
    if not shares:
        return None
    return (
        f"In a step of {case_id.case} on an idle GPU the host takes {listed(shares)}, "
        "until its call returns."
    )


def launching_sentence(arms: Arms, case_ids: Iterable[CaseId]) -> str | None:
    """Explain the launch paths that charts of some cases name; `None` if they name none."""
    found = {budget.launch_path for case_id in case_ids for _, budget in _budgets(arms, case_id)}
    ways = [f"{path} is {way}" for path, way in _LAUNCHED.items() if path in found]
    return f"Ways of launching: {listed(ways)}." if len(ways) > 1 else None


def _budgets(arms: Arms, case_id: CaseId) -> list[tuple[str, Budget]]:
    return [
        (arm.name, budget)
        for arm in arms.all
        if (case := arm.ok_case(case_id)) is not None
        for budget in budgets(case, arm.result.calibration_of(case.part))
    ]


def parts_of(budget: Budget) -> dict[str, float]:
    """Return the parts of a step by their kind, in µs; what exceeds the step is left out."""
    return {
        "host": budget.host_us,
        "device": budget.device_left_us,
        "latency": budget.latency_us,
        "rest": max(0.0, budget.residual_us),
    }


def _segments(budget: Budget, longest: float) -> Iterator[Segment]:
    for kind, time_us in parts_of(budget).items():
        text = f"{_KINDS[kind]}: {format_number(time_us, 3)} µs"
        yield Segment(kind, time_us / longest if longest else 0.0, text)


def _text(budget: Budget) -> str:
    host = f"{format_number(budget.host_us, 3)} host"
    return f"{format_number(budget.step_us, 3)} µs ({host})"


def _data(found: Sequence[tuple[str, Budget]]) -> Table:
    rows = []
    for name, budget in found:
        times = (budget.step_us, budget.host_us, budget.device_left_us, budget.latency_us)
        cells = map(number_cell, (*times, budget.residual_us, budget.hidden_us, budget.gaps_us))
        rows.append((Cell(name), Cell(budget.launch_path.value), *cells))
    columns = ("Step", "Host", "Device left", "Latency", "Residual", "Hidden", "Gaps")
    return Table(("Variant", "Launch", *columns), tuple(rows), 2)
