"""A sentence per variant on how much faster it is, in how many cases, and on open verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bt_bench.analysis import Judgement, Verdict
from bt_bench.base.errors import listed
from bt_bench.base.names import Operation
from bt_bench.report.formats.phrases import noun_of, sentence
from bt_bench.report.run.arranged import Arms, ArrangedArm
from bt_bench.results import Series, metric_of

MAX_OTHERS = 5
"""Most variants beside the baseline that have a sentence, or a column, each."""

_MOST_NAMES = 4


def headlines(arms: Arms, operation: Operation, shown: Sequence[Series]) -> Iterator[str]:
    """Yield the sentences that sum up the tables of an operation.

    Args:
        arms: arms of the run.
        operation: the operation.
        shown: the quantities that have tables; without any there is no sentence.
    """
    if len(arms.others) > 1:
        yield from _fastest(arms, operation, shown)
    for other in arms.others if len(arms.others) <= MAX_OTHERS else ():
        judged = {series: _judgements(arms, operation, other, series) for series in shown}
        judged = {series: judgements for series, judgements in judged.items() if judgements}
        if judged:
            yield sentence(other.name, judged, len(arms.cases_of(operation)))


def _judgements(
    arms: Arms, operation: Operation, other: ArrangedArm, series: Series
) -> list[Judgement]:
    found = (arms.judgement(other, case_id, series) for case_id in arms.cases_of(operation))
    return [judgement for judgement in found if judgement is not None]


def _fastest(arms: Arms, operation: Operation, shown: Sequence[Series]) -> Iterator[str]:
    """Yield sentences on who takes the least time, or is level with others, in how many cases."""
    nouns: dict[tuple[tuple[tuple[str, ...], int], ...], list[str]] = {}
    for series in shown:
        counts = Counter(filter(None, _winners(arms, operation, series)))
        if counts:
            nouns.setdefault((*counts.most_common(),), []).append(noun_of(series))
    for counted, of in nouns.items():
        total = len(arms.cases_of(operation))
        won = [_won(names, count, total) for names, count in counted]
        yield f"Least {listed(of)}: {'; '.join(won)}."


def _winners(arms: Arms, operation: Operation, series: Series) -> Iterator[tuple[str, ...] | None]:
    """Yield for each case who takes the least time: several if their intervals overlap.

    Yields `None` for a case that lacks a valid verdict.
    """
    for case_id in arms.cases_of(operation):
        intervals = {arms.baseline.name: (1.0, 1.0)}
        for other in arms.others:
            judgement = arms.judgement(other, case_id, series)
            if judgement is None or judgement.verdict is Verdict.INVALID:
                yield None
                break
            if judgement.low is None or judgement.high is None:
                yield None
                break
            intervals[other.name] = judgement.low, judgement.high
        else:
            least_high = min(high for _, high in intervals.values())
            yield tuple(name for name, (low, _) in intervals.items() if low <= least_high)


def _won(names: Sequence[str], count: int, total: int) -> str:
    """Return `fused in all 5 cases`, or who is level with whom."""
    cases = f"all {total} cases" if count == total > 1 else f"{count} of {total} cases"
    if len(names) == 1:
        return f"{names[0]} in {cases}"
    rest = len(names) - _MOST_NAMES
    shown = [*names[:_MOST_NAMES], *([f"{rest} more"] if rest > 0 else [])]
    return f"{listed(shown)}, level in {cases} (their intervals overlap)"


def metric_noun(series: Series) -> str:
    """Return the title of a table: `Host time, µs (host_us)`."""
    noun = noun_of(series)
    return f"{noun[0].upper()}{noun[1:]}, µs ({metric_of(series).name})"
