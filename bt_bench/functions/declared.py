"""Declarations in a file of functions: `@bt_bench.benchmark`, its reference and its variants.

Nothing here loads torch: the file that makes the declarations usually does.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from bt_bench.base.errors import UsageError
from bt_bench.results import BASELINE

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
InputValue = bool | int | float | str
Tolerance = float | tuple[float, float]

DECLARED = "__bt_bench_benchmarks__"
"""The global of a module that lists the benchmarks which the module declares."""

REFERENCE = "reference"
STEPS = 3
_RESERVED = ("name", "workload", "product", "zip", "margin_percent", "seed", "steps", "defaults")
_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_BENCHMARK = re.compile(r"[a-z][a-z0-9_]{0,59}")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@dataclass(frozen=True)
class Implementation:
    """A function that performs the operation of a benchmark.

    Args:
        name: the variant's name in reports.
        function: takes arguments that the benchmark makes, by the names of its parameters.
        graph: whether its calls may be captured into CUDA graphs.
    """

    name: str
    function: Callable[..., Any]
    graph: bool = False

    def parameters(self, names: Sequence[str]) -> list[str]:
        """Return the names of the arguments that the function takes, in its own order.

        Args:
            names: names of the arguments that the benchmark makes.

        Raises:
            UsageError: for a parameter that the benchmark does not make.
        """
        try:
            taken = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):  # built in
            raise UsageError(
                f"{self.name} is {self.function!r}, whose parameters have no names; expected a "
                "Python function"
            ) from None
        found: list[str] = []
        skipped = False
        for parameter in taken:
            if parameter.name in names and parameter.kind in _BY_NAME and not skipped:
                found.append(parameter.name)
            elif parameter.default is inspect.Parameter.empty or parameter.name in names:
                raise UsageError(
                    f"{line_of(self.function)}: {_name(self.function)} takes {str(parameter)!r}; "
                    "expected plain parameters with names of what the benchmark makes: "
                    f"{', '.join(names)}"
                )
            else:
                skipped = True  # arguments are positional, so that none can follow
        return found


@dataclass
class Benchmark:
    """An operation, the inputs that it is called with, and the functions that perform it.

    Made by `benchmark`. Its `reference` and `variant` are decorators.
    """

    make: Callable[..., Mapping[str, Any]]
    cases: tuple[Mapping[str, InputValue], ...]
    tolerance: Tolerance | Mapping[str, Tolerance] = 0.0
    steps: int = STEPS
    implementations: dict[str, Implementation] = field(default_factory=dict)
    right: Implementation | None = None
    results: dict[str, Any] = field(default_factory=dict, repr=False)
    """Shapes of what the reference returns, by inputs; the driver keeps them here."""

    @property
    def name(self) -> str:
        """The name of the function that makes the inputs."""
        return self.make.__name__

    @overload
    def reference(self, function: FunctionT, /) -> FunctionT: ...
    @overload
    def reference(
        self, /, *, name: str | None = None, timed: bool = True, graph: bool = False
    ) -> Callable[[FunctionT], FunctionT]: ...

    def reference(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        timed: bool = True,
        graph: bool = False,
    ) -> Any:
        """Declare the function whose results are right, by definition.

        Checks run it on the CPU. Sweeps time it on the device, as a variant.

        Args:
            function: the function, where this is used without parentheses.
            name: its name as a variant; `None`: `baseline`, which others are compared with.
            timed: whether sweeps time it, too. If not, it is no variant, and one of these may be
                named `baseline`.
            graph: whether its calls may be captured into CUDA graphs.

        Raises:
            UsageError: if there is a reference already, or the name is taken.
        """

        def declare(function: FunctionT) -> FunctionT:
            if self.right is not None:
                raise UsageError(
                    f"{line_of(function)}: benchmark {self.name!r} has a reference already, at "
                    f"{line_of(self.right.function)}; expected one"
                )
            self.right = Implementation(name or BASELINE, function, graph)
            if timed:
                self._added(self.right)
            return function

        return declare if function is None else declare(function)

    @overload
    def variant(self, function: FunctionT, /) -> FunctionT: ...
    @overload
    def variant(
        self, /, *, name: str | None = None, graph: bool = False
    ) -> Callable[[FunctionT], FunctionT]: ...

    def variant(
        self, function: Any = None, /, *, name: str | None = None, graph: bool = False
    ) -> Any:
        """Declare a function to check and to time.

        Args:
            function: the function, where this is used without parentheses.
            name: its name in reports; `None`: the function's own.
            graph: whether its calls may be captured into CUDA graphs, which is timed as well.

        Raises:
            UsageError: if the name is taken, or cannot be the name of a variant.
        """

        def declare(function: FunctionT) -> FunctionT:
            self._added(Implementation(name or _name(function), function, graph))
            return function

        return declare if function is None else declare(function)

    def _added(self, made: Implementation) -> None:
        where = line_of(made.function)
        if not callable(made.function):
            raise UsageError(
                f"{where}: benchmark {self.name!r} is given {made.function!r}; expected a function "
                "to decorate: give options by name, as in name="
            )
        if made.name == REFERENCE or not _VARIANT.fullmatch(made.name):
            raise UsageError(
                f"{where}: a function of benchmark {self.name!r} is named {made.name!r}; expected "
                f"letters, digits and _ . - (at most 60), and not {REFERENCE!r}: give another by "
                "name="
            )
        if made.name in self.implementations:
            raise UsageError(
                f"{where}: benchmark {self.name!r} has two functions named {made.name!r}; expected "
                "names of their own: give another by name="
            )
        self.implementations[made.name] = made

    def driving(self) -> Mapping[str, str]:
        """Return digests of the sources that drive and check variants, by function."""
        functions = {self.name: self.make}
        if self.right is not None:
            functions[f"{self.name}'s reference"] = self.right.function
        declared = repr((self.cases, self.tolerance, self.steps)).encode()
        return {
            name: hashlib.sha256(_source_of(function) + declared).hexdigest()
            for name, function in functions.items()
        }

    def tolerance_of(self, name: str) -> tuple[float, float]:
        """Return the relative and the absolute tolerance of a tensor; zeros: bit for bit."""
        given = self.tolerance
        found = given.get(name, 0.0) if isinstance(given, Mapping) else given
        return found if isinstance(found, tuple) else (found, found)


def benchmark(
    *,
    inputs: Mapping[str, Sequence[InputValue]] | Sequence[Mapping[str, InputValue]],
    tolerance: Tolerance | Mapping[str, Tolerance] = 0.0,
    steps: int = STEPS,
) -> Callable[[Callable[..., Mapping[str, Any]]], Benchmark]:
    """Declare a benchmark: decorate the function that makes the arguments of a call.

    The function takes the inputs by name, and returns the arguments by name: tensors on the CPU,
    and plain values. It is called anew, with torch, numpy and random seeded, for each step of each
    case, and for each round of a check. Tensors that it leaves uninitialised, by `torch.empty`,
    are outputs.

    Args:
        inputs: values of each input, for a case of each combination; or a mapping for each case.
        tolerance: how far floating-point results may differ from the reference's: relative and
            absolute, one number for both, or either of these by name of a tensor. By default,
            results have to be equal bit for bit.
        steps: number of calls with different contents that a replay makes, 2 or more.

    Returns:
        The decorator, which returns a `Benchmark`.

    Raises:
        UsageError: naming what is wrong with an argument.
    """

    def declare(make: Callable[..., Mapping[str, Any]]) -> Benchmark:
        where = line_of(make)
        name = _name(make)
        if not _BENCHMARK.fullmatch(name):
            raise UsageError(
                f"{where}: the benchmark is named {name!r}; expected lower-case letters, digits "
                "and underscores, a letter first, at most 60"
            )
        found = Benchmark(make, _cases(inputs, where), _checked(tolerance, where), steps)
        _refuse_unfit(found, where)
        declared = make.__globals__.setdefault(DECLARED, [])
        if any(each.name == name for each in declared):
            raise UsageError(f"{where}: there are two benchmarks named {name!r}; rename one")
        declared.append(found)
        return found

    return declare


def _cases(
    inputs: Mapping[str, Sequence[InputValue]] | Sequence[Mapping[str, InputValue]], where: str
) -> tuple[Mapping[str, InputValue], ...]:
    expected = 'expected lists of values, as in {"n": [1024, 65536]}, or a list of mappings'
    if isinstance(inputs, Mapping):
        axes = {}
        for name, values in inputs.items():
            if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
                raise UsageError(f"{where}: inputs has {values!r} for {name!r}; {expected}")
            axes[name] = list(values)
        cases = [dict(zip(axes, row, strict=True)) for row in itertools.product(*axes.values())]
    elif isinstance(inputs, Sequence) and inputs and all(isinstance(i, Mapping) for i in inputs):
        cases = [dict(each) for each in inputs]
    else:
        raise UsageError(f"{where}: inputs is {inputs!r}; {expected}")
    for name in {name for case in cases for name in case}:
        if not isinstance(name, str) or name in _RESERVED or not name.isidentifier():
            raise UsageError(
                f"{where}: inputs has the name {name!r}; expected a Python name other than "
                f"{', '.join(_RESERVED)}"
            )
        kinds = {type(case.get(name)) for case in cases}
        if kinds not in ({bool}, {int}, {float}, {int, float}, {str}):
            raise UsageError(
                f"{where}: input {name!r} has values {[case.get(name) for case in cases]!r}; "
                "expected numbers, texts or bools, of one type, in every case"
            )
        for value in (case[name] for case in cases):
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{where}: input {name!r} is {value}; expected a finite number")
            if isinstance(value, str) and not value.isprintable():
                raise UsageError(f"{where}: input {name!r} is {value!r}; expected printable text")
    if len({repr(sorted(case.items())) for case in cases}) != len(cases):
        raise UsageError(f"{where}: inputs gives the same case twice; remove the repeated value")
    return tuple(cases)


def _checked(
    tolerance: Tolerance | Mapping[str, Tolerance], where: str
) -> Tolerance | Mapping[str, Tolerance]:
    values = tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,)
    for value in values:
        parts = value if isinstance(value, tuple) else (value, value)
        if len(parts) != 2 or not all(isinstance(p, int | float) and 0 <= p < 1 for p in parts):
            raise UsageError(
                f"{where}: tolerance is {value!r}; expected a number from 0 to below 1, or a pair "
                "of these: relative and absolute"
            )
    return tolerance


def _refuse_unfit(found: Benchmark, where: str) -> None:
    taken = inspect.signature(found.make).parameters
    names = list(found.cases[0])
    if set(taken) != set(names):
        raise UsageError(
            f"{where}: {found.name} takes {', '.join(taken) or 'nothing'}, and inputs has "
            f"{', '.join(names) or 'nothing'}; expected the same names"
        )
    if not isinstance(found.steps, int) or found.steps < 2:
        raise UsageError(
            f"{where}: steps is {found.steps!r}; expected 2 or more: with one, a result that is "
            "left over from the step before looks right"
        )


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _source_of(function: Callable[..., Any]) -> bytes:
    try:
        return inspect.getsource(function).encode()
    except (OSError, TypeError):  # built in, or not of a file
        return _name(function).encode()


def line_of(function: Callable[..., Any]) -> str:
    """Return file and line of a function, or of the caller's file if it has none; for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
