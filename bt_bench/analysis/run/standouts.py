"""The cases of a run that are worth a profile: the slowest one, and the one that changed most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bt_bench.analysis.compare.labels import unique_labels
from bt_bench.analysis.compare.one_run import judge_run
from bt_bench.analysis.figures import typical_us
from bt_bench.analysis.verdicts import Judgement, Verdict
from bt_bench.base import format_number, format_percent
from bt_bench.base.names import Operation
from bt_bench.results import CaseResult, Quantity, Status, VariantResult, metric_of, series_of

_STEP = series_of(Quantity.STEP_US)
_METRIC = metric_of(_STEP).name

_RESOLVED = (Verdict.FASTER, Verdict.SLOWER)
_CREDIBLE = (*_RESOLVED, Verdict.SAME, Verdict.INCONCLUSIVE)
_PASSED = (Status.OK, Status.INSUFFICIENT)


@dataclass(frozen=True)
class Standout:
    """A case that stands out among the cases of its operation.

    Args:
        operation: the timed operation.
        case: its name.
        variants: the ones that passed its check, in the order of the results.
        why: the reasons why it stands out, a clause each.
    """

    operation: Operation
    case: str
    variants: tuple[str, ...]
    why: tuple[str, ...]


def standouts(results: Sequence[VariantResult]) -> list[Standout]:
    """Return the slowest case of a run and the most changed one, by `step_us` of the whole step.

    The whole step is the most comprehensive timed operation, the last in the order of lists. The
    slowest case is where any variant's typical time is the longest. The most changed one is where
    the ratio of any variant to the baseline is the furthest from 1, by the verdicts in the run's
    report: a difference that is shown comes before any that is not.

    Args:
        results: of the run's variants.

    Returns:
        One case if both are the same. Only the slowest one if nothing was compared; none if no step
        was timed.
    """
    operation = _whole_step(results)
    if operation is None:
        return []
    why = [_slowest(results, operation)]
    if (changed := _most_changed(results, operation)) is not None:
        why.append(changed)
    return [
        Standout(
            operation,
            name,
            tuple(_passed(results, operation, name)),
            tuple(text for case, text in why if case == name),
        )
        for name in dict.fromkeys(case for case, _ in why)
    ]


def _whole_step(results: Sequence[VariantResult]) -> Operation | None:
    timed = [
        case.operation
        for result in results
        for case in result.cases
        if not case.operation.traits.on_host and _step_us(case) is not None
    ]
    return max(timed, key=lambda operation: operation.traits.rank, default=None)


def _step_us(case: CaseResult) -> float | None:
    return typical_us(case, _STEP) if case.status is Status.OK else None


def _slowest(results: Sequence[VariantResult], operation: Operation) -> tuple[str, str]:
    """Return the name of the slowest case, and the reason."""
    times = [
        (time_us, case.case, label)
        for label, result in zip(unique_labels(results), results, strict=True)
        for case in result.cases
        if case.operation == operation and (time_us := _step_us(case)) is not None
    ]
    time_us, name, label = max(times, key=lambda each: each[0])  # the first one of equals
    return name, f"slowest: {label} takes {format_number(time_us)} µs"


def _most_changed(results: Sequence[VariantResult], operation: Operation) -> tuple[str, str] | None:
    """Return the name of the most changed case, and the reason; `None` if none was compared."""
    judged = judge_run(results)
    found = [
        (each.verdict in _RESOLVED, abs(math.log(each.ratio)), each)
        for each in (judged.judgements if judged else ())
        if each.operation == operation and each.metric == _METRIC and each.verdict in _CREDIBLE
        if each.ratio is not None and 0 < each.ratio < math.inf
    ]
    if not found:
        return None
    # A factor counts alike in both directions.
    *_, most = max(found, key=lambda each: each[:2])
    return most.case, f"most changed: {most.other} takes {_change(most)} ({most.word})"


def _change(judgement: Judgement) -> str:
    percent = judgement.percent or 0.0
    more = "more" if percent > 0 else "less"
    return f"{format_percent(abs(percent))} % {more} than {judgement.base}"


def _passed(results: Sequence[VariantResult], operation: Operation, name: str) -> list[str]:
    return [
        result.variant.name
        for result in results
        for case in result.cases
        if (case.operation, case.case) == (operation, name) and case.status in _PASSED
    ]
