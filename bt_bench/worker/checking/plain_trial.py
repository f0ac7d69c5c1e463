"""The common check: it compares a driver's outputs and state with the reference's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Path
from bt_bench.protocol import (
    Driver,
    Guard,
    MismatchError,
    Operation,
    Suite,
    Through,
    Trial,
    Workload,
    driver_of,
    inputs_of_steps,
    line_of,
    place_of,
    running,
    suite_of,
    varied_workload,
)
from bt_bench.protocol.driver import plainly
from bt_bench.variants import load_reference
from bt_bench.worker.checking.comparing import (
    compare_exactly,
    compare_shape,
    compare_view,
    describe,
    in_parts,
    kind_of,
    other_zeros,
    same_bits,
)

_CPU = torch.device("cpu")


def trial_of(
    suite: Suite,
    workload: Workload,
    device: torch.device,
    rng: np.random.Generator | None,
    paths: Sequence[Path],
) -> Trial:
    """Begin a trial of the suite's own class, or else a `PlainTrial`; it has these arguments."""
    kind = driver_of(suite).trial or PlainTrial
    return kind(load_reference(suite), workload, device, rng, paths)


@dataclass
class VariantUnderCheck:
    """A variant under check.

    Args:
        driver: the variant's driver.
        addresses: addresses of outputs and state at set-up; empty: they are not compared.
        inputs: inputs of its own, which no other variant can spoil.
        start: copies of its state from before the first step.
        prepare: does the untimed work again that preceded the call in progress.
    """

    driver: Driver
    addresses: dict[str, int]
    inputs: Sequence[Any] = ()
    start: Mapping[str, torch.Tensor] = field(default_factory=dict)
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class ExpectedStep:
    """The expected outputs and state after a step.

    Args:
        outputs: copies of the reference's outputs, by name.
        state: copies of the reference's state, by name.
        poison: the value that integer outputs were filled with before the step.
    """

    outputs: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]
    poison: int

    def on(self, device: torch.device) -> ExpectedStep:
        """Return the same on another device."""
        outputs, state = (
            {name: tensor.to(device) for name, tensor in tensors.items()}
            for tensors in (self.outputs, self.state)
        )
        return ExpectedStep(outputs, state, self.poison)


class PlainTrial(Trial):
    """A trial for any suite; it uses `Driver` alone. See the base class.

    Args:
        reference: class of the reference.
        workload: the workload to check.
        device: the variants' device.
        rng: for other contents and poison; `None`: the workload is left as it is.
        paths: the paths of the checked operations; each has a reference instance of its own.
    """

    is_common = True

    def __init__(
        self,
        reference: type[Any],
        workload: Workload,
        device: torch.device,
        rng: np.random.Generator | None,
        paths: Sequence[Path],
    ) -> None:
        self._suite: Suite = suite_of(workload)
        self._device = device
        self._rng = rng
        self._workload = workload if rng is None else varied_workload(self._suite, workload, rng)
        self._driver = driver_of(self._suite)
        with running(self._suite, "driver"):
            self._references = {
                path: self._driver(reference, self._workload, _CPU) for path in paths
            }
            for driver in self._references.values():
                self._refuse_unfit(driver)
            self._reference_inputs = self._inputs_on(_CPU)
            # A pristine copy: variants might change the inputs that they are passed.
            self._pristine = self._inputs_on(_CPU)
            # Paths whose reference has written nothing so far.
            self._idle = set(paths)

    @property
    def num_steps(self) -> int:
        """See the base class."""
        return len(self._workload.steps)

    def begin(self, variant: type[Any], guard: Guard) -> VariantUnderCheck:
        """See the base class."""
        driver = self._driver(variant, self._workload, self._device)
        inputs = self._inputs_on(self._device)
        start = copies(driver.state(), self._device)
        return VariantUnderCheck(driver, addresses(driver), inputs, start)

    def resume(self, driver: Driver) -> VariantUnderCheck:
        """See the base class."""
        return VariantUnderCheck(driver, {})

    def expect(self, index: int) -> dict[Path, ExpectedStep]:
        """See the base class: per path, since a path may write only part of the outputs."""
        poison = -1000 - index if self._rng is None else int(self._rng.integers(-(2**31), -1))
        with running(self._suite, "the reference or its driver"):
            found = {
                path: self._expected(path, driver, index, poison)
                for path, driver in self._references.items()
            }
        # Outside `running`: an error here may come from a variant that broke the device.
        return {path: expected.on(self._device) for path, expected in found.items()}

    def _expected(self, path: Path, driver: Driver, index: int, poison: int) -> ExpectedStep:
        fill(driver.outputs(), poison)
        before = copies({**driver.outputs(), **driver.state()}, _CPU)
        run_path(self._suite, driver, path, self._reference_inputs[index], plainly)
        self._notice(path, driver, before, index)
        return ExpectedStep(copies(driver.outputs(), _CPU), copies(driver.state(), _CPU), poison)

    def _inputs_on(self, device: torch.device) -> Sequence[Any]:
        return inputs_of_steps(self._suite, self._driver, device, self._workload)

    def _refuse_unfit(self, driver: Driver) -> None:
        """Refuse a driver that keeps no variant, or declares nothing to compare.

        Without anything to compare, every variant would be right.
        """
        if not hasattr(driver, "variant"):
            place = line_of(self._suite, self._driver.__init__, self._driver)
            raise UsageError(
                f"{place}: {self._driver.__name__} has no attribute 'variant'; expected "
                "__init__ to keep the variant's object there"
            )
        declared = {**driver.outputs(), **driver.state()}
        if not any(tensor.numel() for tensor in declared.values()):
            raise UsageError(
                f"{place_of(self._suite)}: outputs() and state() of {type(driver).__name__} have "
                "no element, so nothing is compared; expected the tensors that operations write"
            )

    def _notice(
        self, path: Path, driver: Driver, before: Mapping[str, torch.Tensor], index: int
    ) -> None:
        """Refuse a reference that writes nothing in any step: every variant would be right."""
        after = {**driver.outputs(), **driver.state()}
        operation = self._suite.by_name[path[-1]]
        step = self._reference_inputs[index]
        if driver.may_be_empty(operation, step) or any(
            not same_bits(before[name], tensor) for name, tensor in after.items()
        ):
            self._idle.discard(path)
        if index == self.num_steps - 1 and path in self._idle:
            raise UsageError(
                f"{place_of(self._suite)}: the reference has changed neither outputs() nor state() "
                f"in any step, by calls of {'+'.join(path)}, so nothing would be compared; is "
                "something missing before the call, as in prepare()?"
            )

    def step(
        self,
        subject: VariantUnderCheck,
        path: Path,
        index: int,
        expected: Mapping[Path, ExpectedStep],
        through: Through,
        guard: Guard,
        inputs: Any | None = None,
    ) -> None:
        """See the base class."""
        driver, right = subject.driver, expected[path]
        step = inputs if inputs is not None else subject.inputs[index]
        # Looked up before the calls, to catch a variant that replaces a tensor during a call.
        outputs, state = driver.outputs(), driver.state()
        fill(outputs, right.poison)
        with guard(driver.variant, driver, step):
            results = run_path(self._suite, driver, path, step, through, subject)
        for found, wanted in ((outputs, right.outputs), (state, right.state)):
            for name, tensor in wanted.items():
                tolerance = driver.tolerances.get(name)
                compare(name, found.get(name), tensor, right.poison, tolerance)
        compare_around(driver, results, self._pristine[index], step, subject.addresses)

    def refill(
        self,
        subject: VariantUnderCheck,
        path: Path,
        expected: Mapping[Path, ExpectedStep],
        result: object,
    ) -> None:
        """See the base class.

        Where a path has several calls, only results that are views of outputs are filled: other
        outputs may be of an earlier call.
        """
        filled = subject.driver.outputs()
        if len(path) > 1:
            memory = {tensor.untyped_storage().data_ptr() for tensor in filled.values()}
            results = result if isinstance(result, (tuple, list)) else (result,)
            filled = {
                str(number): each
                for number, each in enumerate(results)
                if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() in memory
            }
        fill(filled, expected[path].poison)
        subject.prepare()  # for calls that work in place

    def further(self) -> Iterator[tuple[str, Callable[[VariantUnderCheck, Guard], None]]]:
        """See the base class: `rewind` has to restore the state before the first step."""
        yield "rewind", self._check_rewind

    def _check_rewind(self, subject: VariantUnderCheck, guard: Guard) -> None:
        driver = subject.driver
        with guard(driver.variant, driver):
            driver.rewind()
        compare_start(driver, subject.start)

    def compared(self, subject: VariantUnderCheck) -> Sequence[str]:
        """See the base class."""
        driver = subject.driver
        return [*driver.outputs(), *driver.state(), "inputs"]

    def tolerant(self, subject: VariantUnderCheck) -> Sequence[str]:
        """See the base class: integers are always compared exactly."""
        driver = subject.driver
        names = [name for name, tolerance in driver.tolerances.items() if any(tolerance)]
        buffers = {**driver.outputs(), **driver.state()} if names else {}
        return [n for n in names if n in buffers and in_parts(buffers[n]).is_floating_point()]


def compare(
    name: str,
    found: torch.Tensor | None,
    wanted: torch.Tensor,
    poison: int,
    tolerance: tuple[float, float] | None,
) -> None:
    """Compare a variant's whole tensor with the reference's.

    Integers are compared by value. Floats must be equal or within the tolerance; NaN equals NaN,
    and without a tolerance 0.0 and -0.0 differ. Of complex numbers, both parts are compared so.
    Packed numbers are compared by their bytes.

    Args:
        name: name of the tensor.
        found: the variant's tensor.
        wanted: the reference's tensor.
        poison: the value that integers held before.
        tolerance: relative and absolute; `None`: exact.

    Raises:
        MismatchError: names the first element that differs.
    """
    kinds = (wanted.dtype.is_floating_point, wanted.dtype.is_complex, wanted.dtype is torch.bool)
    if not any(kinds):
        compare_exactly(name, found, wanted, poison)
        return
    compare_shape(name, found, wanted)
    assert found is not None
    if (found.dtype.is_floating_point, found.dtype.is_complex, found.dtype is torch.bool) != kinds:
        raise MismatchError(f"{name} has dtype {found.dtype}; expected {wanted.dtype}")
    if wanted.dtype is torch.bool:
        different = found.to(wanted.device) != wanted
        if bool(different.any()):
            raise MismatchError(describe(name, found, wanted, different, None))
        return
    if wanted.dtype.is_complex:
        name = f"{name} (real and imaginary parts)"
    found, wanted = in_parts(found), in_parts(wanted)
    if not wanted.dtype.is_floating_point:
        compare_exactly(f"{name} (bytes of two numbers)", found, wanted, poison % 256)
        return
    held = _float_poison(poison, found.dtype)
    relative, absolute = tolerance or (0.0, 0.0)
    mine, theirs = (each.to(wanted.device, torch.float64) for each in (found, wanted))
    different = ~torch.isclose(mine, theirs, rtol=relative, atol=absolute, equal_nan=True)
    if not any((relative, absolute)):
        different |= other_zeros(mine, theirs)
    if bool(different.any()):
        within = f" within {relative:g} of its size and {absolute:g}" if tolerance else ""
        raise MismatchError(describe(name, mine, theirs, different, held, within))


def run_path(
    suite: Suite,
    driver: Driver,
    path: Path,
    step: Any,
    through: Through,
    subject: VariantUnderCheck | None = None,
) -> list[tuple[Operation, object]]:
    """Stage a step, make the calls of a path, and return their results.

    The work that precedes each call is noted in `subject`, for calls that are repeated.
    """
    calls = [suite.by_name[name] for name in path]
    staging = suite.staging
    if staging is not None and staging not in calls and any(c.traits.stages for c in calls):
        through(driver.variant, staging, driver.call(staging, step))
    results = []
    for operation in calls:
        prepare = partial(driver.prepare, operation, step)
        prepare()
        if subject is not None:
            subject.prepare = prepare
        call = driver.call(operation, step)
        results.append((operation, through(driver.variant, operation, call)))
        driver.finish(operation)
    return results


def compare_around(
    driver: Driver,
    results: Sequence[tuple[Operation, object]],
    pristine: Any,
    step: Any,
    addresses_before: Mapping[str, int],
) -> None:
    """Check the results of calls, that inputs are unchanged, and that no buffer has moved.

    Args:
        driver: the variant's driver.
        results: the results of its calls.
        pristine: a copy of the step's inputs that no variant was passed.
        step: the inputs that it was passed.
        addresses_before: addresses of outputs and state; empty: they are not compared.

    Raises:
        MismatchError: names the first difference.
    """
    for operation, result in results:
        _compare_result(operation, result, driver.results(operation, step))
    _compare_inputs(driver.inputs_of(pristine), driver.inputs_of(step))
    for name, address in addresses(driver).items() if addresses_before else ():
        if address != addresses_before.get(name):
            raise MismatchError(f"{name} has moved; expected it to keep its address")


def compare_start(driver: Driver, start: Mapping[str, torch.Tensor]) -> None:
    """Compare the state after a `rewind` with copies from before the first step.

    Raises:
        MismatchError: names the first element that differs.
    """
    for name, tensor in start.items():
        found = driver.state().get(name)
        compare(f"{name}, as rewind() of the driver left it,", found, tensor, 0, None)


def copies(tensors: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}


def addresses(driver: Driver) -> dict[str, int]:
    """Return the addresses of outputs and state, which a captured graph would hold."""
    tensors = {**driver.outputs(), **driver.state()}
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


def fill(outputs: Mapping[str, torch.Tensor], value: int) -> None:
    """Fill outputs with garbage derived from a number, to expose elements left unwritten."""
    for tensor in map(in_parts, outputs.values()):
        if tensor.dtype.is_floating_point:
            tensor.fill_(_float_poison(value, tensor.dtype))
        elif tensor.dtype is not torch.bool:
            limits = torch.iinfo(tensor.dtype)
            span = limits.max - limits.min + 1
            tensor.fill_((value - limits.min) % span + limits.min)


def _float_poison(value: int, dtype: torch.dtype) -> float:
    """Return a number that the dtype holds exactly; not NaN, which absorbs all arithmetic."""
    most = min(torch.finfo(dtype).max, 65_504.0)
    return float((1 + value % 31) * (2.0 ** math.floor(math.log2(most / 32))))


def _compare_result(
    operation: Operation, result: Any, wanted: Mapping[str, torch.Tensor] | None
) -> None:
    if wanted is None:
        return
    results = (result,) if len(wanted) == 1 else result
    if not isinstance(results, (tuple, list)) or len(results) != len(wanted):
        raise MismatchError(f"{operation} returned {kind_of(result)}; expected {', '.join(wanted)}")
    for view, (name, tensor) in zip(results, wanted.items(), strict=True):
        compare_view(f"{operation}'s {name}", view, tensor)


def _compare_inputs(given: Mapping[str, torch.Tensor], passed: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in passed.items():
        if not same_bits(tensor, given[name]):
            raise MismatchError(f"the argument {name} was changed; expected it to be only read")
