"""A digest of host data, which identifies equal workloads."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

import numpy as np


def digest_of(*values: object) -> str:
    """Return the SHA-256 over values and all that is in them: equal digests mean equal data.

    Args:
        values: numbers, text, None, numpy arrays, and lists, tuples, sets, mappings and
            dataclasses of these, without fields whose metadata has `digest` as False.

    Raises:
        TypeError: for anything else, whose `repr` might hold an address.
    """
    state = hashlib.sha256()
    for value in values:
        _add(state, value)
    return state.hexdigest()


def _add(state: hashlib._Hash, value: object) -> None:
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        state.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, np.ndarray):
        state.update(f"array:{value.dtype.str}{value.shape};".encode())
        state.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        _add_all(state, "mapping", [item for pair in value.items() for item in pair])
    elif isinstance(value, set | frozenset):
        _add_all(state, "set", sorted(value, key=repr))
    elif isinstance(value, list | tuple):
        _add_all(state, "list", value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.metadata.get("digest", True)]
        _add(state, {name: getattr(value, name) for name in fields})
    else:
        raise TypeError(
            f"{type(value).__name__} is in a workload; expected numbers, text, numpy arrays, and "
            "lists, mappings or dataclasses of these, or a digest() of the workload's own"
        )


def _add_all(state: hashlib._Hash, kind: str, items: list[object] | tuple[object, ...]) -> None:
    state.update(f"{kind}:{len(items)};".encode())
    for item in items:
        _add(state, item)
