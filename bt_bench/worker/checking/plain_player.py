"""The player for scenarios of any suite; it uses `Driver` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bt_bench.base.names import Operation, Path
from bt_bench.protocol import (
    Contents,
    Driver,
    Floats,
    Guard,
    Player,
    Seen,
    Suite,
    Through,
    Workload,
    driver_of,
    inputs_of_steps,
    running,
)
from bt_bench.worker.checking.comparing import in_parts
from bt_bench.worker.checking.plain_scenarios import Instance, NextStep, PlainScenario, Rewind
from bt_bench.worker.checking.plain_trial import (
    addresses,
    compare_around,
    compare_start,
    copies,
    fill,
    run_path,
)


class PlainPlayer(Player):
    """See the base class.

    Args:
        suite: the scenarios' suite.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite

    def play(
        self, variant: type[Any], scenario: PlainScenario, device: torch.device, guard: Guard | None
    ) -> Iterator[Seen]:
        """See the base class: yield the outputs and state of all instances after each action."""
        stage = _Stage(self._suite, variant, scenario, device, guard)
        several = len(scenario.instances) > 1
        for action in scenario.actions:
            played = stage.instance(action.instance)
            if isinstance(action, Rewind):
                played.rewind(action)
            else:
                played.step(action)
            # All instances: an action on one must not show in another.
            yield {
                f"instance {at}: {name}" if several else name: contents
                for at, each in stage.instances.items()
                for name, contents in each.seen().items()
            }


@dataclass
class _Stage:
    """The instances of a scenario, each set up on first use; see `PlainPlayer.play`."""

    suite: Suite
    variant: type[Any]
    scenario: PlainScenario
    device: torch.device
    guard: Guard | None
    instances: dict[int, _Played] = field(default_factory=dict)
    _shared: dict[int, Sequence[Any]] = field(default_factory=dict)  # inputs by workload

    def instance(self, at: int) -> _Played:
        """Return an instance by its number."""
        if at not in self.instances:
            of_reference = running(self.suite, "the reference or its driver")
            with of_reference if self.guard is None else nullcontext():
                self.instances[at] = self._set_up(self.scenario.instances[at])
        return self.instances[at]

    def _set_up(self, one: Instance) -> _Played:
        workload = self.scenario.workloads[one.workload]
        kind = driver_of(self.suite)
        alike = [
            played.driver
            for other, played in self.instances.items()
            if self.scenario.instances[other].workload == one.workload
        ]
        arguments = self.variant, workload, self.device
        driver = kind.like(alike[0], *arguments) if alike and one.like else kind(*arguments)
        if one.shares and one.workload not in self._shared:
            self._shared[one.workload] = self._inputs_of(workload)
        inputs = self._shared[one.workload] if one.shares else self._inputs_of(workload)
        return _Played(self.suite, driver, inputs, self._inputs_of(workload), one.path, self.guard)

    def _inputs_of(self, workload: Workload) -> Sequence[Any]:
        return inputs_of_steps(self.suite, driver_of(self.suite), self.device, workload)


@dataclass
class _Played:
    """One instance, and the place of its next step.

    Args:
        suite: the scenario's suite.
        driver: its driver.
        inputs: the inputs of its steps.
        pristine: a copy of them, since the variant might change the inputs that it is passed.
        path: the path of the operations that its steps call, until it is rewound.
        guard: see `PlainPlayer.play`.
    """

    suite: Suite
    driver: Driver
    inputs: Sequence[Any]
    pristine: Sequence[Any]
    path: Path
    guard: Guard | None

    def __post_init__(self) -> None:
        self._place = 0
        self._addresses = addresses(self.driver)
        self._start = copies(self.driver.state(), torch.device("cpu"))

    def _guarded(self, *others: object) -> AbstractContextManager[None]:
        if self.guard is None:
            return running(self.suite, "the reference or its driver")
        return self.guard(self.driver.variant, self.driver, *others)

    def rewind(self, action: Rewind) -> None:
        """Put the instance back before its first step."""
        with self._guarded():
            self.driver.rewind()
        self._place, self.path = 0, action.path
        if self.guard is not None:
            compare_start(self.driver, self._start)

    def step(self, action: NextStep) -> None:
        """Run the next step, and compare everything except the contents of outputs and state."""
        driver, step = self.driver, self.inputs[self._place]
        if action.fill is not None:
            fill(driver.outputs(), action.fill)
        with self._guarded(step):
            results = run_path(self.suite, driver, self.path, step, self._through(action, step))
        if self.guard is not None:
            pristine = self.pristine[self._place]
            compare_around(driver, results, pristine, step, self._addresses)
        self._place += 1

    def _through(self, action: NextStep, step: Any) -> Through:
        """Return a wrapper that makes a call, and repeats it as measurements do."""
        undo = self.driver.undo() if action.again else None
        alone = len(self.path) == 1

        def make(_variant: Any, operation: Operation, call: Callable[[], object]) -> object:
            result = call()
            # Within a longer path, operations share the staged inputs and the outputs.
            repeats = action.again if alone or not operation.traits.stages else 0
            for at in range(repeats):
                if alone and action.fill is not None:
                    fill(self.driver.outputs(), action.fill - 1 - at)
                result = self._again(operation, step, undo)
            return result

        return make

    def _again(self, operation: Operation, step: Any, undo: Callable[[], object] | None) -> object:
        staging = self.suite.staging
        if operation.traits.stages and staging is not None and undo is not None:
            undo()
            if operation != staging:
                self.driver.call(staging, step)()
        self.driver.prepare(operation, step)
        return self.driver.call(operation, step)()

    def seen(self) -> Mapping[str, Contents]:
        """Return whole outputs and state; nothing before the first step, when they may be anything.

        Integers are widened to int64; floats to float32, or float64 if they are that already.
        """
        if self._place == 0:
            return {}
        driver = self.driver
        return {
            name: _contents(tensor, driver.tolerances.get(name, (0.0, 0.0)))
            for name, tensor in {**driver.outputs(), **driver.state()}.items()
        }


def _contents(tensor: torch.Tensor, tolerance: tuple[float, float]) -> Contents:
    """Copy a tensor in a common width: int64 for integers, float32 or float64 for floats.

    Complex numbers are copied as pairs of floats.
    """
    tensor = in_parts(tensor)
    if not tensor.dtype.is_floating_point:
        whole: np.ndarray[Any, Any] = tensor.detach().to("cpu", torch.int64, copy=True).numpy()
        return whole
    wide = torch.float64 if tensor.dtype is torch.float64 else torch.float32
    return Floats(tensor.detach().to("cpu", wide, copy=True).numpy(), *tolerance)
