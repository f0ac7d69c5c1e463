"""Data from processes that run users' code, read without running any of that code here.

Unpickling runs whatever a pickle names. Packed data names only bt-bench's classes that hold data:
enums, pydantic models, dataclasses and named tuples. Operations, paths and arrays of numbers have
tags of their own. Pickle's own format carries the rest: numbers, text, and collections of these.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from bt_bench.base.names import Operation

_OURS = "bt_bench."
_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset}
)
_NUMBERS = "biufc"  # kinds of numpy's types


@dataclass(frozen=True)
class Sealed:
    """A pickled object of users that this process only passes on.

    In the process that receives it, unpickling returns the original object.
    """

    content: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the sealed object."""
        return pickle.loads, (self.content,)


class NoDataError(Exception):
    """Bytes from another process that `pack` did not make."""


def pack(value: object) -> bytes:
    """Pack a value for another process.

    Raises:
        TypeError: if any part is neither plain data nor an object of a bt-bench class.
    """
    buffer = io.BytesIO()
    _Packer(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def unpack(packed: bytes) -> Any:
    """Return the packed value, without running code of another process.

    Raises:
        NoDataError: if the bytes are anything else.
    """
    try:
        return _Unpacker(io.BytesIO(packed)).load()
    except (NoDataError, MemoryError):
        raise
    except Exception as error:  # damaged bytes can raise anything
        raise NoDataError(f"{type(error).__name__}: {error}") from error


class _Packer(pickle.Pickler):
    """A pickler that writes each non-plain object as a persistent id: a tag, and plain data."""

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        kind = type(value)
        return None if kind in _PLAIN else _described(value, kind)


class _Unpacker(pickle.Unpickler):
    """An unpickler that makes objects from persistent ids alone, and refuses named globals."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NoDataError(f"names {module}.{name}; expected data alone")

    def persistent_load(self, described: Any) -> object:
        tag, *parts = described
        return _MADE[tag](*parts)


def _described(value: Any, kind: type[Any]) -> tuple[Any, ...]:
    if isinstance(value, Operation):
        return "operation", str(value), vars(value.traits) if value.is_known else {}
    if isinstance(value, os.PathLike):
        return "path", os.fspath(value)
    if kind.__module__ == "numpy" and _kind_of_numbers(value) in _NUMBERS:
        is_scalar = kind.__name__ != "ndarray"
        return "array", value.dtype.str, value.shape, value.tobytes(), is_scalar
    if kind.__module__.startswith(_OURS):
        if isinstance(value, Enum):
            return "enum", *_name(kind), value.value
        if isinstance(value, BaseModel):
            return "model", *_name(kind), dict(value)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return "dataclass", *_name(kind), {name: getattr(value, name) for name in names}
        if _is_named_tuple(kind):
            return "named tuple", *_name(kind), tuple(value)
        if isinstance(value, Sequence):  # which a model's field makes of a list
            return "plain", list(value)
    # A derived class may be foreign: keep only the value of its base.
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return "plain", base(value)
    for abstract, made in ((Mapping, dict), (Set, frozenset), (list, list), (tuple, tuple)):
        if isinstance(value, abstract):
            return "plain", made(value)
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no data for another process")


def _kind_of_numbers(value: Any) -> str:
    return getattr(getattr(value, "dtype", None), "kind", "none")


def _name(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _is_named_tuple(kind: type[Any]) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _made_array(dtype: str, shape: tuple[int, ...], content: bytes, is_scalar: bool) -> object:
    import numpy as np

    kind = np.dtype(str(dtype))
    if kind.kind not in _NUMBERS:
        raise NoDataError(f"an array of {kind}; expected numbers")
    array = np.frombuffer(content, kind).reshape(shape)
    return array[()] if is_scalar else array.copy()  # an array over bytes is read-only


def _made_enum(module: str, name: str, value: object) -> object:
    return _class(module, name, Enum)(value)


def _made_model(module: str, name: str, fields: dict[str, object]) -> object:
    kind = _class(module, name, BaseModel)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise NoDataError(f"no {name}: {error}") from error


def _made_dataclass(module: str, name: str, fields: dict[str, object]) -> object:
    kind = _class(module, name, object)
    if hasattr(kind, "__dataclass_fields__"):
        made: object = kind(**fields)
        return made
    raise NoDataError(f"names {module}.{name}; expected a dataclass")


def _made_named_tuple(module: str, name: str, values: tuple[object, ...]) -> object:
    kind = _class(module, name, tuple)
    if not _is_named_tuple(kind):
        raise NoDataError(f"names {module}.{name}; expected a named tuple")
    return kind(*values)


_MADE: Mapping[str, Callable[..., object]] = {
    "array": _made_array,
    "dataclass": _made_dataclass,
    "enum": _made_enum,
    "model": _made_model,
    "named tuple": _made_named_tuple,
    "operation": lambda name, traits: Operation(name, **traits),
    "path": Path,
    "plain": lambda value: value,
}


@cache
def _class(module: str, name: str, base: type[Any]) -> Any:
    """Return a class that a module of bt-bench defines itself."""
    if not module.startswith(_OURS):
        raise NoDataError(f"names {module}.{name}; expected a class of bt-bench")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = vars(found).get(part)
    if not isinstance(found, type) or found.__module__ != module or not issubclass(found, base):
        raise NoDataError(f"names {module}.{name}; expected a class of bt-bench that holds data")
    return found
