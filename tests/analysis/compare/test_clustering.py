"""Errors of medians whose rounds resemble each other within clusters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as oracle

from bt_bench.analysis.compare.estimating import BLOCKS
from bt_bench.analysis.statistics.clusters import Estimates, clustered_medians, less
from bt_bench.results.run.series import FloatArray


def _turns(rounds: int, instances: int) -> list[int]:
    return [index // 2 % instances for index in range(rounds)]


def test_by_hand() -> None:
    values = np.array([[1.0, 3.0, 2.0, 6.0, 5.0, 4.0]])
    found = clustered_medians(values, [0, 0, 1, 1, 2, 2], 3)  # instances are blocks here
    assert found.location.tolist() == [3.5]
    # Medians of clusters 2, 4 and 4.5: deviation 1.3229 / sqrt(3); twice its square less white.
    by_cluster = np.std([2.0, 4.0, 4.5], ddof=1) / np.sqrt(3)
    white = 1.4826 * 1.5 * np.sqrt(np.pi / 2 / 6)
    expected = max(np.sqrt(max(2 * by_cluster**2 - white**2, 0)), by_cluster)
    assert found.error.tolist() == pytest.approx([expected])
    assert (found.degrees, found.observations) == (2, 3)


def test_by_hand_where_what_is_subtracted_shows() -> None:
    """Long clusters that differ much: the error is larger than that of either kind of cluster."""
    clusters = [place // 8 for place in range(24)]  # instances are blocks here, too
    found = clustered_medians(np.array([[10.0 * cluster for cluster in clusters]]), clusters, 3)
    by_cluster = 10 / np.sqrt(3)
    white = 1.4826 * 10 * np.sqrt(np.pi / 2 / 24)
    assert found.error.tolist() == pytest.approx([np.sqrt(2 * by_cluster**2 - white**2)])
    assert found.error[0] > 1.2 * by_cluster


def test_late_rounds_do_not_move_the_location() -> None:
    values = np.array([[1.0, 2.0, 3.0, 2.0, 1.0, 90.0]])
    found = clustered_medians(values, [0, 0, 1, 1, 2, 2], 3)
    assert found.location.tolist() == [2.0]


@pytest.mark.parametrize(("rounds", "instances"), [(1, 1), (2, 2), (8, 2), (40, 1)])
def test_too_few(rounds: int, instances: int) -> None:
    assert clustered_medians(np.ones((2, rounds)), _turns(rounds, instances), BLOCKS) is None


def test_cases_do_not_mix() -> None:
    values = np.random.default_rng(1).normal(size=(5, 40))
    whole = clustered_medians(values, _turns(40, 8), BLOCKS)
    for index in range(5):
        alone = clustered_medians(values[index : index + 1], _turns(40, 8), BLOCKS)
        assert (alone.location[0], alone.error[0]) == (whole.location[index], whole.error[index])


def _rejections(noise: FloatArray, instances: list[int]) -> float:
    """How often no difference is taken for one, at 1 %."""
    found = clustered_medians(noise, instances, BLOCKS)
    assert found is not None
    return float(
        np.mean(oracle.t.sf(np.abs(found.location / found.error), found.degrees) * 2 < 0.01)
    )


@pytest.mark.parametrize("kind", ["white", "instances", "blocks"])
def test_no_difference_is_rarely_taken_for_one(kind: str) -> None:
    rng, count, rounds = np.random.default_rng(2), 4000, 48
    instances = _turns(rounds, 8)
    noise = rng.normal(size=(count, rounds))
    if kind == "instances":
        noise += 3 * rng.normal(size=(count, 8))[:, instances]
    if kind == "blocks":
        noise += 3 * rng.normal(size=(count, BLOCKS))[:, [r * BLOCKS // rounds for r in range(48)]]
    assert _rejections(noise, instances) < 0.02
    if kind != "white":  # what an interval of independent rounds would do
        white = 1.4826 * np.median(np.abs(noise - np.median(noise, axis=1)[:, None]), axis=1)
        naive = np.abs(np.median(noise, axis=1)) / (white * np.sqrt(np.pi / 2 / rounds))
        assert np.mean(naive > 2.68) > 0.2


def test_less() -> None:
    left = Estimates(np.array([3.0]), np.array([0.3]), 7, 8)
    right = Estimates(np.array([1.0]), np.array([0.4]), 2, 3)
    found = less(left, right)
    assert (found.location[0], found.error[0]) == (2.0, pytest.approx(0.5))
    assert (found.degrees, found.observations) == (2, 3)
