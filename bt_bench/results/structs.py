"""The data types of a result as msgspec structs, which are read many times faster.

They are made from the pydantic types, so a result is defined only once: they have the same fields,
types, bounds and defaults, and refuse unknown keys. They have no methods and their errors say
little, so a text that they refuse is read again with pydantic for the message.
"""

from __future__ import annotations

import functools
import types
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from bt_bench.results.nouns import Noun

_BOUNDS = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt"}


@functools.cache
def struct_of(noun: type[Noun]) -> type[msgspec.Struct]:
    """The struct of a noun, and of all nouns in it.

    Raises:
        TypeError: for a field whose type has no counterpart.
    """
    fields: list[Any] = []
    for name, info in noun.model_fields.items():
        kind = _bounded(_type_of(info.annotation), info.metadata)
        if info.is_required():
            fields.append((name, kind))
        else:
            default = info.get_default(call_default_factory=True)
            fields.append((name, kind, default))
    return msgspec.defstruct(
        noun.__name__,
        fields,
        forbid_unknown_fields=True,
        kw_only=True,
        gc=False,  # they have no reference cycles
    )


def _type_of(annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, *notes = arguments
        inner = [m for n in notes for m in (n.metadata if isinstance(n, FieldInfo) else [n])]
        return _bounded(_type_of(kind), inner)
    if origin in (Union, types.UnionType):
        return Union[tuple(_type_of(argument) for argument in arguments)]  # noqa: UP007
    if origin is list:
        return list[_type_of(*arguments)]  # type: ignore[misc]
    if origin is dict:
        key, value = arguments
        return dict[_type_of(key), _type_of(value)]  # type: ignore[misc]
    if origin is Literal or annotation in (str, int, float, bool, types.NoneType):
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, Noun):
        return struct_of(annotation)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return annotation
    raise TypeError(
        f"{annotation} has no counterpart in a struct; add it to bt_bench/results/structs.py"
    )


def _bounded(kind: Any, metadata: list[Any]) -> Any:
    """The type with its bounds; other restrictions must be handled here."""
    bounds = {}
    for note in metadata:
        name = _BOUNDS.get(type(note))
        if name is None:
            raise TypeError(f"{note!r} has no counterpart in a struct")
        bounds[name] = getattr(note, name)
    return Annotated[kind, msgspec.Meta(**bounds)] if bounds else kind
