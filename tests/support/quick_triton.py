"""Run the kernels of a step in one launch in numpy, from their own files, and note each store.

Triton's interpreter takes some 5 ms for a program, most of it for objects around single values.
Here the sources are executed with a `triton.language` of numpy arrays, of which they use a dozen
functions; a program takes 0.2 ms. Loads and stores are those of Triton's interpreter, at the real
addresses. `tests/kernels/one_launch/test_cut.py` holds that both write the same to the same places.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
from types import ModuleType, SimpleNamespace

import numpy as np
import torch
from triton._C.libtriton import interpreter

MODULES = (
    "fields",
    "bundles",
    "parts",
    "staged_rows",
    "gathering",
    "mapping",
    "one_launch_parts",
    "input_parts",
    "one_launch_kernels",
)
PACKAGE = "bt_kernels.device_code"


class Value(np.ndarray):
    """A tensor of Triton's: an array with a conversion."""

    def to(self, kind):
        return Pointer(self, kind.element) if isinstance(kind, PointerType) else self.astype(kind)


def value(given, dtype=None):
    return np.asarray(given, dtype).view(Value)


class PointerType:
    def __init__(self, element):
        self.element = element


class Pointer:
    """Addresses of elements of a dtype."""

    def __init__(self, addresses, element):
        self.addresses, self.element = addresses, element

    def __add__(self, elements):
        moved = (
            self.addresses + np.asarray(elements).astype(np.int64) * np.dtype(self.element).itemsize
        )
        return Pointer(moved.view(Value), self.element)

    __radd__ = __add__

    def __sub__(self, elements):
        return self + (-elements)

    def __getitem__(self, index):
        return Pointer(self.addresses[index], self.element)

    def to(self, kind):
        if isinstance(kind, PointerType):
            return Pointer(self.addresses, kind.element)
        return self.addresses.astype(kind)

    @property
    def shape(self):
        return self.addresses.shape


class Language:
    """What the kernels use of `triton.language`; `stores` has the addresses of each program."""

    int1, int8, int32, int64 = np.bool_, np.int8, np.int32, np.int64
    constexpr = staticmethod(lambda given: given)
    pointer_type = PointerType

    def __init__(self):
        self.program = 0
        self.stores = None  # by program, unless nobody wants them

    def program_id(self, axis):
        return value(self.program, np.int32)

    @staticmethod
    def arange(begin, end):
        return np.arange(begin, end, dtype=np.int32).view(Value)

    @staticmethod
    def zeros(shape, dtype):
        return np.zeros(shape, dtype).view(Value)

    @staticmethod
    def zeros_like(given):
        return np.zeros_like(given).view(Value)

    @staticmethod
    def full(shape, filled, dtype):
        return np.full(shape, filled, dtype).view(Value)

    @staticmethod
    def where(chosen, one, other):
        return np.where(chosen, one, other).view(Value)

    @staticmethod
    def minimum(one, other):
        return np.minimum(one, other).view(Value)

    @staticmethod
    def maximum(one, other):
        return np.maximum(one, other).view(Value)

    @staticmethod
    def sum(given, axis):
        return np.add.reduce(given, axis=axis, dtype=given.dtype).view(Value)

    @staticmethod
    def max(given, axis):
        return np.maximum.reduce(given, axis=axis).view(Value)

    @staticmethod
    def multiple_of(given, _multiples):
        return given

    @staticmethod
    def load(pointer, mask=None, other=0):
        addresses, mask = _placed(pointer, mask)
        filled = np.full(addresses.shape, other, pointer.element)
        return interpreter.load(addresses, mask, filled, np.dtype(pointer.element)).view(Value)

    def store(self, pointer, given, mask=None):
        addresses, mask = _placed(pointer, mask)
        if self.stores is not None:
            written = addresses[mask].ravel()
            if len(written):
                self.stores.setdefault(self.program, []).append(written.astype(np.int64))
        interpreter.store(addresses, np.full(addresses.shape, given, pointer.element), mask)


def _placed(pointer, mask):
    addresses = np.array(pointer.addresses, np.uint64, order="C")
    return addresses, np.full(addresses.shape, True if mask is None else mask)


class QuickKernels:
    """The kernels of a step in one launch, from the files of the package that is imported."""

    def __init__(self):
        self.language = language = Language()
        triton = SimpleNamespace(jit=_jit, language=language)
        modules = {"triton": triton, "triton.language": language}

        def find(name, namespace=None, local=None, wanted=(), level=0):
            if name == "triton.language" and not wanted:
                return triton  # `import triton.language as tl` binds the attribute
            return (
                modules[name]
                if name in modules
                else builtins.__import__(name, namespace, local, wanted, level)
            )

        for name in MODULES:
            module = ModuleType(f"{PACKAGE}.{name}")
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": find}
            source = importlib.import_module(f"{PACKAGE}.{name}")
            code = compile(inspect.getsource(source), source.__file__, "exec")
            exec(code, module.__dict__)
            modules[module.__name__] = module
        self._modules = modules
        kernels = modules[f"{PACKAGE}.one_launch_kernels"]
        self.carrying = QuickKernel(language, kernels.one_launch_carrying_kernel)
        self.captured = QuickKernel(language, kernels.one_launch_captured_kernel)

    def function(self, module, name):
        """Return a function of a module, to be called with values and pointers."""
        return getattr(self._modules[f"{PACKAGE}.{module}"], name)

    def record(self):
        """Note stores from now on; return where they go, addresses by program."""
        self.language.stores = found = {}
        return found


class QuickKernel:
    """A kernel that is launched as Triton's."""

    def __init__(self, language, function):
        self._language, self._function = language, function

    def __getitem__(self, grid):
        def launch(*arguments, **_options):
            given = [_argument(argument) for argument in arguments]
            for program in range(grid[0]):
                self._language.program = program
                self._function(*given)

        return launch


def _jit(function=None, **_options):
    return function if function is not None else _jit


DTYPES = {torch.int32: np.int32, torch.int64: np.int64, torch.uint64: np.int64}


def _argument(given):
    if isinstance(given, torch.Tensor):
        return Pointer(value(given.data_ptr(), np.int64), DTYPES[given.dtype])
    if isinstance(given, int) and not isinstance(given, bool):
        return value(given, np.int32 if -(2**31) <= given < 2**31 else np.int64)
    return given
