"""Shards of a gate: together they raise as few false alarms as a whole one, and find as much."""

from __future__ import annotations

import numpy as np
import pytest
from support.factories import make_environment
from support.gate_rounds import Replay, make_rounds, subject
from support.tiny_gates import spec_of

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.verdicts import Verdict
from bt_bench.config import divide
from bt_bench.results import Asked, Recording, Tool
from bt_bench.results.gate.recording import RecordedSubject, Revision
from bt_bench.results.gate.rounds import GateArm
from bt_bench.runs.gate.loop import GatePlan, run_gate
from bt_bench.runs.gate.lost import Lost
from bt_bench.runs.gate.recorded import judge_recording, judging_of
from bt_bench.runs.gate.shards import JudgedShard, OwnShard, collected
from bt_bench.suites.block_tables import operations as ops

CASES = [f"case-{number}" for number in range(6)]
SHARDS = (CASES[:1], CASES[1:3], CASES[3:])
LOOKS, LIMIT = (6,), 6
ASKED = Asked(metrics=[], fail_on=[], require_power=False, time_equal=False, build=None, config={})


def judged_shards(levels, seed, alpha=0.01, noise=0.005, share_of=lambda own: own / len(CASES)):
    """Three gates of made-up rounds, each of which stops by itself."""
    rules = Rules(margin=0.015, alpha=alpha)
    shards = []
    for number, cases in enumerate(SHARDS, start=1):
        own = {subject(case): levels[case] for case in cases}
        plan = GatePlan(tuple(own), looks=LOOKS, limit=LIMIT, share=share_of(len(own)))
        rounds = make_rounds(LIMIT, own, noise, 10 * seed + number)
        outcome = run_gate(Replay(rounds), plan, rules)
        recording = Recording(
            created="2026-11-28T00:00:00+00:00",
            tool=Tool(version="0", command=[]),
            environment=make_environment("cpu"),
            config="made",
            arms={arm: Revision(label=arm.value) for arm in GateArm},
            judging=judging_of(plan, rules, {}),
            shard={"index": number, "count": 3, "cases": len(CASES), "division": "0"},
            asked=ASKED,
            subjects=[
                RecordedSubject(
                    operation=s.operation, case=s.case, variant="fused", metric=s.metric
                )
                for s in own
            ],
            rounds=[],
        )
        shards.append(JudgedShard(recording, outcome.judged, cases))
    return shards


def alarms(gates, **options):
    """The share of gates with any false alarm, where all figures are slower by just the margin."""
    levels = dict.fromkeys(CASES, (100.0, 101.5, 100.0))
    found = [
        collected(judged_shards(levels, seed, **options), CASES, ()).count(Verdict.SLOWER) > 0
        for seed in range(gates)
    ]
    return float(np.mean(found))


def test_shards_keep_the_alpha_of_the_whole_gate():
    """At the margin itself, where false alarms are likeliest; their number is binomial.

    Shards that know nothing of each other spend alpha three times, which is seen here.
    """
    alpha, gates = 0.3, 60
    deviation = (alpha * (1 - alpha) / gates) ** 0.5
    assert alarms(gates, alpha=alpha) <= alpha + 2 * deviation
    assert alarms(gates, alpha=alpha, share_of=lambda _: 1.0) > alpha + 2 * deviation


@pytest.mark.parametrize("slowed", CASES)
def test_a_regression_is_found_whichever_shard_has_it(slowed):
    levels = dict.fromkeys(CASES, (100.0, 100.0, 100.0)) | {slowed: (100.0, 105.0, 100.0)}
    shards = judged_shards(levels, 1)
    judged = collected(shards[::-1], CASES, ())
    assert [each.case for each in judged.judgements] == CASES
    assert {e.case: e.verdict for e in judged.judgements} == dict.fromkeys(CASES, Verdict.SAME) | {
        slowed: Verdict.SLOWER
    }
    assert {each for shard in shards for each in shard.judged.judgements} == {*judged.judgements}
    assert judged.power is not None
    assert judged.power.figures == len(CASES)
    assert judged.facts.count(judged.power.sentence) == 1
    (overall,) = judged.overall
    assert overall.cases == len(CASES)


def test_a_shard_that_finds_too_little_is_named():
    levels = dict.fromkeys(CASES, (100.0, 100.0, 100.0))
    shards = [*judged_shards(levels, 0)[:2], judged_shards(levels, 0, noise=0.3)[2]]
    judged = collected(shards, CASES, ())
    assert judged.power is not None
    assert judged.power.sentence.startswith("In shard 3/3: This gate could not have found")
    assert (judged.power.short, judged.power.figures) == (3, 6)
    assert "The same goes" not in judged.power.sentence


def test_the_worst_shard_speaks_for_all_that_find_too_little():
    levels = dict.fromkeys(CASES, (100.0, 100.0, 100.0))
    quiet, loud = (judged_shards(levels, 0, noise=noise) for noise in (0.2, 0.4))
    judged = collected([quiet[0], loud[1], quiet[2]], CASES, ())
    assert judged.power is not None
    told = judged.power.sentence
    assert told.startswith("In shard 2/3: This gate could not have found")
    assert told.count("could not have found") == 1
    assert told.endswith("from smaller slowdowns on, for shards 1/3 and 3/3.")
    assert judged.power.noise.startswith("in shard 2/3 ")


def test_a_shard_that_has_timed_nothing_is_no_part_of_the_rounds():
    """As one all of whose variants failed: its verdicts are in the report of the gate."""
    levels = dict.fromkeys(CASES, (100.0, 100.0, 100.0))
    first, *parts = (shard.recording for shard in judged_shards(levels, 0))
    parts = [first.model_copy(update={"subjects": [], "judging": None}), *parts]
    subjects = [each for part in parts for each in part.subjects]
    merged = first.model_copy(update={"subjects": subjects, "parts": parts, "shard": None})
    judged = judge_recording(merged)
    assert judged.subject.startswith("5 cases in 2 shards, ")
    assert not any("0 cases" in fact for fact in judged.facts)


def test_what_the_config_lost_is_told_by_one_shard():
    spec = spec_of(cases=("one", "two", "three", "five"))
    places = [
        *((ops.STAGE, name, "first") for name in ("one", "five")),
        *((ops.STAGE, "gone", name) for name in ("first", "second")),
    ]
    told = []
    for index in range(1, 5):
        own, division = divide(spec, index, 4)
        lost = OwnShard(division, ASKED).own_lost(Lost(tuple(places), ("a warning",)))
        assert lost.warnings == ("a warning",)
        cases = {case.name for case in own.cases}
        assert all(case in cases or case == "gone" for _, case, _ in lost.places)
        assert cases or not lost.places  # an empty shard runs no gate
        told += lost.places
    assert sorted(told) == sorted(places)
