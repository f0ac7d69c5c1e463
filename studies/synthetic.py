"""Synthetic machines: rounds with known kinds of noise, to measure how often verdicts err.

`SyntheticPopulation` draws the rounds of gates, and `draw_run` those of a run for `compare`.

In a gate, the arms of a round share a process, or each has its own. Processes differ by `PROCESS`,
far more than arms that share one. Every kind has white noise in each sample; `Noise` lists the
additional noise, and `Sizes` its size. The sizes are large on purpose: typical of a shared machine,
not of a quiet one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bt_bench.results import DEVICE_TICK_US, FloatArray, SeriesKey, metric_named
from bt_bench.runs.selfcheck.resampled import ARMS
from bt_bench.suites.block_tables import operations as ops

SAMPLES = 16  # per arm of a round and subject

PROCESS = 0.25  # spread of whole processes; each subject in one varies by half as much
DRIFT_KEPT = 0.8  # correlation of the drift in neighbouring arms
MODE_SHARE = 0.3  # share of arms with an unlucky layout
SPIKE_SIZE, STALL_SIZE = 0.3, 0.2  # mean relative slowdowns
BASE_US = (3.0, 300.0)

# A run for `compare`: its arms are base, other, and an unchanged copy of the base.
RUN_ARMS, RUN_CASES, RUN_ROUNDS, RUN_INSTANCES = 3, 10, 96, 8
RUN_METRICS = ("host_us", "gpu_us", "step_us", "pipelined_us", "event_us", "event_us/busy")
RUN_BASE_US = (4.0, 100.0)  # times of the shortest and the longest case
RUN_WHITE = (0.005, 0.05)  # relative noise of a round: the quietest and the loudest figure
RUN_DRIFT, RUN_DRIFT_KEPT = 0.03, 0.9  # shared by all arms; each arm's own is a third as large
RUN_INSTANCE = 0.01  # of an arm in an instance, due to the placement of its buffers
RUN_SPIKE_SHARE, RUN_SPIKE_SIZE = 0.03, 0.5


@dataclass(frozen=True)
class Sizes:
    """The sizes of noises, relative to a time.

    Args:
        sample: noise of a sample, for the quietest and for the loudest subject.
        drift: size of a slow drift that all subjects share, and of each subject's own drift.
        arm: noise of an arm as a whole, and of each subject in it.
        mode: cost of an unlucky layout.
        spikes: share of a subject's arms that are far slower.
        stalls: share of whole arms that are far slower.
    """

    sample: tuple[float, float]
    drift: float
    arm: float
    mode: float
    spikes: float
    stalls: float


OF_PAIRED = Sizes(
    sample=(0.018, 0.034), drift=0.005, arm=0.003, mode=0.005, spikes=0.01, stalls=0.005
)
"""Sizes for arms that share a process; white noise makes ratios vary by 0.7 to 1.3 % by round."""

OF_APART = Sizes(sample=(0.004, 0.04), drift=0.02, arm=0.01, mode=0.02, spikes=0.03, stalls=0.01)
"""Sizes for arms in separate processes, beside `PROCESS`."""


class Noise(StrEnum):
    """The noise of a synthetic machine, beside white noise."""

    WHITE = "white"  # nothing
    AUTOCORRELATED = "autocorrelated"  # a drift through the arms
    PER_COPY = "per-copy"  # in each process (instance of a run), each copy is fast or slow
    SPIKY = "spiky"  # rare arms are far slower


def value_of(samples: FloatArray) -> FloatArray:
    """Return a gate's value of the samples [..., samples] of an arm.

    This is the mean of the faster three quarters, since disturbances only ever add time.
    """
    kept = samples.shape[-1] * 3 // 4 or 1
    value: FloatArray = np.sort(samples, axis=-1)[..., :kept].mean(axis=-1)
    return value


@dataclass(frozen=True)
class SyntheticPopulation:
    """A synthetic machine with cases of many lengths and noises, half of them device times.

    Args:
        noise: kind of noise.
        cases: number of cases.
        shares: whether the arms of a round share a process.
    """

    noise: Noise
    cases: int = 60
    shares: bool = True

    @property
    def apart(self) -> dict[str, str]:
        """The variants that are measured apart, with the reason."""
        return {} if self.shares else {"fused": "it is made up so"}

    @property
    def sizes(self) -> Sizes:
        """The sizes of its noises."""
        return OF_PAIRED if self.shares else OF_APART

    @property
    def subjects(self) -> tuple[SeriesKey, ...]:
        """One metric of every case: host and device time in turn."""
        metrics = ("host_us", "gpu_us")
        return tuple(
            SeriesKey(ops.STEP, f"case{index:02}", "fused", metrics[index % 2])
            for index in range(self.cases)
        )

    def draw(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """Draw the values [rounds, arms, subjects] of one gate, in microseconds."""
        return value_of(self.draw_samples(generator, rounds))

    def draw_samples(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """Draw the samples [rounds, arms, subjects, samples] of one gate, in microseconds."""
        shape = (rounds, len(ARMS), self.cases)
        # Loud and quiet, long and short in all combinations, the same in every gate.
        places = np.linspace(0, 1, self.cases)
        loud = np.random.default_rng(0).permutation(places)
        base = BASE_US[0] * (BASE_US[1] / BASE_US[0]) ** places
        quietest, loudest = self.sizes.sample
        scale = quietest * (loudest / quietest) ** loud
        logs = generator.normal(size=(*shape, SAMPLES)) * scale[:, None]
        logs += self._of_arms(generator, shape)[..., None]
        if self.shares:
            logs += self._of_processes(generator, shape)[..., None]
        values = base[:, None] * np.exp(logs)
        device = np.arange(self.cases) % 2 == 1
        # Launches are not in step with the clock: each begins at a random point of a tick.
        start = generator.random(values[:, :, device].shape)
        ticks = np.floor(values[:, :, device] / DEVICE_TICK_US + start)
        values[:, :, device] = ticks * DEVICE_TICK_US
        return values

    def _of_processes(
        self, generator: np.random.Generator, shape: tuple[int, int, int]
    ) -> FloatArray:
        """Draw the noise shared by the arms of a round, on the log scale: [rounds, 1, subjects]."""
        rounds, _, cases = shape
        whole: FloatArray = generator.normal(size=(rounds, 1, 1)) * PROCESS
        return whole + generator.normal(size=(rounds, 1, cases)) * PROCESS / 2

    def _of_arms(self, generator: np.random.Generator, shape: tuple[int, int, int]) -> FloatArray:
        """Draw the noise that all samples of an arm share, on the log scale: [*shape]."""
        sizes = self.sizes
        if self.noise is Noise.AUTOCORRELATED:
            return _drift(generator, shape, sizes.drift)
        whole = (*shape[:2], 1)  # one value for all subjects of an arm
        logs: FloatArray = np.zeros(shape)
        if self.noise is Noise.PER_COPY:
            logs += generator.normal(size=whole) * sizes.arm
            logs += generator.normal(size=shape) * sizes.arm
            logs += (generator.random(shape) < MODE_SHARE) * sizes.mode
        if self.noise is Noise.SPIKY:
            logs += _spikes(generator, shape, sizes.spikes, SPIKE_SIZE)
            logs += _spikes(generator, whole, sizes.stalls, STALL_SIZE)
        return logs


def draw_run(noise: Noise, generator: np.random.Generator) -> FloatArray:
    """Draw the times of a run in µs [arms, metrics, cases, rounds]; arms differ only by noise."""
    shape = (RUN_ARMS, len(RUN_METRICS), RUN_CASES, RUN_ROUNDS)
    base = np.geomspace(*RUN_BASE_US, RUN_CASES)[:, None]
    loud = np.geomspace(*RUN_WHITE, len(RUN_METRICS) * RUN_CASES)
    loud = np.random.default_rng(0).permutation(loud).reshape(len(RUN_METRICS), RUN_CASES, 1)
    logs = generator.normal(size=shape) * loud
    if noise is Noise.AUTOCORRELATED:
        for drifting, size in (((1, *shape[1:]), RUN_DRIFT), (shape, RUN_DRIFT / 3)):
            steps = generator.normal(size=drifting) * size
            logs += np.moveaxis(_drifting(np.moveaxis(steps, -1, 0), RUN_DRIFT_KEPT), 0, -1)
    if noise is Noise.PER_COPY:
        of_instances = generator.normal(size=(*shape[:3], RUN_INSTANCES)) * RUN_INSTANCE
        logs += of_instances[..., run_instances()]
    if noise is Noise.SPIKY:
        logs += _spikes(generator, shape, RUN_SPIKE_SHARE, RUN_SPIKE_SIZE)
    times: FloatArray = base * np.exp(logs)
    for index, name in enumerate(RUN_METRICS):
        if tick := metric_named(name).tick:
            times[:, index] = np.round(times[:, index] / tick) * tick
    return times


def run_instances() -> list[int]:
    """Return the instance of each round of a run; instances take turns, two rounds each."""
    return [index // 2 % RUN_INSTANCES for index in range(RUN_ROUNDS)]


def _drift(generator: np.random.Generator, shape: tuple[int, int, int], size: float) -> FloatArray:
    """Draw an autoregressive drift through the arms of all rounds, in a random order of arms."""
    rounds, arms, cases = shape
    # One column more: the drift that all subjects share.
    steps = generator.normal(size=(rounds * arms, cases + 1)) * size
    level = _drifting(steps, DRIFT_KEPT)
    in_time = (level[:, :-1] + level[:, -1:]).reshape(shape)
    order = generator.permuted(np.tile(np.arange(arms), (rounds, 1)), axis=1)
    drawn: FloatArray = np.take_along_axis(in_time, order[:, :, None], axis=1)
    return drawn


def _drifting(steps: FloatArray, kept: float) -> FloatArray:
    """Return autoregressive levels over the first axis, with the correlation `kept`."""
    level = np.empty_like(steps)
    level[0] = steps[0]
    for index in range(1, len(steps)):
        level[index] = kept * level[index - 1] + (1 - kept**2) ** 0.5 * steps[index]
    return level


def _spikes(
    generator: np.random.Generator, shape: tuple[int, ...], share: float, mean: float
) -> FloatArray:
    """Draw rare slowdowns on the log scale: a share of values is slower by `mean` on average."""
    spikes = np.log1p(generator.exponential(mean, shape))
    return np.where(generator.random(shape) < share, spikes, 0.0)
