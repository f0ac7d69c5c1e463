"""Readings of the functions and classes in watched modules, by identity, to detect exchanges."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from operator import attrgetter, is_, methodcaller
from types import CellType, FunctionType, ModuleType
from typing import Any

# Modules whose functions and classes all code uses. Modules that are not loaded are not compared. A
# submodule that is loaded later adds a name to its package, which is no change.
WATCHED_MODULES = (
    *("builtins", "time", "gc", "sys", "os", "threading", "functools", "random", "signal"),
    *("collections", "contextlib", "copy", "itertools", "math", "operator", "weakref", "array"),
    *("numpy", "torch", "torch.cuda", "torch.cuda.streams", "torch.cuda.graphs", "torch._C"),
    *("torch.cuda.memory", "torch.profiler", "torch.profiler.profiler"),
    *("torch.autograd", "torch.autograd.profiler", "torch._tensor", "torch.nn.functional"),
    *("triton", "triton.runtime", "triton.runtime.jit", "triton.runtime.driver"),
    *("triton.runtime.cache", "triton.runtime.autotuner", "triton.compiler"),
    *("triton.compiler.compiler", "triton.backends.nvidia.driver", "triton.knobs"),
)
WATCHED_PACKAGES = ("bt_bench",)
# torch's compiler wraps these when it is loaded, whichever code loads it first.
_WRAPPED_LATE = frozenset({"torch.manual_seed", "torch.random.manual_seed"})
# `torch.FloatTensor` and 26 more have 687 members each, which no tensor uses.
_OLD_TENSOR_TYPES = "tensortype"
_WITHOUT_WEIGHT = frozenset({"sys.excepthook", "sys.unraisablehook"})
MODULE = " (module)"  # suffix of the names of loaded modules in readings
PLAIN = (bool, int, float, str)

_WATCHED = frozenset({*WATCHED_MODULES, *WATCHED_PACKAGES})
_WITHIN = tuple(f"{package}." for package in WATCHED_PACKAGES)


def read_modules(known: Mapping[str, ModuleReading]) -> dict[str, ModuleReading]:
    """Read the watched modules; reuse a known reading if nothing that it rests on has changed."""
    readings: dict[str, ModuleReading] = {}
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name in _WATCHED or name.startswith(_WITHIN):
            reading = known.get(name)
            if reading is None or not reading.holds_for(module):
                reading = ModuleReading(module, seen)
            readings[name] = reading
            seen.update(reading.classes)
    return readings


def unlike(
    readings: Mapping[str, ModuleReading], others: Mapping[str, ModuleReading]
) -> dict[str, object]:
    """Return the values, by name, of the readings that `others` does not share."""
    found: dict[str, object] = {}
    for name, reading in readings.items():
        if others.get(name) is not reading:
            found |= reading.values
    return found


class ModuleReading:
    """The functions and classes of a module, by the identity of the code that runs.

    A reading takes long to make. `holds_for` is quick, since it builds no names.

    Args:
        module: the module to read.
        seen: ids of classes whose members are read with another module.

    Attributes:
        classes: names and classes whose members are read here, by id.
        values: identities of functions, methods and classes, and values of constants, by name.
    """

    def __init__(self, module: ModuleType, seen: Collection[int]) -> None:
        self._module = module
        self.classes: dict[int, tuple[str, type]] = {}
        in_module = list(vars(module).items())
        for name, value in in_module:
            place = f"{module.__name__}.{name}"
            if (
                isinstance(value, type)
                and id(value) not in seen
                and not place.startswith(("builtins.", "numpy."))
                and type(value).__name__ != _OLD_TENSOR_TYPES
            ):
                self.classes.setdefault(id(value), (place, value))
        self._scopes = [vars(module), *(vars(owner) for _, owner in self.classes.values())]
        in_classes = [value for scope in self._scopes[1:] for value in list(scope.values())]
        running = [*(value for _, value in in_module), *map(_method, in_classes)]
        functions = {id(value): value for value in running if isinstance(value, FunctionType)}
        self._functions = list(functions.values())
        self._cells = [cell for each in self._functions for cell in each.__closure__ or ()]
        self._objects = [value for _, value in in_module if _is_loose(value)]
        self._descriptors = list(filter(_is_loose, in_classes))
        # Before the values: the next look then detects a change made in between.
        self._sizes = list(map(len, self._scopes))
        self._ground = list(self._look())
        self.values = {f"{module.__name__}{MODULE}": True, **dict(self._read())}

    def holds_for(self, module: ModuleType) -> bool:
        """Return whether reading the module again would give the same values."""
        return (
            module is self._module
            and list(map(len, self._scopes)) == self._sizes
            and all(map(is_, self._look(), self._ground))
        )

    def _look(self) -> Iterator[object]:
        """Yield all objects that the reading rests on; while they are kept, their ids are unique.

        Functions and cells need no lookup: they are determined by the scopes' values and by the
        results of descriptors, which are compared too.
        """
        return chain(
            chain.from_iterable(self._scopes),
            chain.from_iterable(map(methodcaller("values"), self._scopes)),
            map(callable, self._objects),
            map(_method, self._descriptors),
            map(attrgetter("__code__"), self._functions),
            map(attrgetter("__defaults__"), self._functions),
            map(_content, self._cells),
        )

    def _read(self) -> Iterator[tuple[str, object]]:
        for name, value in list(vars(self._module).items()):
            place = f"{self._module.__name__}.{name}"
            if place in _WRAPPED_LATE | _WITHOUT_WEIGHT:
                continue
            if isinstance(value, FunctionType):
                yield place, code_of(value)
            elif isinstance(value, type) or (callable(value) and not isinstance(value, ModuleType)):
                yield place, id(value)
            elif name.isupper() and isinstance(value, PLAIN):
                yield place, value
        for place, owner in self.classes.values():
            yield from members(place, owner)


_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_WRAPPERS = (staticmethod, classmethod, property)  # `__init__` replaces the function that they hold


def _is_loose(value: object) -> bool:
    """Return whether an object may run other code later while it stays the same object."""
    return isinstance(value, _WRAPPERS) or not type(value).__flags__ & _IMMUTABLE_TYPE


def members(place: str, owner: type) -> Iterator[tuple[str, object]]:
    names = []
    for name, value in list(vars(owner).items()):
        method = _method(value)
        if method is not None:
            is_function = isinstance(method, FunctionType)
            yield f"{place}.{name}", code_of(method) if is_function else id(method)
            names.append(name)
    # An added method hides a base class's method.
    yield f"{place} (its methods)", tuple(sorted(names))


def _method(value: Any) -> Any:
    """Return the callable behind an attribute of a class; `None` for data and classes."""
    inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    return inner if callable(inner) and not isinstance(inner, type) else None


def code_of(function: FunctionType) -> tuple[int, ...]:
    """Return the ids of a function, its code, defaults and captured values: all can be replaced."""
    cells = function.__closure__ or ()
    return (
        id(function),
        id(function.__code__),
        id(function.__defaults__),
        *(id(_content(cell)) for cell in cells),
    )


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return cell
