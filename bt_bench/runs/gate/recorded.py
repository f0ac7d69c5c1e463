"""The gate's verdicts on a recording, without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bt_bench.analysis import (
    DEFAULT_DETECT,
    GATE_MARGIN,
    Judged,
    Rules,
    limit_facts,
    machine_text,
)
from bt_bench.base import format_share
from bt_bench.base.errors import counted
from bt_bench.results import (
    GateArm,
    GateRound,
    Judging,
    Recording,
)
from bt_bench.runs.gate.devices import device_warnings, devices_facts
from bt_bench.runs.gate.loop import MIN_ROUNDS, GatePlan, run_gate
from bt_bench.runs.gate.shards import JudgedShard, collected, shard_scope


def judging_of(plan: GatePlan, rules: Rules, margins: Mapping[str, float]) -> Judging:
    """Return a gate's rules for its recording.

    Args:
        plan: its looks.
        rules: margin and alpha.
        margins: of single cases, as shares.
    """
    return Judging(
        margin=rules.margin,
        alpha=rules.alpha,
        looks=list(plan.looks),
        most_rounds=plan.most_rounds,
        detect=plan.detect,
        margins=dict(margins),
        share=plan.share,
    )


def judge_recording(recording: Recording) -> Judged:
    """Judge the rounds of a recording as its gate did, by the rules that it has.

    Without rules, all rounds are judged at one look, by the default margin and alpha. Shards of a
    merged one that have timed anything are judged each by itself, as they were.
    """
    if timed := [part for part in recording.parts if part.subjects]:
        shards = [JudgedShard(part, judge_recording(part), _cases(part)) for part in timed]
        return collected(shards, _cases(recording), recording.missing)
    subjects = tuple(recording.table())
    base, head = _labels(recording)
    title = f"Gate {recording.config}: {head} against {base}"
    rounds = recording.gate_rounds()
    judging = recording.judging or _default(len(rounds))
    judged = Judged(title, base, (head,), (), ())
    if subjects:
        plan = GatePlan(
            subjects,
            base,
            head,
            looks=tuple(judging.looks),
            title=title,
            apart=recording.measured_apart(),
            detect=judging.detect,
            limit=judging.most_rounds,
            share=judging.share,
        )
        thresholds = {
            subject: judging.margins[subject.case]
            for subject in subjects
            if subject.case in judging.margins
        }
        rules = Rules(margin=judging.margin, alpha=judging.alpha)
        judged = run_gate(_Recorded(rounds), plan, rules, thresholds).judged
    environment = recording.environment
    environments = [environment, *recording.others]
    cases = len(_cases(recording))
    return replace(
        judged,
        subject=f"{counted(cases, 'case')} {machine_text(environment)}",
        facts=(
            *_revisions(recording),
            *limit_facts(environment),
            *devices_facts(environments, {taken.device for taken in rounds}),
            *judged.facts,
        ),
        warnings=(
            *dict.fromkeys(text for each in environments for text in device_warnings(each)),
            *([] if recording.judging else [_without_rules(judging)]),
        ),
        scope=(
            *([] if recording.shard is None else [shard_scope(recording.shard)]),
            "A recording has the times of both revisions: launches, and cases that one of them "
            "lacks or fails, are in the report of its gate.",
        ),
    )


def _cases(recording: Recording) -> list[str]:
    return list(dict.fromkeys(subject.case for subject in recording.table()))


def _default(rounds: int) -> Judging:
    looks = max(rounds, MIN_ROUNDS)
    alpha = Rules().alpha
    return Judging(
        margin=GATE_MARGIN, alpha=alpha, looks=[looks], most_rounds=looks, detect=DEFAULT_DETECT
    )


def _without_rules(judging: Judging) -> str:
    return (
        "the recording does not have the rules of a gate: all rounds are judged at one look here, "
        f"by a margin of {format_share(judging.margin)} and an alpha of {judging.alpha:g}, so "
        "verdicts may differ from those of its gate"
    )


def _labels(recording: Recording) -> tuple[str, str]:
    """Return the labels of base and head; a recording of equal code has one for both."""
    base = recording.arms[GateArm.BASE].label
    revision = recording.arms.get(GateArm.HEAD)
    head = "head" if revision is None else revision.label
    return base, f"{head} (head)" if head == base else head


def _revisions(recording: Recording) -> list[str]:
    return [
        f"{arm.value.capitalize()} is {revision.label}, commit {revision.commit[:12]}"
        f"{' with changes' if revision.dirty else ''}."
        for arm, revision in recording.arms.items()
        if revision.commit is not None and arm is not GateArm.CONTROL
    ]


class _Recorded:
    """The rounds of a recording, in their order."""

    def __init__(self, rounds: list[GateRound]) -> None:
        self._left = rounds

    def take(self, count: int) -> list[GateRound]:
        taken, self._left = self._left[:count], self._left[count:]
        return taken
