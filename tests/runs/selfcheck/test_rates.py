"""The selfcheck passes with the gate's rules, and fails with rules that are broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from support.judgements import judgement
from support.tiny_gates import Quiet
from synthetic import Noise, SyntheticPopulation

from bt_bench.analysis import deciding, judging, rounds
from bt_bench.analysis.deciding import Correction, Rules
from bt_bench.analysis.statistics.corrections import Corrected
from bt_bench.analysis.verdicts import Evidence, Margin, Systematic
from bt_bench.base.errors import UsageError
from bt_bench.runs.selfcheck.rates import (
    SAID,
    Detection,
    Rate,
    Selfcheck,
    Slowdown,
    SlowdownSize,
    plan_for,
    selfcheck,
    spelled,
)

CASES = 12
GATES = 12
PAIRED = {"red", "found_5", "found_3", "found_said", "margin"}
APART = {"red", "found_2_margins", "found_3_margins"}


def check(
    rules: Rules | None = None, noise: Noise = Noise.WHITE, *, shares: bool = True
) -> Selfcheck:
    population = SyntheticPopulation(noise, CASES, shares)
    rules = rules or Rules(margin=0.015)
    return selfcheck(population, rules, GATES, 0, plan_for(population), Quiet())


def kept(result: Selfcheck) -> dict[str, bool]:
    return {promise.name: promise.kept for promise in result.promises()}


def kept_by(result: Selfcheck) -> set[str]:
    return {name for name, is_kept in kept(result).items() if is_kept}


@pytest.mark.parametrize("noise", Noise)
def test_the_gate_keeps_its_promises(noise: Noise) -> None:
    result = check(noise=noise)
    assert set(kept(result)) == PAIRED
    # Twelve gates are too few for the others, which take rates of 95 and of 98 of a hundred.
    assert kept_by(result) >= {"red", "found_5", "margin"}
    assert all(each.found.times >= GATES - 1 for each in result.detections if each.slowdown == SAID)
    assert (result.red.times, result.red.trials) == (0, GATES)
    by_label = {detection.slowdown.label: detection for detection in result.detections}
    assert by_label["+1 %"].found.times == 0  # below every margin
    assert by_label["+10 %"].found.times == GATES
    assert by_label["+10 %"].able.trials == GATES
    assert by_label["the gate's own detection limit"].able.trials == GATES
    assert sum(rate.trials for rate in by_label["+1 %"].metrics.values()) == GATES
    assert result.margins[:3] == (0.015, 0.015, 0.015)
    assert result.long_margin == 0.015


@pytest.mark.parametrize("noise", Noise)
def test_the_gate_keeps_its_promises_where_all_was_measured_apart(noise: Noise) -> None:
    result = check(noise=noise, shares=False)
    assert kept(result) == dict.fromkeys(APART, True)
    by_label = {detection.slowdown.label: detection for detection in result.detections}
    assert by_label["3 x margin"].found.times == GATES
    assert by_label["3 x margin"].beyond[2].trials == GATES
    assert by_label["2 x margin"].beyond[3].trials == 0
    assert all(0.015 <= margin < 0.25 for margin in result.margins)
    assert result.long_margin is None


def test_a_gate_that_cries_wolf_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without margins and correction, as tests against zero have it."""
    monkeypatch.setattr(judging, "SPREAD_FACTOR", 0.0)
    monkeypatch.setattr(rounds, "PAIRED", replace(rounds.PAIRED, floor_us=0.0))
    result = check(Rules(margin=0.0, alpha=0.5, correction=Correction.NONE))
    assert not kept(result)["red"]
    assert result.slower.times > 0


def test_a_gate_that_never_fails_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(probabilities: Sequence[float], alpha: float) -> Corrected:
        return Corrected([1.0] * len(probabilities), [1e-90 * alpha] * len(probabilities))

    monkeypatch.setattr(deciding, "CORRECTIONS", {Correction.HOLM: never})
    assert kept_by(check()) == {"red", "margin"}
    assert kept_by(check(shares=False)) == {"red"}


def test_a_gate_that_promises_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "POWER", 0.6)
    found = {each.slowdown: each.found for each in check(noise=Noise.PER_COPY).detections}
    assert found[SAID].times < GATES


def test_a_margin_of_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PAIRED", replace(rounds.PAIRED, certain=False))
    monkeypatch.setattr(judging, "SPREAD_FACTOR", 12.0)
    result = check(noise=Noise.PER_COPY)
    assert not kept(result)["margin"]


def test_spikes_widen_no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = check(noise=Noise.SPIKY, shares=False)
    monkeypatch.setattr(rounds, "APART", replace(rounds.APART, trimmed=0.0))
    means = check(noise=Noise.SPIKY, shares=False)
    assert means.margins[2] > 2 * trimmed.margins[2]


def test_invalid_counts_as_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LEAST_ERROR", 1.0)  # every clock seems to stand still
    result = check()
    assert result.red.times == GATES
    assert result.slower.times == 0
    assert kept_by(result) == set()
    assert result.margins == ()


def test_the_same_seed_gives_the_same_rates() -> None:
    assert check() == check()


def test_progress_and_gates() -> None:
    progress = Quiet()
    population = SyntheticPopulation(Noise.WHITE, 2)
    plan = plan_for(population, (12,))
    selfcheck(population, Rules(), 25, 0, plan, progress)
    assert (progress.totals, progress.done) == (["25 gates"], 25)
    assert len(progress.phases) == 13  # after every second gate, and after the last
    with pytest.raises(UsageError, match="the number of gates is 0; expected 1 or more"):
        selfcheck(population, Rules(), 0, 0, plan, Quiet())


def test_rates_are_spelled_with_their_intervals() -> None:
    assert spelled(Rate(2, 1000)) == "0.20 % (0.05 to 0.73 %) of 1000"
    assert spelled(Rate(0, 0)) == "not tried"
    assert Rate(0, 0).share is None


def test_a_promise_is_judged_by_the_worse_count() -> None:
    """Larger slowdowns are found more often, and must not cover up for those just at the limit."""

    def detection(slowdown: Slowdown, found: Rate, *beyond: Rate) -> Detection:
        by_factor = dict(zip((2, 3), beyond, strict=True))
        return Detection(slowdown, True, found, Rate(0, 0), by_factor)

    tried = (
        detection(Slowdown(2, SlowdownSize.OF_MARGIN), Rate(94, 100), Rate(94, 100), Rate(0, 0)),
        detection(
            Slowdown(3, SlowdownSize.OF_MARGIN), Rate(100, 100), Rate(100, 100), Rate(100, 100)
        ),
        detection(Slowdown(0.1), Rate(20, 100), Rate(18, 20), Rate(9, 10)),
    )
    result = Selfcheck(Rate(1, 100), Rate(0, 100), tried, (), 32, 0)
    assert (result.worst(2), result.worst(3)) == (Rate(94, 100), Rate(109, 110))
    assert kept(result) == {"red": True, "found_2_margins": False, "found_3_margins": True}
    untried = Selfcheck(Rate(0, 0), Rate(0, 0), (), (), 32, 0)
    assert kept(untried) == dict.fromkeys(PAIRED, False)


def test_promises_are_about_all_gates_and_say_what_the_gates_said() -> None:
    """A gate that says it cannot find a slowdown has not kept the promise that it is found."""
    asked = Detection(
        Slowdown(0.05, SlowdownSize.ASKED), False, Rate(98, 100), Rate(90, 90), {2: Rate(0, 0)}
    )
    result = Selfcheck(Rate(1, 100), Rate(0, 100), (asked,), (), 32, 0, 0.02)
    assert kept(result) == {
        **{"red": True, "found_5": False, "found_3": False, "found_said": False, "margin": True},
    }
    (promise,) = (each for each in result.promises() if each.name == "found_5")
    assert promise.promise == "slower by 5 % or 0.15 µs: at least 99% are found"
    assert "of gates that said they would: 100.00 % (95.91 to 100.00 %) of 90" in promise.found


def test_slowdowns() -> None:
    margin, systematic = Margin(0.015, 0.01), Systematic(copies=0.1)
    numbers = dict.fromkeys(("p_slower", "p_faster", "adjusted_slower", "adjusted_faster"), 1.0)
    numbers |= dict.fromkeys(("estimate", "log_low", "log_high", "confidence"), 0.0)
    evidence = Evidence(
        observations=12,
        error=1,
        degrees=9,
        margin=margin,
        systematic=systematic,
        alpha=0.01,
        tests=1,
        detectable=0.2,
        **numbers,
    )
    one = judgement(base_value=2.0, evidence=evidence)
    shares = {
        Slowdown(0.03): 0.03,
        Slowdown(0.03, SlowdownSize.ASKED): 0.05,
        Slowdown(2, SlowdownSize.OF_MARGIN): 0.2,
        SAID: 0.2,
    }
    for slowdown, share in shares.items():
        assert slowdown.share(one) == pytest.approx(share)
    assert [each.label for each in shares] == [
        *("+3 %", "3 % or 0.1 µs", "2 x margin", "the gate's own detection limit"),
    ]
    assert Slowdown(0.1).share(judgement()) == 0.1
    assert Slowdown(2, SlowdownSize.OF_MARGIN).share(judgement()) is None


def test_populations_are_not_changed_by_slowing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Once:
        subjects = SyntheticPopulation(Noise.WHITE, 2).subjects
        values = SyntheticPopulation(Noise.WHITE, 2).draw(np.random.default_rng(1), 24)
        apart: ClassVar[dict[str, str]] = {}

        def draw(self, generator: np.random.Generator, rounds: int) -> np.ndarray:
            return self.values

    before = Once.values.copy()
    selfcheck(Once(), Rules(), 2, 0, plan_for(Once(), (12,)), Quiet())
    np.testing.assert_array_equal(before, Once.values)
