"""Facts and warnings of a comparison as a whole."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from bt_bench.analysis.compare.between import LAUNCHING, MOST_HOST, STAGING
from bt_bench.analysis.compare.entries import (
    Matchup,
    Side,
)
from bt_bench.analysis.deciding import (
    Correction,
    Rules,
)
from bt_bench.analysis.verdicts import Cause, Judgement, Verdict
from bt_bench.base import format_share
from bt_bench.base.errors import NotComparableError, listed
from bt_bench.results import CONFIG_NAME, Decides, Quantity, Status, metric_named

_CORRECTIONS = {
    Correction.HOLM: "corrected by Holm's method: any false SLOWER among them has at most this "
    "probability, and so has any false FASTER",
    Correction.BH: "corrected by Benjamini and Hochberg's method: at most this share of the SLOWER "
    "among them is expected to be false, and likewise of the FASTER",
    Correction.NONE: "not corrected, so expect false verdicts among many tests",
}


def partial_warnings(matchups: Sequence[Matchup], *, allow_partial: bool) -> Iterator[str]:
    """Yield warnings about partial results; raise unless these are allowed.

    A case that a run never reached may be missing on both sides, where nobody would notice.
    """
    sides = {side.label: side for each in matchups for side in (each.base, each.other)}
    partial = [s for s in sides.values() if not (s.absent or s.result.header.complete)]
    if partial and not allow_partial:
        of_run: dict[Path | None, list[Side]] = {}
        for side in partial:
            of_run.setdefault(side.folder, []).append(side)
        told = [
            how_to_finish(
                [side.label for side in sides_of_run],
                folder,
                merged=sides_of_run[0].result.header.parts is not None,
            )
            for folder, sides_of_run in of_run.items()
        ]
        raise NotComparableError("\n".join(told))
    for side in partial:
        yield f"{side.label} is a partial result"
    for side in sides.values():
        yield from side.result.warnings
        if not side.absent:
            yield from _odd_reasons(side)


def _odd_reasons(side: Side) -> Iterator[str]:
    """Warn of a case that is ok but has a failure reason, which bt-bench never writes."""
    odd = [c for c in side.result.cases if c.status is Status.OK and c.reason is not None]
    if odd:
        more = f" (and {len(odd) - 1} more such cases)" if len(odd) > 1 else ""
        yield f"{side.label}: {odd[0].key} is ok, but has a failure reason: {odd[0].reason}{more}"


def how_to_finish(labels: Sequence[str], folder: Path | None, *, merged: bool = False) -> str:
    """Explain why partial results are not compared, and how to proceed.

    Args:
        labels: of the results of a run.
        folder: their location; if it is a run folder, the run can be resumed there.
        merged: they are merged of the runs of shards, of which some are missing.
    """
    if merged:
        are = "is a partial result" if len(labels) == 1 else "are partial results"
        return (
            f"{listed(labels)} {are}, merged without all shards of the sweep. Measure the missing "
            "ones and merge again, or pass --allow-partial to compare the cases that are there"
        )
    known = folder is not None and (folder / CONFIG_NAME).is_file()
    are = "is a partial result: its" if len(labels) == 1 else "are partial results: their"
    return (
        f"{listed(labels)} {are} run was interrupted or is still going on. Finish it "
        f"with `bt-bench sweep --resume {shlex.quote(str(folder)) if known else 'DIR'}`, or pass "
        "--allow-partial to compare the cases that it has"
    )


def facts_of(
    matchups: Sequence[Matchup],
    rules: Rules,
    metrics: Sequence[str],
    judgements: Sequence[Judgement],
    *,
    has_means: bool,
    has_own_margins: bool,
) -> Iterator[str]:
    """Explain how the sides were compared: sentences for people, in every format."""
    margins = []
    if any(each.one_run for each in matchups):
        yield "Sides of one interleaved run are compared round by round."
        margins.append(format_share(rules.margin))
    if not all(each.one_run for each in matchups):
        yield (
            "Sides of different runs are compared by their medians. This is advisory, as the speed "
            "of a host changes between runs. A host time counts as changed only beyond the change "
            f"of its reference in the same case: {STAGING} for launching, {LAUNCHING} for staging. "
            f"The host may account for a factor of {MOST_HOST:g} at most, and "
            "does where there is no reference."
        )
        margins.append(f"{format_share(rules.advisory_margin)} between runs")
    own = ", or the config's for the case" if has_own_margins else ""
    yield (
        "A change counts if its whole interval is beyond its margin: "
        f"{', '.join(dict.fromkeys(margins))}{own}, and never less than the floor of the metric. "
        "Where three times the noise of unchanged code exceeds the margin, the interval is as much "
        "wider."
    )
    if any(not each.decides for each in judgements):
        yield (
            "The exit code follows the primary metrics. --all-metrics lets the others decide as "
            "well, and --metric those that it names."
        )
    if not metrics:
        parts = listed([each for each in Quantity if each.traits.is_part])
        yield f"{parts} are parts of other times; they are judged only if --metric names them."
    yield from family_facts(judgements, rules)
    yield from _how_to_narrow(matchups, judgements)
    if has_means:
        yield "Intervals of means over cases are at 95 %, and not corrected."


def _how_to_narrow(matchups: Sequence[Matchup], judgements: Sequence[Judgement]) -> Iterator[str]:
    """Suggest a sweep where times of one run are undecided, with its cost."""
    plans = [each.base.result.header.plan for each in matchups if each.one_run]
    causes = {
        each.cause
        for each in judgements
        if each.verdict is Verdict.INCONCLUSIVE and not each.advisory
    }
    if plans and Cause.TOO_FEW in causes:
        yield (
            "Too few rounds or instances for intervals: sweep with --set plan.rounds=200 --set "
            "plan.instances=8, which takes as many times longer to set up and to check as there "
            "are more instances."
        )
    if plans and Cause.WIDE_INTERVAL in causes:
        plan = plans[0]
        finer: dict[str, float] = {"instances": 4 * plan.instances}
        if plan.precision_percent:
            finer["precision_percent"] = plan.precision_percent / 2
        else:
            finer["rounds"] = 4 * plan.rounds
        finer["case_seconds"] = 4 * plan.case_seconds
        options = " ".join(f"--set plan.{name}={value:g}" for name, value in finer.items())
        yield (
            "INCONCLUSIVE times have intervals that are too wide. To narrow them, sweep again with "
            f"more instances and rounds, such as {options}: that takes up to four times the memory "
            "and the time, and halves them at best. Fewer cases or operations make the correction "
            "for many tests milder, too."
        )


def family_facts(judgements: Sequence[Judgement], rules: Rules) -> Iterator[str]:
    """Explain the families of tests behind corrected verdicts on times, and the intervals."""
    sizes: dict[bool, set[int]] = {False: set(), True: set()}
    of_sums = False
    for each in judgements:
        if each.evidence is not None:
            is_sum = bool(metric_named(each.metric).terms)
            of_sums = of_sums or is_sum
            sizes[each.exploratory] |= set() if is_sum else {each.evidence.tests}
    launching, staging = (
        listed([each for each in Quantity if each.traits.decides is decides])
        for decides in (Decides.LAUNCHING, Decides.STAGING)
    )
    uncorrected = rules.correction is Correction.NONE
    likewise = "not corrected either" if uncorrected else "corrected likewise, but apart"
    primary = f"{launching}, or {staging} for staging alone and without a GPU"
    yield (
        f"alpha is {rules.alpha:g} over the primary metrics ({primary}) of all operations and "
        f"cases of one side{_tests(sizes[False])}, {_CORRECTIONS[rules.correction]}. All other "
        f"times are exploratory{_tests(sizes[True])}: they are {likewise}. Counts are exact."
    )
    if of_sums:
        yield (
            "A sum of metrics is exploratory too; its tests over all operations and cases of one "
            "side are corrected together, apart from other metrics."
        )
    level = "" if uncorrected else ", at the corrected level (SAME: not corrected)"
    yield f"Intervals are the ones behind the verdicts{level}."


def _tests(sizes: Collection[int]) -> str:
    """Return ` (30 tests)`, ` (28 to 30 tests)`, or nothing."""
    if not sizes:
        return ""
    low, high = min(sizes), max(sizes)
    count = str(low) if low == high else f"{low} to {high}"
    return f" ({count} {'test' if high == 1 else 'tests'})"
