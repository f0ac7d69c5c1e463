"""Replays a window with all arms side by side, and collects raw samples per round and step."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bt_bench.arms import Arm, StepInputs
from bt_bench.measuring.nvtx_ranges import Range
from bt_bench.measuring.probes import Probe
from bt_bench.model import Measurement, Operation, Plan, Quantity

Samples = dict[Quantity, list[list[float]]]


@dataclass(frozen=True)
class Window:
    """What is replayed: the arms of a case, its steps, and the operation to time.

    Each variant has several instances, with buffers of their own. Where a buffer happens to lie
    in host memory moves the time of a kernel that reads it by microseconds, for as long as the
    buffer lives; with one instance that luck would be taken for a property of the variant.

    Args:
        case: the case's name, for NVTX ranges.
        instances: for each instance its arms, one per variant, in the state before the first step.
        steps: the steps, on the arms' device.
        operation: what is timed in each step.
    """

    case: str
    instances: Sequence[Sequence[Arm]]
    steps: Sequence[StepInputs]
    operation: Operation

    @property
    def names(self) -> list[str]:
        """Names of the variants."""
        return [arm.name for arm in self.instances[0]]

    def orders(self, rng: random.Random) -> Iterator[list[Arm]]:
        """The arms of each round: instances in turn, in random order and then the reverse."""
        while True:
            for arms in self.instances:
                order = rng.sample(list(arms), len(arms))
                yield order
                yield order[::-1]


def measure(
    window: Window, probes: Sequence[Probe], plan: Plan, on_round: Callable[[int], None]
) -> dict[str, list[Measurement]]:
    """Times every arm with every probe.

    Within a step the arms follow each other, so that drift hits all of them; their order is
    random per pair of rounds, and turned round within the pair (A B … B A). Each pair takes the
    next instance of all variants.

    Args:
        window: arms, steps and operation.
        probes: the ways to time a step; each gets replays of its own.
        plan: rounds and seed.
        on_round: called with the number of rounds done.

    Returns:
        Per arm, a measurement per quantity.
    """
    samples: dict[str, Samples] = {
        name: {quantity: [] for probe in probes for quantity in probe.quantities}
        for name in window.names
    }
    regions = {name: Range(name, window.operation.value, window.case) for name in window.names}
    orders = window.orders(random.Random(plan.seed))
    for arms in window.instances:
        for _ in range(plan.warmup_rounds):
            for probe in probes:
                _replay(window, probe, arms, regions)
    with _no_collection():
        for done in range(plan.rounds):
            order = next(orders)
            for probe in probes:
                for name, rows in _replay(window, probe, order, regions).items():
                    columns = zip(*rows, strict=True)
                    for quantity, values in zip(probe.quantities, columns, strict=True):
                        samples[name][quantity].append(list(values))
            on_round(done + 1)
    return {
        name: [Measurement(quantity=q, samples=rounds) for q, rounds in by_quantity.items()]
        for name, by_quantity in samples.items()
    }


def _replay(
    window: Window, probe: Probe, order: Sequence[Arm], regions: dict[str, Range]
) -> dict[str, list[tuple[float, ...]]]:
    """One pass through the window; per arm, the samples of each step."""
    rows: dict[str, list[tuple[float, ...]]] = {arm.name: [] for arm in order}
    for arm in order:
        with arm.guarded():
            arm.rewind()
    for step in window.steps:
        for arm in order:
            with arm.guarded():
                sample = probe.sample(arm, window.operation, step, regions[arm.name])
            rows[arm.name].append(sample)
    return rows


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps Python's garbage collector out of the timed rounds."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
