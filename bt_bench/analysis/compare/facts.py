"""What is said of a comparison as a whole: its facts, its warnings, and the mean ratios."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bt_bench.analysis.compare.entries import (
    Matchup,
    Side,
)
from bt_bench.analysis.deciding import (
    Correction,
    Rules,
)
from bt_bench.analysis.statistics.estimates import geometric_mean
from bt_bench.analysis.verdicts import Cause, Judgement, Overall
from bt_bench.errors import NotComparableError
from bt_bench.results import CONFIG_NAME, Status

PARTS = ("gap_us", "last_us")
"""Quantities that are part of others, and grow where others shrink: judged only where asked for."""

_CORRECTIONS = {
    Correction.HOLM: "corrected by Holm's method, so that any false one is as rare",
    Correction.BH: "corrected by Benjamini and Hochberg's method, so that of all changes found "
    "no more than that share is false",
    Correction.NONE: "not corrected, so that a false one is to be expected among many tests",
}


def partial_warnings(matchups: Sequence[Matchup], *, allow_partial: bool) -> Iterator[str]:
    """Warnings on sides whose runs did not come to their end; raises unless they are allowed.

    What such a run has not reached may be missing on both sides, where nobody would miss it.
    """
    sides = {side.label: side for each in matchups for side in (each.base, each.other)}
    partial = [s for s in sides.values() if not (s.absent or s.result.header.complete)]
    if partial and not allow_partial:
        raise NotComparableError("\n".join(how_to_finish(s.label, s.folder) for s in partial))
    for side in partial:
        yield f"{side.label} is a partial result"
    for side in sides.values():
        yield from side.result.warnings
        if not side.absent:
            yield from _odd_reasons(side)


def _odd_reasons(side: Side) -> Iterator[str]:
    """A case that is ok has no reason not to be; somebody or something has put one there."""
    odd = [c for c in side.result.cases if c.status is Status.OK and c.reason is not None]
    if odd:
        more = f" (and {len(odd) - 1} more such cases)" if len(odd) > 1 else ""
        yield f"{side.label}: {odd[0].key} is ok, but with a reason: {odd[0].reason}{more}"


def how_to_finish(label: str, folder: Path | None) -> str:
    """Why a partial result is not compared, and what to do.

    Args:
        label: of the result.
        folder: that it lies in; it can be resumed there if that is the folder of a run.
    """
    known = folder is not None and (folder / CONFIG_NAME).is_file()
    return (
        f"{label} is a partial result: its run was interrupted, or is under way. Finish it "
        f"with `bt-bench sweep --resume {shlex.quote(str(folder)) if known else 'DIR'}`, or pass "
        "--allow-partial to compare the cases that there are"
    )


def overall_ratios(judgements: Sequence[Judgement]) -> Iterator[Overall]:
    """The geometric mean of the ratios of each metric and side, over the cases that have one."""
    ratios: dict[tuple[str, str, str], list[float]] = {}
    for each in judgements:
        if each.ratio and (each.evidence is not None or each.cause is Cause.EXACT):
            ratios.setdefault((each.metric, each.base, each.other), []).append(each.ratio)
    for (metric, base, other), found in ratios.items():
        mean = geometric_mean(found)
        low, high = (mean.interval.low, mean.interval.high) if mean.interval else (None, None)
        yield Overall(metric, base, other, len(found), mean.ratio, low, high)


def facts_of(
    matchups: Sequence[Matchup],
    rules: Rules,
    metrics: Sequence[str],
    judgements: Sequence[Judgement],
) -> Iterator[str]:
    """How the sides were compared: sentences for people, in every format."""
    margins = []
    if any(each.one_run for each in matchups):
        yield "Sides of one interleaved run are compared round by round."
        margins.append(percent(rules.margin))
    if not all(each.one_run for each in matchups):
        yield (
            "Sides of different runs are compared by their medians, which is advisory: what "
            "changed on the machine between the runs counts as well."
        )
        margins.append(f"{percent(rules.advisory_margin)} between runs")
    yield (
        f"A change counts beyond its margin: {', '.join(dict.fromkeys(margins))}, or that of the "
        "case; three times what unchanged code differs by where that is more, or the floor of the "
        "metric."
    )
    if not metrics:
        yield f"{' and '.join(PARTS)} are parts of other times, and judged only by --metric."
    tests = sum(each.evidence is not None for each in judgements)
    yield (
        f"alpha is {rules.alpha:g} over {tests} tests, {_CORRECTIONS[rules.correction]}; "
        f"intervals are of {100 * (1 - 2 * rules.alpha):g} %, those of means over cases of 95 %."
    )


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"
