"""Phrases that sum up the verdicts on a quantity: how much less, in how many cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bt_bench.analysis import MOST_TOLD, Cause, Judgement, Verdict
from bt_bench.base import format_factors, format_share
from bt_bench.base.errors import listed
from bt_bench.base.names import Operation
from bt_bench.report.formats.texts import clean, limit_text, span_text
from bt_bench.results import Quantity, Series, series_of

_NOUNS = {Quantity.HOST_US: "host time", Quantity.GPU_US: "GPU time", Quantity.STAGE_US: "staging"}
TIMES = {quantity.value: series_of(quantity) for quantity in _NOUNS}
"""The series that can be primary, by the names of their metrics."""

WITHOUT_FIGURE = (Verdict.INVALID, Verdict.MISSING)
"""Verdicts that rest on no valid figure."""

_SMALLEST_FACTOR = 1.1
"""A change by a smaller factor is given in percent."""


def is_factor(ratio: float) -> bool:
    """Return whether a positive ratio of times is given as a factor, not in percent."""
    return max(ratio, 1 / ratio) >= _SMALLEST_FACTOR


def noun_of(series: Series) -> str:
    """Return the everyday name of a quantity: `host time`."""
    quantity = series.quantity
    return _NOUNS.get(quantity, f"{quantity.traits.heading} time")


def _phrase(judgements: Sequence[Judgement], noun: str, total: int) -> str:
    """Return `1.3–1.9 × less host time in 4 of 5 cases, undecided in 1`."""
    of_verdict = {
        verdict: [each for each in judgements if each.verdict is verdict] for verdict in Verdict
    }
    parts = []
    for verdict, direction in ((Verdict.FASTER, "less"), (Verdict.SLOWER, "more")):
        if members := of_verdict[verdict]:
            parts.append(f"{_size(members)} {direction} {noun}{_count(len(members), total)}")
    if members := of_verdict[Verdict.SAME]:
        margin = max((each.evidence.margin.share for each in members if each.evidence), default=0.0)
        within = f" (± {format_share(margin)})" if margin else ""
        parts.append(f"the same {noun}{within}{_count(len(members), total)}")
    if members := of_verdict[Verdict.INCONCLUSIVE]:
        limit = max((each.evidence.detectable for each in members if each.evidence), default=None)
        shown = ""
        if limit is not None and limit > MOST_TOLD:
            shown = f" (no change below {format_share(MOST_TOLD)} would have been detected)"
        elif limit is not None:
            shown = f" ({limit_text(limit)} % or more would have been detected)"
        about = "" if parts else f"{noun} "
        parts.append(f"{about}undecided{_count(len(members), total)}{shown}")
    valid = [each for each in judgements if each.verdict not in WITHOUT_FIGURE]
    if lacking := total - len(valid):
        about = "" if parts else f"{noun} "
        parts.append(f"{about}without a valid figure{_count(lacking, total)}")
    return ", ".join(parts)


def _count(count: int, total: int) -> str:
    return "" if count == total else f" in {count} of {total} cases"


def _size(members: Sequence[Judgement]) -> str:
    """Return the range of changes: `8.7–12.3 ×`, or `2.1–4.0 %` if the smallest is small."""
    ratios = [each.ratio for each in members if each.ratio]
    factors = sorted(max(ratio, 1 / ratio) for ratio in ratios)
    if not factors:
        return "?"
    if is_factor(factors[0]):
        return f"{span_text(*format_factors(factors[0], factors[-1]))} ×"
    changes = sorted(abs(ratio - 1) for ratio in ratios)
    return f"{span_text(*(format_share(changes[at], 2).removesuffix(' %') for at in (0, -1)))} %"


def sentence(name: str, judged: Mapping[Series, Sequence[Judgement]], total: int) -> str:
    """Return a sentence on how much more or less one side takes than its base.

    Args:
        name: name of the side.
        judged: the verdicts on it, by quantity; none of them empty.
        total: number of cases, with or without a verdict.
    """
    verdicts = {each.verdict for judgements in judged.values() for each in judgements}
    if verdicts == {Verdict.FASTER} and {*map(len, judged.values())} == {total}:
        sizes = [f"{_size(of)} less {noun_of(series)}" for series, of in judged.items()]
        told = listed(sizes)
    else:
        told = "; ".join(_phrase(of, noun_of(series), total) for series, of in judged.items())
    takes = " takes" if told[0].isdigit() or told.startswith("the same") else ":"
    return f"{name}{takes} {told}."


def sentences(judgements: Sequence[Judgement]) -> Iterator[str]:
    """Yield a sentence for each operation and side on the primary times that were compared.

    The largest operation comes first, as in the report of a run. The base is named unless it is the
    same for all.
    """
    sides: dict[tuple[Operation, str, str], dict[Series, list[Judgement]]] = {}
    for each in sorted(judgements, key=lambda one: -one.operation.traits.rank):
        series = TIMES.get(each.metric)
        if series is not None and not each.exploratory:
            of_side = sides.setdefault((each.operation, each.base, each.other), {})
            of_side.setdefault(series, []).append(each)
    several = len({base for _, base, _ in sides}) > 1
    for (operation, base, other), unordered in sides.items():
        judged = {series: unordered[series] for series in TIMES.values() if series in unordered}
        count = max(map(len, judged.values()))
        over = f", {count} cases" if count > 1 else ""
        against = f", against {clean(base)}" if several else ""
        yield f"{clean(operation)}{over}{against}: {sentence(clean(other), judged, count)}"


def not_compared_lines(not_compared: Mapping[str, Sequence[Judgement]]) -> list[str]:
    """Return a line for sides of which too little was compared; alike ones share one.

    Args:
        not_compared: by side, the judgements that explain it; see `bt_bench.analysis.not_compared`.
    """
    alike: dict[str, list[str]] = {}  # sides, by the line without them
    for side, why in not_compared.items():
        alike.setdefault(_not_compared_line("", why), []).append(side)
    return [_not_compared_line(listed(sides), not_compared[sides[0]]) for sides in alike.values()]


def _not_compared_line(side: str, why: Sequence[Judgement]) -> str:
    if not why:
        return (
            f"nothing of {side} could be compared: no case was measured on both sides with any of "
            "the metrics that decide"
        )
    first = why[0]
    reason = f"{first.key} {first.metric}: {first.detail}"
    reason += f" (and {len(why) - 1} more)" if len(why) > 1 else ""
    if any(each.cause is not Cause.TOO_FEW for each in why):
        return f"nothing of {side} could be compared: {reason}"
    return (
        f"not all times of {side} could be compared: {reason}; sweep with --set plan.instances=8, "
        "and device times with as many of plan.profile_rounds at least, or name the metrics to "
        "compare by --metric, such as launches"
    )
