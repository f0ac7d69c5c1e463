"""Say in a sentence per variant how much faster it is, in how many cases, and what stays open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bt_bench.analysis import Judgement, Verdict
from bt_bench.errors import listed
from bt_bench.names import Operation
from bt_bench.report.formats.texts import factor_texts, limit_text
from bt_bench.report.run.arranged import Arm, Arms
from bt_bench.results import Quantity, Series, format_share, metric_of

_NOUNS = {Quantity.HOST_US: "host time", Quantity.GPU_US: "GPU time", Quantity.STAGE_US: "staging"}
_SMALLEST_FACTOR = 1.1
"""Nearer to 1 than that a change is told in percent."""

MAX_OTHERS = 5
"""Variants beside the baseline that have a sentence, or a column, each."""

_MOST_NAMES = 4


def headlines(arms: Arms, operation: Operation, shown: Sequence[Series]) -> Iterator[str]:
    """Yield the sentences that sum up the tables of an operation.

    Args:
        arms: of the run.
        operation: the operation.
        shown: the quantities that have tables; without any there is no sentence.
    """
    if len(arms.others) > 1:
        yield from _fastest(arms, operation, shown)
    for other in arms.others if len(arms.others) <= MAX_OTHERS else ():
        judged = {series: _judgements(arms, operation, other, series) for series in shown}
        judged = {series: judgements for series, judgements in judged.items() if judgements}
        if not judged:
            continue
        verdicts = {each.verdict for judgements in judged.values() for each in judgements}
        if verdicts == {Verdict.FASTER}:
            sizes = (f"{_size(of)} less {noun_of(series)}" for series, of in judged.items())
            told = listed([*sizes])
        else:
            told = "; ".join(_phrase(of, noun_of(series)) for series, of in judged.items())
        takes = " takes" if told[0].isdigit() or told.startswith("the same") else ":"
        yield f"{other.name}{takes} {told}."


def noun_of(series: Series) -> str:
    """Return the everyday name of a quantity: `host time`."""
    quantity = series.quantity
    return _NOUNS.get(quantity, f"{quantity.traits.heading} time")


def _judgements(arms: Arms, operation: Operation, other: Arm, series: Series) -> list[Judgement]:
    found = (arms.judgement(other, case_id, series) for case_id in arms.cases_of(operation))
    return [judgement for judgement in found if judgement is not None]


def _phrase(judgements: Sequence[Judgement], noun: str) -> str:
    """Return `1.3–1.9 × less host time in 4 of 5 cases, undecided in 1`."""
    total = len(judgements)
    of_verdict = {
        verdict: [each for each in judgements if each.verdict is verdict] for verdict in Verdict
    }
    parts = []
    for verdict, direction in ((Verdict.FASTER, "less"), (Verdict.SLOWER, "more")):
        if members := of_verdict[verdict]:
            parts.append(f"{_size(members)} {direction} {noun}{_count(members, total)}")
    if members := of_verdict[Verdict.SAME]:
        margin = max((each.evidence.margin.share for each in members if each.evidence), default=0.0)
        within = f" (± {format_share(margin)})" if margin else ""
        parts.append(f"the same {noun}{within}{_count(members, total)}")
    if members := of_verdict[Verdict.INCONCLUSIVE]:
        limit = max((each.evidence.detectable for each in members if each.evidence), default=None)
        shown = f" ({limit_text(limit)} % or more would have shown)" if limit is not None else ""
        about = "" if parts else f"{noun} "
        parts.append(f"{about}undecided{_count(members, total)}{shown}")
    if members := [*of_verdict[Verdict.INVALID], *of_verdict[Verdict.MISSING]]:
        about = "" if parts else f"{noun} "
        parts.append(f"{about}without a valid figure{_count(members, total)}")
    return ", ".join(parts)


def _count(members: Sequence[Judgement], total: int) -> str:
    return "" if len(members) == total else f" in {len(members)} of {total} cases"


def _size(members: Sequence[Judgement]) -> str:
    """Return the range of changes: `8.7–12.3 ×`, or `2.1–4.0 %` where they are small."""
    ratios = [each.ratio for each in members if each.ratio]
    factors = sorted(max(ratio, 1 / ratio) for ratio in ratios)
    if not factors:
        return "?"
    if factors[0] >= _SMALLEST_FACTOR:
        return f"{_range(*factor_texts(factors[0], factors[-1]))} ×"
    changes = sorted(abs(ratio - 1) for ratio in ratios)
    return f"{_range(*(format_share(changes[at], 2).removesuffix(' %') for at in (0, -1)))} %"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low}–{high}"


def _fastest(arms: Arms, operation: Operation, shown: Sequence[Series]) -> Iterator[str]:
    """Yield who takes the least time, or whose intervals overlap, in how many cases."""
    nouns: dict[tuple[tuple[tuple[str, ...], int], ...], list[str]] = {}
    for series in shown:
        counts = Counter(filter(None, _winners(arms, operation, series)))
        if counts:
            nouns.setdefault((*counts.most_common(),), []).append(noun_of(series))
    for counted, of in nouns.items():
        total = sum(count for _, count in counted)
        won = [_won(names, listed(of), count, total) for names, count in counted]
        yield f"{'; '.join(won)}."


def _winners(arms: Arms, operation: Operation, series: Series) -> Iterator[tuple[str, ...] | None]:
    """Yield for each case who takes the least time; several if their intervals overlap."""
    for case_id in arms.cases_of(operation):
        intervals = {arms.baseline.name: (1.0, 1.0)}
        for other in arms.others:
            judgement = arms.judgement(other, case_id, series)
            if judgement is None or judgement.low is None or judgement.high is None:
                yield None
                break
            intervals[other.name] = judgement.low, judgement.high
        else:
            least_high = min(high for _, high in intervals.values())
            yield tuple(name for name, (low, _) in intervals.items() if low <= least_high)


def _won(names: Sequence[str], nouns: str, count: int, total: int) -> str:
    cases = f"all {total} cases" if count == total > 1 else f"{count} of {total} cases"
    if len(names) == 1:
        return f"{names[0]} takes the least {nouns} in {cases}"
    rest = len(names) - _MOST_NAMES
    shown = [*names[:_MOST_NAMES], *([f"{rest} more"] if rest > 0 else [])]
    return f"{listed(shown)} take the least {nouns} in {cases}: their intervals overlap"


def metric_noun(series: Series) -> str:
    """Return the title of a table: `Host time, µs (host_us)`."""
    noun = noun_of(series)
    return f"{noun[0].upper()}{noun[1:]}, µs ({metric_of(series).name})"
