"""Made-up machines have the noise that their kind says, and no difference between arms."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import OF_APART, PROCESS, Noise, SyntheticPopulation, value_of

from bt_bench.results.run.metrics import DEVICE_TICK_US

CASES = 6


def logs(noise: Noise, rounds: int = 3000) -> np.ndarray:
    """Log values [rounds, arms, subjects] around their medians."""
    population = SyntheticPopulation(noise, CASES, shares=False)
    values = np.log(population.draw(np.random.default_rng(0), rounds))
    return values - np.median(values, axis=(0, 1))


@pytest.mark.parametrize("noise", Noise)
def test_arms_are_equal(noise: Noise) -> None:
    values = np.median(logs(noise), axis=0)
    assert values == pytest.approx(0, abs=0.004)


@pytest.mark.parametrize("noise", Noise)
def test_device_times_tick(noise: Noise) -> None:
    population = SyntheticPopulation(noise, CASES)
    samples = population.draw_samples(np.random.default_rng(0), 5)
    ticks = samples / DEVICE_TICK_US
    device = [subject.metric == "gpu_us" for subject in population.subjects]
    assert sum(device) == CASES / 2
    assert ticks[:, :, device] == pytest.approx(np.round(ticks[:, :, device]))
    host = ticks[:, :, ~np.array(device)]
    assert (host != np.round(host)).mean() > 0.9


def test_drift_goes_through_rounds_and_cancels_within() -> None:
    values = logs(Noise.AUTOCORRELATED).mean(axis=2)
    level = values.mean(axis=1)
    assert np.corrcoef(level[:-1], level[1:])[0, 1] > 0.4
    ratios = values[:, 1] - values[:, 0]
    assert ratios.std() < values.std()
    assert abs(np.corrcoef(ratios[:-1], ratios[1:])[0, 1]) < 0.1
    assert values.std() == pytest.approx(OF_APART.drift, rel=0.3)


def test_white_noise_has_no_memory() -> None:
    level = logs(Noise.WHITE).mean(axis=(1, 2))
    assert abs(np.corrcoef(level[:-1], level[1:])[0, 1]) < 0.1


def test_processes_differ_more_than_their_samples_say() -> None:
    population = SyntheticPopulation(Noise.PER_COPY, CASES, shares=False)
    samples = np.log(population.draw_samples(np.random.default_rng(0), 500))
    between = np.median(samples, axis=-1).std(axis=0).mean()
    within = samples.std(axis=-1).mean() / np.sqrt(samples.shape[-1])
    assert between > 2 * within


def test_spikes_are_rare_and_slow() -> None:
    far = logs(Noise.SPIKY) > 0.1
    assert 0.01 < far.mean() < 0.06
    assert not (logs(Noise.SPIKY) < -0.1).any()
    assert not (logs(Noise.WHITE) > 0.1).any()


@pytest.mark.parametrize("noise", Noise)
def test_processes_differ_and_that_cancels_where_arms_share_one(noise: Noise) -> None:
    population = SyntheticPopulation(noise, CASES)
    values = np.log(population.draw(np.random.default_rng(0), 1000))
    assert values.std(axis=0) == pytest.approx(PROCESS * 1.25**0.5, rel=0.1)
    ratios = values[:, 1] - (values[:, 0] + values[:, 2]) / 2
    sizes = np.median(np.abs(ratios), axis=0) * 1.4826
    assert (sizes > 0.003).all()
    assert (sizes < 0.02).all()
    assert population.apart == {}
    assert list(SyntheticPopulation(noise, shares=False).apart) == ["fused"]


def test_a_value_is_of_the_faster_samples() -> None:
    assert value_of(np.array([4.0, 1.0, 100.0, 1.0])) == 2
    assert value_of(np.array([[3.0]])) == 3
