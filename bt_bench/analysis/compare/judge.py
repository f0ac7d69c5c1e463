"""The step from entries to verdicts: margins, families of tests, and the overall outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bt_bench.analysis.compare.between import add_host
from bt_bench.analysis.compare.comparability import (
    Labelled,
    crash_warnings,
    helper_warnings,
    refuse_differences,
)
from bt_bench.analysis.compare.entries import (
    WHOLE_CASE,
    Asked,
    Matchup,
    Pairing,
    first_named,
    metrics_in_order,
    sides_of,
)
from bt_bench.analysis.compare.estimating import Question, answer
from bt_bench.analysis.compare.facts import facts_of, partial_warnings
from bt_bench.analysis.compare.parts import compared_places
from bt_bench.analysis.compare.selection import Selection
from bt_bench.analysis.compare.self_checks import failed_self_checks
from bt_bench.analysis.compare.subject import subject_of
from bt_bench.analysis.deciding import Rules, not_comparable, without_new_paths
from bt_bench.analysis.judging import (
    Entry,
    Settled,
    judge_entries,
    margin_of,
    overall_ratios,
    systematic_of,
)
from bt_bench.analysis.verdicts import Judged, Judgement, Margin
from bt_bench.base import unit_text
from bt_bench.base.errors import UsageError
from bt_bench.results import Metric, is_sum, select, sums_in


@dataclass(frozen=True)
class Criteria:
    """The scope and the strictness of a comparison.

    Args:
        rules: margins, alpha, and the correction for many tests.
        metrics: patterns of metric names; without any, all are compared, and the primary ones
            decide.
        all_metrics: all metrics decide, also exploratory ones.
        margins: by name, the margins of cases that set their own, as shares.
        ignore_device: accept another device or other versions of torch, CUDA or Triton.
        ignore_helpers: accept other helpers in use; see `bt_bench.results.Helpers`.
        ignore_plan: accept another measurement plan.
        allow_partial: accept results of runs that did not finish.
        floors: by pattern of metric names, differences that count as none, in the metric's unit; if
            several match, the last counts.
        selection: the cases whose verdicts are shown and count.
    """

    rules: Rules = field(default_factory=Rules)
    metrics: Sequence[str] = ()
    all_metrics: bool = False
    margins: Mapping[str, float] = field(default_factory=dict)
    ignore_device: bool = False
    ignore_helpers: bool = False
    ignore_plan: bool = False
    allow_partial: bool = False
    floors: Mapping[str, float] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)


def judge(
    matchups: Sequence[Matchup],
    criteria: Criteria = Criteria(),
    *,
    base: str | None = None,
    others: Sequence[str] | None = None,
) -> Judged:
    """Judge all metrics of all cases of all matchups; each matchup has its own families of tests.

    Args:
        matchups: pairs of sides to compare, at least one.
        criteria: how to compare them.
        base: label of the common base; default: the label of the first matchup's base.
        others: labels of the others; default: the labels of the matchups.

    Raises:
        NotComparableError: if sides are partial or differ in a way that is not allowed.
        UsageError: for one variant of one run twice, and for a pattern that matches no metric, or
            no case.
    """
    warnings = [
        *partial_warnings(matchups, allow_partial=criteria.allow_partial),
        *(warning for each in matchups for warning in _comparable(each, criteria)),
        *helper_warnings({label: side.result.header for label, side in sides_of(matchups).items()}),
    ]
    # All are judged, since the selection must not change the families of tests.
    entries, not_paired = entries_of(matchups, criteria)
    chosen = _chosen(entries, criteria.metrics)
    floors = list(_floor_facts(entries, criteria.floors))
    for entry in entries:
        entry.decides = not entry.exploratory or criteria.all_metrics or bool(criteria.metrics)
    rules, selection = criteria.rules, criteria.selection
    judged = judge_entries(entries, rules.correction, rules.alpha)
    of_cases, of_others = selection.of_cases(judged)
    selected, others_selected = (
        [each for each in group if each.metric in chosen] for group in (of_cases, of_others)
    )
    not_judged = list(_not_judged(of_cases, selected))
    judgements, left_out = without_new_paths(selected)
    not_listed, _ = without_new_paths(others_selected)
    not_selected = selection.left_out(of_cases, of_others, not_listed)
    overall = tuple(overall_ratios(judgements))
    facts = facts_of(
        matchups,
        rules,
        criteria.metrics,
        judgements,
        has_means=bool(overall),
        has_own_margins=bool(criteria.margins),
    )
    base = base or matchups[0].base.label
    others = others or [each.other.label for each in matchups]
    return Judged(
        title=f"{', '.join(others)} against {base}",
        base=base,
        others=tuple(others),
        judgements=tuple(judgements),
        overall=overall,
        facts=(*facts, *floors),
        warnings=tuple(dict.fromkeys(warnings)),
        subject=subject_of(matchups, len({each.case for each in judgements})),
        scope=(*not_selected, *not_paired, *left_out, *not_judged),
        self_checks=tuple(failed_self_checks(matchups)),
    )


def entries_of(matchups: Sequence[Matchup], criteria: Criteria) -> tuple[list[Entry], list[str]]:
    """Return all entries to judge, with estimates and margins, and facts on the rest.

    Args:
        matchups: pairs of sides to compare.
        criteria: how to compare them; of the metrics that are shown only sums make a difference
            here.
    """
    pairings = [Pairing(each, criteria.floors) for each in matchups]
    sums = sums_in(criteria.metrics)
    asked = _in_order([each for pairing in pairings for each in pairing.entries(sums)])
    _answer_all(asked, criteria)
    facts = [fact for pairing in pairings for fact in pairing.facts()]
    return [each.entry for each in asked], facts


def not_compared(judged: Judged, wholes: Mapping[str, str]) -> dict[str, list[Judgement]]:
    """Return sides with nothing compared, or not each time that decides, with the reasons.

    Such a comparison must never pass.

    Args:
        judged: the comparison.
        wholes: by label of a side, the whole that it belongs to; see `Matched.wholes`.
    """
    found: dict[str, list[Judgement]] = {whole: [] for whole in wholes.values()}
    for judgement in judged.judgements:
        if judgement.other in wholes:
            found[wholes[judgement.other]].append(judgement)
    reasons = {whole: not_comparable(judgements) for whole, judgements in found.items()}
    return {whole: why for whole, why in reasons.items() if why is not None}


def _comparable(matchup: Matchup, criteria: Criteria) -> Iterator[str]:
    """Yield warnings; raise if the two must not be compared."""
    if matchup.base.absent or matchup.other.absent:
        return  # nothing to compare, and nothing that could differ
    base, other = (
        Labelled(side.label, side.result.header) for side in (matchup.base, matchup.other)
    )
    if matchup.one_run and base.result.variant.name == other.result.variant.name:
        raise UsageError(
            f"{base.label} and {other.label} are the same result: variant "
            f"{base.result.variant.name!r} of run {base.result.run_id!r}; expected two variants "
            "of a run, or results of two runs"
        )
    for side in (base, other):
        yield from crash_warnings(side)
    for base, other in compared_places(matchup):
        yield from refuse_differences(
            base,
            other,
            ignore_device=criteria.ignore_device,
            ignore_helpers=criteria.ignore_helpers,
            ignore_plan=criteria.ignore_plan,
        )


def _in_order(asked: Sequence[Asked]) -> list[Asked]:
    """Sort entries by case, in the order of the cases: all sides of a case are together."""
    places: dict[tuple[str, str], int] = {}
    for each in asked:
        places.setdefault((each.entry.operation, each.entry.case), len(places))
    return sorted(asked, key=lambda each: places[each.entry.operation, each.entry.case])


def _metrics(entries: Sequence[Entry]) -> dict[str, Metric]:
    """Return the metrics of entries by name, in order, without judgements on whole cases."""
    found = {entry.metric.name: entry.metric for entry in entries}
    found.pop(WHOLE_CASE.name, None)
    return {metric.name: metric for metric in metrics_in_order(found)}


def _chosen(entries: Sequence[Entry], patterns: Sequence[str]) -> set[str]:
    """Return the names of the requested metrics, including judgements on whole cases."""
    found = _metrics(entries)
    if not patterns:
        return {WHOLE_CASE.name, *(name for name, metric in found.items() if not metric.is_part)}
    names = list(found)
    sums = {metric.name for metric in sums_in(patterns)}
    if names and (lost := sums - set(names)):
        raise UsageError(
            f"--metric {', '.join(sorted(lost))}: no case has a round with all of its terms"
        )
    others = [pattern for pattern in patterns if not is_sum(pattern)]
    selected = select(names, others) if names and others else []
    return {WHOLE_CASE.name, *selected, *sums}


def _floor_facts(entries: Sequence[Entry], floors: Mapping[str, float]) -> Iterator[str]:
    """Report the floors set by `--floor`; raise for a pattern that matches no metric."""
    found = _metrics(entries)
    for pattern, floor in floors.items():
        (metric, *_) = (found[name] for name in select(list(found), [pattern], "--floor"))
        amount = f"{floor:g} {unit_text(metric.unit)}"
        yield f"The floor of {pattern} is {amount}: a smaller change counts as none."


def _not_judged(everything: Sequence[Judgement], selected: Sequence[Judgement]) -> Iterator[str]:
    """Report cases without a requested metric; otherwise they would disappear silently."""
    left = {(each.other, each.key) for each in selected}
    lost: dict[str, dict[str, None]] = {}
    for each in everything:
        if (each.other, each.key) not in left:
            lost.setdefault(each.other, {})[each.key] = None
    for label, found in lost.items():
        yield (
            f"Nothing of {label} is judged in {first_named([*found])}: none of its metrics there "
            "was asked for."
        )


def _answer_all(asked: Sequence[Asked], criteria: Criteria) -> None:
    """Answer all questions, grouped by metric and its tick, and set the margins."""
    by_metric: dict[tuple[str, float], list[tuple[Asked, Question]]] = {}
    for each in asked:
        if each.question is not None:
            metric = each.entry.metric
            by_metric.setdefault((metric.name, metric.tick), []).append((each, each.question))
    for group in by_metric.values():
        metric = group[0][0].entry.metric
        answers = answer(metric, [question for _, question in group])
        for (each, _), found in zip(group, answers, strict=True):
            entry = each.entry
            entry.base_value, entry.other_value = found.base_value, found.other_value
            entry.outcome = found.outcome
            if not isinstance(found.outcome, Settled):
                entry.margin = _margin(each, criteria)
                entry.systematic = systematic_of(each.spread)
    add_host(asked)


def _margin(asked: Asked, criteria: Criteria) -> Margin:
    entry, rules = asked.entry, criteria.rules
    configured = criteria.margins.get(entry.case, rules.margin)
    if not asked.matchup.one_run:
        configured = max(criteria.margins.get(entry.case, 0.0), rules.advisory_margin)
    return margin_of(entry.metric, entry.base_value, configured)
