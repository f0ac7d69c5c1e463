"""A sentence per variant on how much faster it is, in how many cases, and on open verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bt_bench.analysis import Judgement, Verdict
from bt_bench.base.errors import listed
from bt_bench.base.names import Operation
from bt_bench.report.formats.phrases import noun_of, sentence
from bt_bench.report.run.arranged import Arms, ArrangedArm
from bt_bench.results import Series, metric_of

MAX_OTHERS = 5
"""Most variants beside the baseline that have a sentence, or a column, each."""

_MOST_NAMES = 4
_LEVEL = "their intervals overlap"


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
        yield f"Least {listed(of)}: {'; '.join(_won(dict(counted), total))}."


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


def _won(counts: Mapping[tuple[str, ...], int], total: int) -> Iterator[str]:
    """Yield `fused in all 5 cases` for each that is alone, then who is level with whom.

    Where many kinds of variants are level, only the one that is among them most often is named.

    Args:
        counts: numbers of cases by the names of who takes the least time.
        total: number of all cases.
    """
    alone = {names[0]: count for names, count in counts.items() if len(names) == 1}
    level = {names: count for names, count in counts.items() if len(names) > 1}
    yield from (f"{name} in {_of_cases(count, total)}" for name, count in alone.items())
    if len(level) == 1:
        ((names, count),) = level.items()
        rest = len(names) - _MOST_NAMES
        shown = [*names[:_MOST_NAMES], *([f"{rest} more"] if rest > 0 else [])]
        yield f"{listed(shown)}, level in {_of_cases(count, total)} ({_LEVEL})"
    elif level:
        among = Counter(name for names, count in level.items() for name in names * count)
        most = max(among, key=lambda name: (among[name], alone.get(name, 0)))
        yield f"{most} and others, level in {_of_cases(among[most], total)} ({_LEVEL})"
        if rest := sum(level.values()) - among[most]:
            yield f"others among themselves in {_of_cases(rest, total)}"


def _of_cases(count: int, total: int) -> str:
    return f"all {total} cases" if count == total > 1 else f"{count} of {total} cases"


def metric_noun(series: Series) -> str:
    """Return the title of a table: `Host time, µs (host_us)`."""
    noun = noun_of(series)
    return f"{noun[0].upper()}{noun[1:]}, µs ({metric_of(series).name})"
