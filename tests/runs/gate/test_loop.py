"""The loop: looks, final verdicts, alpha, and what a gate hands on."""

from __future__ import annotations

import math

import pytest
from support.gate_rounds import HEAD, Replay, make_rounds, subject, without

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.base.errors import UsageError
from bt_bench.results.gate.rounds import GateRound, SeriesKey
from bt_bench.runs.gate.loop import GateOutcome, GatePlan, Look, run_gate

HOST = subject()
QUIET, LOUD = subject("quiet"), subject("loud")
LOOKS = (12, 20, 32)


def gate(source, *subjects: SeriesKey, looks=LOOKS, on_look=None, **options) -> GateOutcome:
    plan = GatePlan(subjects or (HOST,), looks=looks, **options)
    return run_gate(source, plan, Rules(), on_look=on_look)


def test_a_clear_case_ends_at_the_first_look() -> None:
    source = Replay(make_rounds(32, {HOST: (100.0, 100.0, 100.0)}))
    outcome = gate(source)
    assert source.asked == [12]
    assert (outcome.rounds, outcome.looks) == (12, 1)
    assert outcome.judged.count(Verdict.SAME) == 1


def test_while_undecided_rounds_are_added_to_those_there_are() -> None:
    source = Replay(make_rounds(40, {HOST: (100.0, 102.0, 100.0)}))
    outcome = gate(source)
    assert source.asked == [12, 8, 12]
    assert (outcome.rounds, outcome.looks) == (32, 3)
    (finding,) = outcome.judged.judgements
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert finding.evidence.observations == 32


@pytest.mark.parametrize(("noise", "shown"), [(0.01, True), (0.03, False)])
def test_what_is_measured_apart_is_the_same_once_its_noise_leaves_room(
    noise: float, shown: bool
) -> None:
    """What copies differ by may hide a difference, so it keeps a gate going; no look is added."""
    rounds = make_rounds(64, {HOST: (100.0, 100.0, 100.0)}, noise=noise)
    outcome = gate(Replay(rounds), apart={"fused": "it sets a flag"})
    (finding,) = outcome.judged.judgements
    assert finding.verdict is (Verdict.SAME if shown else Verdict.INCONCLUSIVE)
    assert 12 < outcome.rounds <= 32
    (first,) = gate(Replay(rounds[:12]), apart={"fused": "it sets a flag"}).judged.judgements
    assert first.evidence.needed > first.evidence.margin.share


def test_a_regression_that_was_found_is_final() -> None:
    """A head that is slower in the first rounds only, beside a case that keeps the gate going."""
    slower = make_rounds(12, {QUIET: (100.0, 110.0, 100.0), LOUD: (100.0, 102.0, 100.0)})
    equal = make_rounds(20, {QUIET: (100.0, 90.0, 100.0), LOUD: (100.0, 102.0, 100.0)}, seed=1)
    outcome = gate(Replay(slower + equal), QUIET, LOUD)
    quiet, loud = outcome.judged.judgements
    assert outcome.rounds == 32
    assert quiet.verdict is Verdict.SLOWER
    assert "after 12 rounds" in quiet.detail
    assert "after 32 rounds" in loud.detail


def test_looks_share_alpha() -> None:
    *alphas, kept = GatePlan((HOST,), looks=LOOKS).alphas(0.01)
    assert sum(alphas) + kept == pytest.approx(0.01)
    assert kept == pytest.approx(0.002)
    assert list(alphas) == sorted(alphas)
    assert alphas[0] == pytest.approx(0.008 * (12 / 32) ** 2)
    assert GatePlan((HOST,), looks=(16,), limit=16).alphas(0.05) == (0.05, 0.0)


def noisy(noise: float, count: int = 100) -> list[GateRound]:
    """Rounds of a figure that is neither shown to be slower nor to be the same."""
    return make_rounds(count, {HOST: (100.0, 102.0, 100.0)}, noise=noise, seed=4)


def test_each_look_spends_its_part() -> None:
    """Also the one after the last planned one, which is here since noise hides a slowdown."""
    seen = []
    rounds = noisy(0.03)
    plan = GatePlan((HOST,), looks=LOOKS)
    run_gate(Replay(rounds), plan, Rules(), on_look=lambda look: seen.append(look.judgements[0]))
    assert [finding.evidence.alpha for finding in seen] == list(plan.alphas(0.01))


def test_noise_that_may_hide_a_slowdown_has_one_more_look() -> None:
    seen: list[Look] = []
    source = Replay(noisy(0.018))
    outcome = gate(source, looks=(12, 24), on_look=seen.append)
    assert source.asked[:2] == [12, 12]
    assert len(source.asked) == 3
    assert 24 < outcome.rounds < 48
    assert outcome.rounds % 4 == 0
    assert [look.last for look in seen] == [False, False, True]
    power = outcome.judged.power
    assert not power.falls_short
    assert power.worst_share < 0.05
    assert outcome.judged.facts[0] == power.sentence


def test_a_quiet_gate_has_no_look_more() -> None:
    outcome = gate(Replay(noisy(0.006)), looks=(12, 24))
    assert (outcome.rounds, outcome.looks) == (24, 2)


@pytest.mark.parametrize(("limit", "rounds"), [(None, 48), (36, 36), (24, 24)])
def test_that_look_has_a_limit(limit: int | None, rounds: int) -> None:
    outcome = gate(Replay(noisy(0.05)), looks=(12, 24), limit=limit)
    assert outcome.rounds == rounds
    power = outcome.judged.power
    assert power.falls_short
    assert (power.figures, power.short) == (1, 1)
    assert power.sentence not in outcome.judged.facts


def test_what_was_measured_apart_calls_for_no_look_more() -> None:
    outcome = gate(Replay(noisy(0.05)), looks=(12, 24), apart={"fused": "it sets a flag"})
    assert outcome.rounds == 24
    assert outcome.judged.power.noise.startswith("that base and head of fused were measured in")
    assert any("measured apart" in fact for fact in outcome.judged.facts)


def test_what_disturbed_the_machine_is_told() -> None:
    stranger = "another process was on the GPU in 3 of 24 rounds"
    plan = GatePlan((HOST,), looks=(12, 24))
    outcome = run_gate(Replay(noisy(0.05)), plan, Rules(), disturbances=lambda: [stranger])
    assert f" Beside that, {stranger}. " in outcome.judged.power.sentence


def test_a_limit_below_the_last_look_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 20 rounds, but the last look is after 32"):
        GatePlan((HOST,), looks=LOOKS, limit=20)
    with pytest.raises(UsageError, match="the slowdown to find is 0; expected more than 0"):
        GatePlan((HOST,), detect=0)


def test_a_source_without_more_rounds_ends_the_gate() -> None:
    seen: list[Look] = []
    rounds = make_rounds(15, {HOST: (100.0, 102.0, 100.0)})
    outcome = gate(Replay(rounds), on_look=seen.append)
    assert (outcome.rounds, outcome.looks) == (15, 2)
    assert [look.last for look in seen] == [False, True]
    assert seen[-1].open == 1
    assert seen[-1].count(Verdict.INCONCLUSIVE) == 1


def test_what_is_told_of_a_look() -> None:
    seen: list[Look] = []
    values = {HOST: (100.0, 102.0, 100.0), LOUD: (100.0, 130.0, 100.0)}
    gate(Replay(make_rounds(32, values)), HOST, LOUD, on_look=seen.append)
    counts = "1 SLOWER, 1 INCONCLUSIVE"
    ahead = "; 1 open; by round 32 it should find a slowdown of 2.67 % in half of the figures"
    assert seen[0].text.startswith(f"after 12 rounds: {counts}{ahead}, and of 2.67 % in the ")
    assert seen[1].text.startswith(f"after 20 rounds: {counts}; 1 open; by round 32 it should")
    assert seen[2].text == f"after 32 rounds: {counts}"


def test_without_any_round_everything_is_missing() -> None:
    outcome = gate(Replay([]))
    assert outcome.judged.judgements[0].verdict is Verdict.MISSING


def test_a_missing_case_does_not_keep_the_gate_going() -> None:
    rounds = make_rounds(32, dict.fromkeys((QUIET, LOUD), (100.0, 100.0, 100.0)), noise=0.002)
    outcome = gate(Replay(without(rounds, HEAD, LOUD, 0)), QUIET, LOUD)
    assert outcome.rounds == 12
    assert [finding.verdict for finding in outcome.judged.judgements] == [
        Verdict.SAME,
        Verdict.MISSING,
    ]


def test_what_the_rounds_have_beyond_the_plan_is_left_alone() -> None:
    rounds = make_rounds(12, dict.fromkeys((QUIET, LOUD), (100.0, 100.0, 100.0)))
    assert len(gate(Replay(rounds), QUIET).judged.judgements) == 1


def test_judgements() -> None:
    fused, plain = subject(variant="fused"), subject(variant="plain")
    other = subject("other", variant="fused")
    levels = {fused: (100.0, 110.0, 100.0), plain: (50.0, 50.0, 50.0), other: (20.0, 20.0, 20.0)}
    plan = GatePlan((fused, plain, other), "main", "topic", LOOKS, "Gate of topic")
    judged = run_gate(Replay(make_rounds(32, levels)), plan, Rules()).judged
    assert (judged.title, judged.base) == ("Gate of topic", "main")
    assert judged.others == ("fused@topic", "plain@topic")
    slower = judged.judgements[0]
    assert (slower.base, slower.other, slower.unit) == ("fused@main", "fused@topic", "us")
    assert (slower.key, slower.metric) == ("step/case", "host_us")
    assert slower.ratio == pytest.approx(1.1, rel=0.01)
    # Beyond the margin, and the interval shows it.
    assert 1 + slower.evidence.margin.share < slower.low < slower.ratio < slower.high
    overall = {(o.metric, o.base, o.other): o for o in judged.overall}
    of_fused = overall["host_us", "fused@main", "fused@topic"]
    ratios = [j.ratio for j in judged.judgements if j.other == "fused@topic" and j.ratio]
    assert (of_fused.cases, of_fused.ratio) == (2, pytest.approx(math.prod(ratios) ** 0.5))
    assert of_fused.low < of_fused.ratio
    of_plain = overall["host_us", "plain@main", "plain@topic"]
    assert (of_plain.cases, of_plain.low, of_plain.high) == (1, None, None)


def test_an_interval_within_the_margin_goes_with_same() -> None:
    judged = gate(Replay(make_rounds(32, {HOST: (100.0, 100.5, 100.0)}))).judged
    (judgement,) = judged.judgements
    assert judgement.verdict is Verdict.SAME
    assert 1 / 1.02 < judgement.low < judgement.high < 1.02


def test_judgements_without_a_ratio() -> None:
    rounds = without(make_rounds(12, {HOST: (100.0, 100.0, 100.0)}), HEAD, HOST, 0)
    judged = gate(Replay(rounds)).judged
    (judgement,) = judged.judgements
    assert (judgement.verdict, judgement.cause) == (Verdict.MISSING, Cause.NO_CASE)
    assert (judgement.ratio, judgement.low, judgement.high) == (None, None, None)
    assert judged.overall == ()


@pytest.mark.parametrize("looks", [(), (2, 5), (12, 12), (20, 12)])
def test_looks_must_ascend(looks: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="expected ascending numbers from 3 on"):
        GatePlan((HOST,), looks=looks)


def test_a_gate_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to judge"):
        GatePlan(())
    with pytest.raises(UsageError, match="both called 'main'"):
        GatePlan((HOST,), "main", "main")
