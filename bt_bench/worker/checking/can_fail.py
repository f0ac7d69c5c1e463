"""A test that a suite's check can fail: two variants that are wrong have to fail it.

Both are derived from the suite's own reference, and therefore fit any suite. The calls of one do
nothing; the calls of the other leave the results of the previous step. Set-up and staging work as
in the reference. A suite that passes one of them would pass any variant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial, wraps
from types import FunctionType
from typing import Any

import numpy as np
import torch

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.base.names import Path
from bt_bench.protocol import (
    Driver,
    MismatchError,
    Operation,
    Suite,
    Trial,
    Workload,
    driver_of,
    is_varied,
    line_of,
    running,
)
from bt_bench.variants import is_interrupt, load_reference
from bt_bench.worker.checking.interpreter_guard import tensors_of
from bt_bench.worker.checking.plain_trial import trial_of

_CPU = torch.device("cpu")


def refuse_blind(
    suite: Suite, workloads: Sequence[Workload], operations: Sequence[Operation], seed: int
) -> None:
    """Refuse a suite whose check would pass a wrong variant.

    Each wrong variant is played only until it has failed on one workload, which takes few steps.

    Args:
        suite: the suite.
        workloads: workloads that its reference can run.
        operations: the operations that are checked.
        seed: for contents, garbage and poison.

    Raises:
        UsageError: names file and line; also if the driver raises with the reference.
    """
    _refuse_unvaried(suite, workloads, seed)
    reference = load_reference(suite)
    paths = dict.fromkeys(operation.path for operation in operations)
    with running(suite, "a class derived from the reference"):
        wrong = [kind(suite, path, reference) for path in paths for kind in (_Idle, _Stale)]
    for workload in workloads:
        open_ = [each for each in wrong if not each.failed]
        if not open_:
            return
        _play(suite, reference, workload, open_, seed)
    for each in wrong:
        if each.passed and not each.failed:
            raise UsageError(each.refusal())


def _refuse_unvaried(suite: Suite, workloads: Sequence[Workload], seed: int) -> None:
    """Refuse a `varied` that leaves every workload unchanged.

    A result that a variant remembers from an earlier round would be right.
    """
    # Group by method, not by class: workloads of a class that inherits it may have no contents.
    alike: dict[Callable[..., Any], list[Workload]] = {}
    for workload in workloads:
        alike.setdefault(type(workload).varied, []).append(workload)
    for method, those in alike.items():
        if not any(is_varied(suite, each, _rng_of(seed)) for each in those):
            kind = type(those[0])
            raise UsageError(
                f"{line_of(suite, method, kind)}: varied of {kind.__name__} returned the "
                "workload as it was; expected other contents, or no method of that name"
            )


def _play(
    suite: Suite, reference: type[Any], workload: Workload, wrong: Sequence[_Wrong], seed: int
) -> None:
    """Run wrong variants beside the reference through a workload until all have failed."""
    paths = list(dict.fromkeys(each.path for each in wrong))
    with running(suite, "the reference or its driver"):
        trial = trial_of(suite, workload, _CPU, _rng_of(seed), paths)
        right = [_Right(suite, path, reference) for path in paths]
        played = [*right, *wrong]
        for each in played:
            each.begin(trial)
    for index in range(trial.num_steps):
        with running(suite, "the reference or its driver"):
            expected = trial.expect(index)
            # An error that the driver raises for the reference, it raises for every variant.
            for each in right:
                each.step(trial, index, expected)
        for each in wrong:
            each.step(trial, index, expected)
        if all(each.failed for each in wrong):
            return


def _rng_of(seed: int) -> np.random.Generator:
    """Return a generator that differs from a suite's own generator for the same seed.

    With the bare seed, `varied` might draw the contents that the workload has already.
    """
    return np.random.default_rng((seed, 1))


def _unguarded(*_owners: object) -> AbstractContextManager[None]:
    return nullcontext()


class _Right:
    """The reference as a variant of itself, to find errors that the driver raises.

    Args:
        suite: the suite.
        path: the path of the operations to call.
        reference: class of the reference.
    """

    failed = False

    def __init__(self, suite: Suite, path: Path, reference: type[Any]) -> None:
        self.path = path
        self._suite = suite
        self._subject: Any = None
        self._variant = reference

    def begin(self, trial: Trial) -> None:
        """Set up the variant."""
        self._subject = trial.begin(self._variant, _unguarded)

    def step(self, trial: Trial, index: int, expected: Any) -> None:
        """Run a step, and record a mismatch as a failure."""
        try:
            self.played(trial, index, expected)
        except MismatchError:
            self.failed = True

    def played(self, trial: Trial, index: int, expected: Any) -> None:
        """Run a step."""
        through = partial(self.made, index)
        trial.step(self._subject, self.path, index, expected, through, _unguarded)

    def made(
        self, index: int, _variant: Any, operation: Operation, call: Callable[[], object]
    ) -> object:
        """Make a call of a step plainly, and return `wanted`."""
        return self.wanted(operation, index, call())

    @property
    def driver(self) -> Driver | None:
        """Return the subject's driver; `None` if the suite's own trial keeps none."""
        return getattr(self._subject, "driver", None)

    def wanted(self, operation: Operation, index: int, result: object) -> object:
        """Return the views that the driver requires of a call; `result` if it requires none.

        A wrong variant may return the right views, too.
        """
        driver = self.driver
        views = None
        if isinstance(driver, Driver):
            views = driver.results(operation, self._subject.inputs[index])
        if views is None:
            return result
        return next(iter(views.values())) if len(views) == 1 else tuple(views.values())


class _Wrong(_Right):
    """A variant that has to fail.

    Attributes:
        failed: whether it has failed on some workload.
        passed: whether a step passed although its results were wrong.
    """

    what = ""
    passed = False

    def begin(self, trial: Trial) -> None:
        """See the base class."""
        self._subject = None
        self.failed = self._fails(lambda: super(_Wrong, self).begin(trial))

    def step(self, trial: Trial, index: int, expected: Any) -> None:
        """See the base class."""
        if not self.failed:
            self.failed = self._fails(lambda: self.played(trial, index, expected))

    def played(self, trial: Trial, index: int, expected: Any) -> None:
        """Run a step; `passed` is set if the check finds no fault."""
        super().played(trial, index, expected)
        self.passed = True

    @staticmethod
    def _fails(action: Callable[[], None]) -> bool:
        """Return whether an action raises; any error of a variant counts as a failed check."""
        try:
            action()
        except BtBenchError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            return True
        return False

    def refusal(self) -> str:
        """Return the message that refuses the suite."""
        calls = "+".join(self.path)
        return (
            f"{self.blamed()}: its check cannot fail: a variant {self.what} passes, calls {calls}"
        )

    def blamed(self) -> str:
        """Return the file and line most likely to blame."""
        driver = driver_of(self._suite)
        return line_of(self._suite, driver.trial or driver.outputs, driver)


class _Idle(_Wrong):
    """A variant whose calls do nothing; set-up and staging work."""

    what = "that does nothing"
    is_off = False  # the variant's methods do nothing
    skipped = 0  # number of calls that did nothing
    _asked = False  # the trial has made a call

    def __init__(self, suite: Suite, path: Path, reference: type[Any]) -> None:
        super().__init__(suite, path, reference)
        methods = {operation.method for operation in suite.operations}
        self._variant = _with_switch(reference, methods, self)

    def made(
        self, index: int, _variant: Any, operation: Operation, call: Callable[[], object]
    ) -> object:
        """See the base class."""
        if operation not in self.path:  # staging has to work
            return call()
        self._asked = self.is_off = True
        try:
            result = call()
        finally:
            self.is_off = False
        return self.wanted(operation, index, result)

    def blamed(self) -> str:
        """See the base class: a driver that never calls the variant is itself to blame."""
        driver = driver_of(self._suite)
        if self.skipped or not self._asked:
            return super().blamed()
        return line_of(self._suite, driver.call, driver)

    def refusal(self) -> str:
        """See the base class."""
        said = super().refusal()
        if not self._asked:
            return f"{said}; no step makes a call by `through`"
        if self.skipped:
            return f"{said}; compare the outputs of the variant's calls, not the reference's"
        return f"{said}; the driver never calls a method of the variant that it is given"


class _Stale(_Wrong):
    """A variant whose calls leave the previous step's results, wherever they write."""

    what = "that returns the results of the step before"

    _last: Mapping[int, torch.Tensor]  # results of the step before
    _returned: dict[str, object]  # by operation, in the step before
    _given: Mapping[int, torch.Tensor] | None  # contents there before this step
    _is_stale: bool  # in this step
    _of_step: Any = None  # the variant's object

    def begin(self, trial: Trial) -> None:
        """See the base class."""
        self._last, self._returned = {}, {}
        super().begin(trial)

    def played(self, trial: Trial, index: int, expected: Any) -> None:
        """See the base class."""
        passed, self._given, self._is_stale = self.passed, None, False
        super().played(trial, index, expected)
        # The first step, and a step without work, have no results that could be stale.
        self.passed = passed or self._is_stale
        self._last = self._copies(self._of_step)

    def made(
        self, index: int, variant: Any, operation: Operation, call: Callable[[], object]
    ) -> object:
        """See the base class."""
        if operation in self.path and self._given is None:
            self._of_step = variant
            self._given = self._copies(variant)
        result = call()
        if operation == self.path[-1] and self._last:
            self._spoil(variant)
        if self._is_stale or isinstance(self.driver, Driver):
            return self.wanted(operation, index, result)
        # With a suite's own trial, results need not be in tensors of the variant.
        last = self._returned.get(operation)
        self._returned[operation] = _copy_of(result)
        self._is_stale = last is not None
        return result if last is None else last

    def _spoil(self, variant: Any) -> None:
        """Replace new results by the last ones; leave elements alone that no call has written."""
        given = self._given or {}
        with torch.no_grad():
            for number, tensor in self._results(variant).items():
                written = tensor != given[number]
                self._is_stale |= bool(written.any())
                tensor.copy_(torch.where(written, self._last[number], tensor))

    def _copies(self, variant: Any) -> Mapping[int, torch.Tensor]:
        return {number: each.clone() for number, each in self._results(variant).items()}

    def _results(self, variant: Any) -> Mapping[int, torch.Tensor]:
        """Return a step's results: the driver's outputs or state, or else all of its tensors."""
        if isinstance(self.driver, Driver):
            found = list((self.driver.outputs() or self.driver.state()).values())
        else:
            # An expanded tensor has several elements at one address, and cannot be written to.
            found = [each for each in tensors_of(variant) if 0 not in each.stride()]
        return dict(enumerate(found))


def _copy_of(result: object) -> object | None:
    """Copy a call's result; return `None` if it cannot be copied."""
    try:
        return deepcopy(result)
    except Exception:  # a user's class may raise anything
        return None


def _with_switch(reference: type[Any], methods: set[str], switch: _Idle) -> type[Any]:
    """Derive a class whose methods can be switched off; calls that are skipped are counted.

    All methods can be, not only `methods`: a driver may call others as well. Of the special
    methods (`__…__`), only those in `methods` can.
    """

    def switched(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function, updated=())
        def method(*args: Any, **named: Any) -> Any:
            if switch.is_off:
                switch.skipped += 1
                return None
            return function(*args, **named)

        return method

    members: dict[str, Any] = {"__module__": reference.__module__, "__doc__": reference.__doc__}
    members["__qualname__"] = reference.__qualname__
    for kind in reversed(reference.__mro__[:-1]):
        for name, value in vars(kind).items():
            if name.startswith("__") and name not in methods:
                continue
            if isinstance(value, (staticmethod, classmethod)):
                members[name] = type(value)(switched(value.__func__))
            elif isinstance(value, FunctionType):
                members[name] = switched(value)
            elif callable(value) and name in methods:
                members[name] = staticmethod(switched(value))  # it has no `__get__` to bind it
            else:
                members.pop(name, None)  # such as a property that overrides a base class's method
    return type(reference.__name__, (reference,), members)
