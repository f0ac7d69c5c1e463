"""Made-up machines: rounds with noise of known kinds, to see how often a gate errs.

Every kind has white noise in each sample; what else it has is said in `Noise`. The sizes are large
on purpose: of the order of a shared machine, not of a quiet one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bt_bench.results import DEVICE_TICK_US, FloatArray, Subject
from bt_bench.runs.selfcheck.resampled import ARMS
from bt_bench.suites.block_tables import operations as ops

SAMPLES = 16  # per process-round and subject; the process-round's value is their median

SAMPLE_NOISE = (0.004, 0.04)  # of one sample, relative: the quietest and the loudest subject
DRIFT = 0.02  # of a slow drift that all share, and of one that each subject has for itself
DRIFT_KEPT = 0.8  # correlation of the drift in neighbouring process-rounds
PROCESS_NOISE = 0.01  # of a process as a whole, and of each subject in it
MODE_SHARE, MODE_SHIFT = 0.3, 0.02  # of processes with an unlucky layout, and what it costs
SPIKE_SHARE, SPIKE_SIZE = 0.03, 0.3  # of process-rounds per subject, mean relative size
STALL_SHARE, STALL_SIZE = 0.01, 0.2  # the same of whole processes
BASE_US = (3.0, 300.0)


class Noise(StrEnum):
    """What the noise of a made-up machine consists of, beside white noise."""

    WHITE = "white"  # nothing
    AUTOCORRELATED = "autocorrelated"  # a drift through the process-rounds
    PER_PROCESS = "per-process"  # each process is fast or slow for as long as it lives
    SPIKY = "spiky"  # rare process-rounds are far slower


@dataclass(frozen=True)
class SyntheticPopulation:
    """A made-up machine with cases of many lengths and noises, half of them device times.

    Args:
        noise: its kind.
        cases: how many.
    """

    noise: Noise
    cases: int = 60

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """One metric of every case: host and device time in turn."""
        metrics = ("host_us", "gpu_us")
        return tuple(
            Subject(ops.STEP, f"case{index:02}", "fused", metrics[index % 2])
            for index in range(self.cases)
        )

    def draw(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """Values [rounds, arms, subjects] of one gate, in microseconds."""
        drawn: FloatArray = np.median(self.draw_samples(generator, rounds), axis=-1)
        return drawn

    def draw_samples(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """The same before medians are taken: [rounds, arms, subjects, samples]."""
        shape = (rounds, len(ARMS), self.cases)
        # Loud and quiet, long and short in all combinations, the same in every gate.
        places = np.linspace(0, 1, self.cases)
        loud = np.random.default_rng(0).permutation(places)
        base = BASE_US[0] * (BASE_US[1] / BASE_US[0]) ** places
        scale = SAMPLE_NOISE[0] * (SAMPLE_NOISE[1] / SAMPLE_NOISE[0]) ** loud
        logs = generator.normal(size=(*shape, SAMPLES)) * scale[:, None]
        logs += self._of_processes(generator, shape)[..., None]
        values = base[:, None] * np.exp(logs)
        device = np.arange(self.cases) % 2 == 1
        values[:, :, device] = np.round(values[:, :, device] / DEVICE_TICK_US) * DEVICE_TICK_US
        return values

    def _of_processes(
        self, generator: np.random.Generator, shape: tuple[int, int, int]
    ) -> FloatArray:
        """What all samples of a process-round have in common, on the log scale: [*shape]."""
        if self.noise is Noise.AUTOCORRELATED:
            return _drift(generator, shape)
        whole = (*shape[:2], 1)  # one value for all subjects of a process
        logs: FloatArray = np.zeros(shape)
        if self.noise is Noise.PER_PROCESS:
            logs += generator.normal(size=whole) * PROCESS_NOISE
            logs += generator.normal(size=shape) * PROCESS_NOISE
            logs += (generator.random(shape) < MODE_SHARE) * MODE_SHIFT
        if self.noise is Noise.SPIKY:
            for size, share, mean in (
                (shape, SPIKE_SHARE, SPIKE_SIZE),
                (whole, STALL_SHARE, STALL_SIZE),
            ):
                spikes = np.log1p(generator.exponential(mean, size))
                logs += np.where(generator.random(size) < share, spikes, 0.0)
        return logs


def _drift(generator: np.random.Generator, shape: tuple[int, int, int]) -> FloatArray:
    """An autoregressive drift through the process-rounds in the order that they ran in."""
    rounds, arms, cases = shape
    # One column more: the drift that all subjects share.
    steps = generator.normal(size=(rounds * arms, cases + 1)) * DRIFT
    level = np.empty_like(steps)
    level[0] = steps[0]
    for index in range(1, len(steps)):
        level[index] = DRIFT_KEPT * level[index - 1] + (1 - DRIFT_KEPT**2) ** 0.5 * steps[index]
    in_time = (level[:, :-1] + level[:, -1:]).reshape(shape)
    order = generator.permuted(np.tile(np.arange(arms), (rounds, 1)), axis=1)
    drawn: FloatArray = np.take_along_axis(in_time, order[:, :, None], axis=1)
    return drawn
