"""The selfcheck passes with the gate's rules, and fails with rules that are broken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.tiny_gates import Quiet
from synthetic import Noise, SyntheticPopulation

from bt_bench.analysis import deciding, judging, rounds
from bt_bench.analysis.deciding import Correction, Rules
from bt_bench.analysis.statistics.corrections import Corrected
from bt_bench.errors import UsageError
from bt_bench.runs.gate.loop import DEFAULT_LOOKS
from bt_bench.runs.selfcheck.rates import Detection, Rate, Selfcheck, Slowdown, selfcheck, spelled

CASES = 12
GATES = 12


def check(rules: Rules | None = None, noise: Noise = Noise.PER_PROCESS) -> Selfcheck:
    population = SyntheticPopulation(noise, CASES)
    return selfcheck(population, rules or Rules(), GATES, 0, DEFAULT_LOOKS, Quiet())


def kept(result: Selfcheck) -> dict[str, bool]:
    return {promise.name: promise.kept for promise in result.promises()}


@pytest.mark.parametrize("noise", Noise)
def test_the_gate_keeps_its_promises(noise: Noise) -> None:
    result = check(noise=noise)
    assert kept(result) == {"red": True, "found_2": True, "found_3": True}
    assert (result.red.times, result.red.trials) == (0, GATES)
    by_label = {detection.slowdown.label: detection for detection in result.detections}
    assert by_label["+1 %"].found.times == 0  # below every margin
    assert by_label["3 x margin"].found.times == GATES
    assert by_label["3 x margin"].beyond[2].trials == GATES
    assert by_label["2 x margin"].beyond[3].trials == 0
    assert all(0.02 <= margin < 0.25 for margin in result.margins)


def test_a_gate_that_cries_wolf_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without margins and correction, as tests against zero have it."""
    monkeypatch.setattr(judging, "SPREAD_FACTOR", 0.0)
    broken = Rules(margin=0.0, alpha=0.5, correction=Correction.NONE)
    result = check(broken)
    assert not kept(result)["red"]
    assert result.slower.times > 0


def test_a_gate_that_never_fails_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(probabilities: Sequence[float], alpha: float) -> Corrected:
        return Corrected([1.0] * len(probabilities), [alpha] * len(probabilities))

    monkeypatch.setattr(deciding, "CORRECTIONS", {Correction.HOLM: never})
    result = check()
    assert kept(result) == {"red": True, "found_2": False, "found_3": False}


def test_spikes_widen_no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = check(noise=Noise.SPIKY)
    monkeypatch.setattr(rounds, "TRIMMED_SHARE", 0.0)
    means = check(noise=Noise.SPIKY)
    assert means.margins[2] > 2 * trimmed.margins[2]


def test_invalid_counts_as_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LEAST_ERROR", 1.0)  # every clock seems to stand still
    result = check()
    assert result.red.times == GATES
    assert result.slower.times == 0
    assert kept(result) == {"red": False, "found_2": False, "found_3": False}
    assert result.margins == ()


def test_the_same_seed_gives_the_same_rates() -> None:
    assert check() == check()


def test_progress_and_gates() -> None:
    progress = Quiet()
    population = SyntheticPopulation(Noise.WHITE, 2)
    selfcheck(population, Rules(), 25, 0, (12,), progress)
    assert (progress.totals, progress.done) == (["25 gates"], 25)
    assert len(progress.phases) == 13  # after every second gate, and after the last
    with pytest.raises(UsageError, match="the number of gates is 0; expected 1 or more"):
        selfcheck(population, Rules(), 0, 0, (12,), Quiet())


def test_rates_are_spelled_with_their_intervals() -> None:
    assert spelled(Rate(2, 1000)) == "0.20 % (0.05 to 0.73 %) of 1000"
    assert spelled(Rate(0, 0)) == "not tried"
    assert Rate(0, 0).share is None


def test_a_promise_is_judged_by_the_worse_count() -> None:
    """Larger slowdowns are found more often, and must not cover up for those just at the limit."""

    def detection(slowdown: Slowdown, found: Rate, *beyond: Rate) -> Detection:
        return Detection(slowdown, found, dict(zip((2, 3), beyond, strict=True)))

    tried = (
        detection(Slowdown(2, of_margin=True), Rate(94, 100), Rate(94, 100), Rate(0, 0)),
        detection(Slowdown(3, of_margin=True), Rate(100, 100), Rate(100, 100), Rate(100, 100)),
        detection(Slowdown(0.1), Rate(20, 100), Rate(18, 20), Rate(9, 10)),
    )
    result = Selfcheck(Rate(1, 100), Rate(0, 100), tried, (), 32, 0)
    assert (result.worst(2), result.worst(3)) == (Rate(94, 100), Rate(109, 110))
    assert kept(result) == {"red": True, "found_2": False, "found_3": True}
    untried = Selfcheck(Rate(0, 0), Rate(0, 0), (), (), 32, 0)
    assert kept(untried) == {"red": False, "found_2": False, "found_3": False}


def test_slowdowns() -> None:
    assert Slowdown(0.03).share(0.1) == 0.03
    assert Slowdown(2, of_margin=True).share(0.1) == pytest.approx(0.2)
    assert (Slowdown(0.1).label, Slowdown(3, of_margin=True).label) == ("+10 %", "3 x margin")


def test_populations_are_not_changed_by_slowing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Once:
        subjects = SyntheticPopulation(Noise.WHITE, 2).subjects
        values = SyntheticPopulation(Noise.WHITE, 2).draw(np.random.default_rng(1), 12)

        def draw(self, generator: np.random.Generator, rounds: int) -> np.ndarray:
            return self.values

    before = Once.values.copy()
    selfcheck(Once(), Rules(), 2, 0, (12,), Quiet())
    np.testing.assert_array_equal(before, Once.values)
