"""What a gate could have found: the figure of each test, and the sentence about all of them."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats
from support.gate_rounds import CONTROL, HEAD, make_rounds, subject

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.power import (
    Sought,
    common_noise,
    forecast,
    is_short,
    power_of,
    rounds_needed,
)
from bt_bench.analysis.rounds import Ledger, judge_rounds
from bt_bench.analysis.verdicts import Judgement, Power, Verdict
from bt_bench.results.gate.rounds import GateRound, SeriesKey

RULES = Rules(margin=0.015)
ONE, TWO, THREE = (subject(name) for name in ("one", "two", "three"))


def judged(rounds: list[GateRound], *subjects: SeriesKey, **options) -> list[Judgement]:
    ledger = Ledger(subjects)
    ledger.add(rounds)
    return judge_rounds(ledger, RULES, {}, 0.006, **options)


def power(rounds: list[GateRound], *subjects: SeriesKey, detect: float = 0.05, **options) -> Power:
    ledger = Ledger(subjects)
    ledger.add(rounds)
    judgements = judge_rounds(ledger, RULES, {}, 0.006, apart=options.get("apart"))
    found = power_of(judgements, Sought(detect, 0.015), ledger.changes(subjects), **options)
    assert found is not None
    return found


def test_the_slowdown_that_a_test_finds() -> None:
    rounds = make_rounds(24, dict.fromkeys((ONE, TWO), (100.0, 100.0, 100.0)), noise=0.01)
    (one, _) = judged(rounds, ONE, TWO)
    evidence = one.evidence
    reach = scipy_stats.t.ppf(1 - 0.006 / 2, evidence.degrees)
    reach += scipy_stats.t.ppf(0.99, evidence.degrees)
    expected = math.expm1(math.log1p(0.015) + reach * evidence.error)
    assert evidence.detectable == pytest.approx(expected)
    assert forecast(evidence, 1, 0.006) == evidence.detectable


def test_it_is_found_with_99_percent() -> None:
    """Of many gates, each slowed by what it says itself."""
    generator = np.random.default_rng(0)
    found, gates = 0, 400
    for _ in range(gates):
        seed = int(generator.integers(1 << 30))
        rounds = make_rounds(24, {ONE: (100.0, 100.0, 100.0)}, noise=0.01, seed=seed)
        (equal,) = judged(rounds, ONE)
        for taken in rounds:
            taken.values[HEAD][ONE] *= 1 + equal.evidence.detectable  # type: ignore[index]
        found += judged(rounds, ONE)[0].verdict is Verdict.SLOWER
    assert found / gates == pytest.approx(0.99, abs=0.015)
    assert found < gates  # an exaggeration would find all


def test_forecasts() -> None:
    rounds = make_rounds(48, {ONE: (100.0, 100.0, 100.0)}, noise=0.02)
    (early,), (late,) = judged(rounds[:24], ONE), judged(rounds, ONE)
    late_limit = late.evidence.detectable
    assert forecast(early.evidence, 2, 0.006) == pytest.approx(late_limit, rel=0.2)
    asked = early.evidence.detectable
    assert rounds_needed(early.evidence, asked, 0.006) == pytest.approx(1)
    assert rounds_needed(early.evidence, 0.03, 0.006) > 1
    assert rounds_needed(early.evidence, 0.015, 0.006) == math.inf


@pytest.mark.parametrize(
    ("detect", "base_us", "share"),
    [(0.05, 100, 0.05), (0.05, 1.5, 0.1), (0.03, 100, 0.03), (0.03, 2, 0.05), (0.1, 1, 0.3)],
)
def test_short_figures_are_asked_for_a_time(detect, base_us, share) -> None:
    (one,) = judged(make_rounds(12, {ONE: (base_us,) * 3}, noise=1e-4), ONE)
    assert Sought(detect, 0.015).of(one) == pytest.approx(share, rel=1e-3)


def test_a_margin_of_its_own_comes_on_top() -> None:
    ledger = Ledger((ONE,))
    ledger.add(make_rounds(12, {ONE: (100.0, 100.0, 100.0)}))
    (one,) = judge_rounds(ledger, RULES, {ONE: 0.075}, 0.006)
    assert Sought(0.05, 0.015).of(one) == pytest.approx(0.05 + 0.06)


def test_what_suffices() -> None:
    rounds = make_rounds(24, dict.fromkeys((ONE, TWO), (100.0, 100.0, 100.0)))
    found = power(rounds, ONE, TWO)
    assert (found.falls_short, found.figures, found.short, found.noise) == (False, 2, 0, "")
    assert found.sentence.startswith(
        "A slowdown of 5 % or 0.15 µs, whichever is more, of any figure would have been found with "
        "99 %. Most is needed by host_us of fused in step/"
    )


def test_what_is_decided_does_not_fall_short() -> None:
    rounds = make_rounds(24, {ONE: (100.0, 400.0, 100.0)}, noise=0.1)
    (slower,) = judged(rounds, ONE)
    assert slower.verdict is Verdict.SLOWER
    assert not is_short(slower, Sought())
    assert is_short(replace(slower, verdict=Verdict.INCONCLUSIVE), Sought())
    assert not is_short(replace(slower, verdict=Verdict.SAME), Sought())


def test_one_noisy_figure() -> None:
    rounds = make_rounds(24, dict.fromkeys((ONE, TWO), (100.0, 100.0, 100.0)))
    loud = make_rounds(24, {THREE: (100.0, 100.0, 100.0)}, noise=0.1)
    for quiet, noisy in zip(rounds, loud, strict=True):
        for arm, values in noisy.values.items():
            quiet.values[arm].update(values)  # type: ignore[attr-defined]
    found = power(rounds, ONE, TWO, THREE)
    assert (found.figures, found.short) == (3, 1)
    assert found.worst == "host_us of fused in step/three"
    assert found.worst_share > 0.05 > found.median_share
    assert found.noise == "noise of that figure alone"
    assert found.sentence.startswith(
        "This gate could not have found a slowdown of 5 % or 0.15 µs, whichever is more, with 99 % "
        "in 1 of 3 figures; the worst is host_us of fused in step/three, where it would have "
    )


def test_how_many_rounds_would_do_is_told_where_rounds_help() -> None:
    found = power(make_rounds(24, {ONE: (100.0, 100.0, 100.0)}, noise=0.05), ONE)
    told = re.search(r"About (\d+) rounds would do, by --max-rounds (\d+), if", found.sentence)
    assert told[1] == told[2]
    more = make_rounds(int(told[1]), {ONE: (100.0, 100.0, 100.0)}, noise=0.05)
    assert power(more, ONE).worst_share < 0.06
    loud = power(make_rounds(24, {ONE: (100.0, 100.0, 100.0)}, noise=0.9), ONE)
    assert "More rounds would not do: up to 2000 are possible" in loud.sentence
    assert "--detect" in loud.sentence


def test_noise_in_all_figures() -> None:
    levels = {subject(f"case{index}"): (100.0, 100.0, 100.0) for index in range(30)}
    found = power(make_rounds(24, levels, noise=0.05), *levels)
    assert found.noise == "noise in all figures, which have none of it in common"
    assert found.common == pytest.approx(0, abs=0.2)


def test_noise_of_a_copy_as_a_whole() -> None:
    levels = {subject(f"case{index}"): (100.0, 100.0, 100.0) for index in range(30)}
    rounds = make_rounds(24, levels, noise=0.01)
    generator = np.random.default_rng(1)
    for taken in rounds:
        factor = math.exp(0.05 * generator.normal())
        for one in levels:
            taken.values[HEAD][one] *= factor  # type: ignore[index]
    found = power(rounds, *levels)
    assert found.common is not None
    assert found.common > 0.7
    assert found.noise.startswith("noise that all figures of a process have in common (")


def test_a_biased_control() -> None:
    rounds = make_rounds(24, {ONE: (100.0, 100.0, 100.0)}, noise=0.005)
    for taken in rounds:
        taken.values[CONTROL][ONE] *= 1.04  # type: ignore[index]
    assert power(rounds, ONE).noise.startswith("that copies of unchanged code certainly differ")


def test_too_few_rounds_find_nothing() -> None:
    found = power(make_rounds(2, {ONE: (100.0, 100.0, 100.0)}), ONE)
    assert (found.short, found.worst_share) == (1, math.inf)
    assert "on which nothing can be said yet" in found.sentence


def test_common_noise_needs_figures_and_rounds() -> None:
    generator = np.random.default_rng(0)
    assert common_noise(generator.normal(size=(1, 24))) is None
    assert common_noise(generator.normal(size=(20, 5))) is None
    assert common_noise(np.zeros((20, 24))) is None
    assert common_noise(np.full((20, 24), math.nan)) is None
    alone = generator.normal(size=(40, 400))
    assert common_noise(alone) == pytest.approx(0, abs=0.03)
    shared = 0.7**0.5 * alone + 0.3**0.5 * generator.normal(size=400)
    assert common_noise(shared) == pytest.approx(0.3, abs=0.1)
