"""Corrections for many tests, against other implementations and their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from bt_bench.analysis.statistics.corrections import (
    Corrected,
    benjamini_hochberg,
    holm,
    uncorrected,
)

PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=80)


@given(PROBABILITIES)
def test_benjamini_hochberg(probabilities: list[float]) -> None:
    expected = scipy_stats.false_discovery_control(probabilities)
    assert benjamini_hochberg(probabilities, 0.01).adjusted == pytest.approx(list(expected))


@given(PROBABILITIES, st.floats(0.001, 0.2))
def test_holm_rejects_as_its_definition_says(probabilities: list[float], alpha: float) -> None:
    rejected = {i for i, p in enumerate(holm(probabilities, alpha).adjusted) if p <= alpha}
    # As Holm wrote it: from the smallest on, until one is above alpha over what is left.
    expected: set[int] = set()
    for rank, index in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        if (len(probabilities) - rank) * probabilities[index] > alpha:
            break
        expected.add(index)
    assert rejected == expected


def test_corrections_of_nothing() -> None:
    assert holm([], 0.01) == Corrected([], [])
    assert benjamini_hochberg([], 0.01) == Corrected([], [])


@pytest.mark.parametrize("correct", [holm, benjamini_hochberg, uncorrected])
@pytest.mark.parametrize("place", range(4))
def test_a_probability_that_is_none_is_one_and_hides_no_other(correct: object, place: int) -> None:
    """Sorted, a NaN leaves the others in no order; each must keep what it has with a 1 instead."""
    others = [1e-12, 0.9, 0.5]
    with_nan = [*others[:place], math.nan, *others[place:]]
    with_one = [*others[:place], 1.0, *others[place:]]
    assert correct(with_nan, 0.01) == correct(with_one, 0.01)  # type: ignore[operator]
    assert correct(with_nan, 0.01).adjusted[place] == 1.0  # type: ignore[operator]
    assert min(correct(with_nan, 0.01).adjusted) < 1e-9  # type: ignore[operator]


@pytest.mark.parametrize("correct", [holm, benjamini_hochberg, uncorrected])
@given(probabilities=PROBABILITIES, alpha=st.floats(0.001, 0.2))
def test_levels_and_adjusted_probabilities_say_the_same(
    correct: object, probabilities: list[float], alpha: float
) -> None:
    """What the uncorrected probability is compared with decides as the adjusted one does."""
    found = correct(probabilities, alpha)  # type: ignore[operator]
    for probability, adjusted, level in zip(
        probabilities, found.adjusted, found.levels, strict=True
    ):
        assert 0 < level <= alpha * (1 + 1e-12)
        if adjusted != pytest.approx(alpha, rel=1e-9):  # beside alpha, rounding decides
            assert (probability <= level) == (adjusted <= alpha)


def test_levels_of_holm_by_hand() -> None:
    found = holm([0.5, 0.001, 0.004, 0.03], 0.02)
    # 0.001 at 0.02 / 4, 0.004 at 0.02 / 3, then 0.03 is above 0.02 / 2, and so is the rest.
    assert found.levels == pytest.approx([0.01, 0.005, 0.02 / 3, 0.01])


def test_levels_of_benjamini_hochberg_by_hand() -> None:
    found = benjamini_hochberg([0.5, 0.001, 0.009, 0.9], 0.02)
    # Two of four are rejected, at 2 * 0.02 / 4; the others would have to reach 3 * 0.02 / 4.
    assert found.levels == pytest.approx([0.015, 0.01, 0.01, 0.015])
