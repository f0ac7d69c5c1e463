"""Integer operators for Triton's interpreter, without a search for rules at each operation.

For each `a + b` of a kernel, the interpreter finds the type of the result, converts both operands
and brings them to one shape. All that follows from the operands' types. Here it is found once for
each pair of types, by the interpreter's own rules, and cached.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

_COMPARISONS: dict[str, np.ufunc] = {
    "__lt__": np.less,
    "__le__": np.less_equal,
    "__gt__": np.greater,
    "__ge__": np.greater_equal,
    "__eq__": np.equal,
    "__ne__": np.not_equal,
}
_BITWISE: dict[str, np.ufunc] = {"__and__": np.bitwise_and, "__or__": np.bitwise_or}
_ARITHMETIC: dict[str, np.ufunc] = {
    "__add__": np.add,
    "__radd__": np.add,
    "__sub__": np.subtract,
    "__mul__": np.multiply,
    "__rmul__": np.multiply,
}
_SHIFTS: dict[str, np.ufunc] = {"__lshift__": np.left_shift, "__rshift__": np.right_shift}
_MOVES = frozenset({"__add__", "__radd__"})  # operators that move a pointer
_MOST_KNOWN = 20_000  # pairs of operands: numbers are told apart by value


class _Way(NamedTuple):
    """The conversions and result type of an operator for two operand types.

    Args:
        dtype: both operands are converted to it.
        other: the second operand, where it is a number; else `None`.
        scalar: the type of the result's elements, as the interpreter notes it.
        type: the type of the result.
        width: bytes of an element, where the first operand is a pointer that is moved.
    """

    dtype: np.dtype[Any]
    other: Any
    scalar: Any
    type: Any
    width: int = 0


def set_operators(scope: Any) -> None:
    """Replace the operators of `tl.tensor` until the scope ends.

    Args:
        scope: the interpreter's patches for a launch. Nothing happens if it is built differently.
    """
    import triton.language
    from triton.language import core
    from triton.runtime import interpreter

    language: Any = interpreter  # untyped, since its functions are replaced
    options = getattr(language.interpreter_builder, "options", None)
    if not hasattr(scope, "set_attr") or getattr(options, "debug", True):
        return  # in debug the interpreter looks for overflow
    ufuncs = _COMPARISONS | _BITWISE | _ARITHMETIC | _SHIFTS
    functions = {"where": _where, "load": _load, "cast": _cast}
    replacements: list[tuple[Any, str, Callable[[Any, Any], Callable[..., Any]]]] = [
        *((core.tensor, name, partial(_operator, name, ufunc)) for name, ufunc in ufuncs.items()),
        *((owner, *item) for owner in (triton.language, core) for item in functions.items()),
        (core.tensor, "to", _cast),
    ]
    for owner, name, make in replacements:
        slow = getattr(owner, name, None)
        if slow is not None and not hasattr(slow, "slow"):
            replacement: Any = make(slow, language)
            # The interpreter calls `__ne__` and others through `functools.wraps`.
            replacement.slow = slow
            scope.set_attr(owner, name, replacement)


_known: dict[str, dict[Any, _Way | None]] = {}


def _operator(name: str, function: np.ufunc, slow: Any, language: Any) -> Callable[..., Any]:
    from triton.language import core

    known = _known.setdefault(name, {})
    handle_of, tensor, constexpr = language.TensorHandle, core.tensor, core.constexpr

    def operator(self: Any, other: Any, **options: Any) -> Any:
        value = other.value if type(other) is constexpr else other
        kind = type(value)
        if kind is tensor:
            key = self.type.name, value.type.name
        elif kind is int:
            key = self.type.name, value
        else:
            return slow(self, other, **options)
        if key not in known:
            if len(known) > _MOST_KNOWN:
                known.clear()
            known[key] = _way(name, self, value, language)
        way = known[key]
        if way is None:
            return slow(self, other, **options)
        left = self.handle.data
        if way.width:
            right = way.other
            if right is None:
                right = value.handle.data.astype(np.uint64) * np.uint64(way.width)
            return tensor(handle_of(left + right, self.handle.dtype), way.type)
        if left.dtype != way.dtype:
            left = left.astype(way.dtype)
        right = way.other
        if right is None:
            right = value.handle.data
            if right.dtype != way.dtype:
                right = right.astype(way.dtype)
        return tensor(handle_of(function(left, right), way.scalar), way.type)

    return operator


def _where(slow: Any, language: Any) -> Callable[..., Any]:
    """Make a `tl.where` that caches the type of its result by the types of its operands."""
    from triton.language import core

    known: dict[Any, tuple[Any, Any]] = {}
    handle_of, tensor, constexpr = language.TensorHandle, core.tensor, core.constexpr

    def where(condition: Any, x: Any, y: Any, **options: Any) -> Any:
        one = x.value if type(x) is constexpr else x
        other = y.value if type(y) is constexpr else y
        if type(condition) is not tensor or options:
            return slow(condition, x, y, **options)
        key = condition.type.name, _name(one, tensor), _name(other, tensor)
        way = known.get(key)
        if way is None:
            result = slow(condition, x, y)
            if None not in key and condition.handle.data.dtype == np.bool_:
                known[key] = result.type, result.handle.data.dtype
            return result
        type_, dtype = way
        chosen = np.where(condition.handle.data, _in(dtype, one), _in(dtype, other))
        return tensor(handle_of(chosen, type_.scalar), type_)

    return where


def _load(slow: Any, language: Any) -> Callable[..., Any]:
    """Make a `tl.load` that caches everything that follows from the types of its operands."""
    from triton.language import core

    known: dict[Any, tuple[Any, Any, Any] | None] = {}
    handle_of, tensor, constexpr = language.TensorHandle, core.tensor, core.constexpr
    builder = language.interpreter_builder
    count = _loads_with(language)
    everything: dict[Any, Any] = {}  # masks of ones, by shape

    def load(pointer: Any, mask: Any = None, other: Any = None, **options: Any) -> Any:
        number = other.value if type(other) is constexpr else other
        if (
            options
            or count is None
            or type(pointer) is not tensor
            or not (type(mask) is tensor or (mask is None and number is None))
            or not (number is None or type(number) is int)
        ):
            return slow(pointer, mask, other, **options)
        addresses = pointer.handle
        shape = addresses.data.shape
        key = pointer.type.name, mask is None or mask.type.name, number, shape
        if key not in known:
            if len(known) > _MOST_KNOWN:
                known.clear()
            known[key] = _filled(pointer, mask, number, language)
            everything[shape] = handle_of(np.ones(shape, dtype=bool), core.int1)
        way = known[key]
        through = everything.get(shape) if mask is None else mask.handle
        if way is None or through is None or through.data.shape != shape:
            return slow(pointer, mask, other)
        scalar, instead, type_ = way
        read = builder.create_masked_load(
            addresses, through, handle_of(instead, scalar), *(None,) * count
        )
        return tensor(read, type_)

    return load


def _filled(
    pointer: Any, mask: Any, number: int | None, language: Any
) -> tuple[Any, Any, Any] | None:
    """Return element type, fill values and result type of a load.

    `None`: the load is left to the interpreter.
    """
    scalar = pointer.type.scalar
    if not scalar.is_ptr() or not _is_integer(scalar.element_ty):
        return None
    if mask is not None:
        shapes = [each.type.shape if each.type.is_block() else () for each in (pointer, mask)]
        if shapes[0] != shapes[1] or not mask.type.scalar.is_bool():
            return None
    element = scalar.element_ty
    dtype = np.dtype(language._get_np_dtype(element))
    value = number or 0
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        return None
    type_ = pointer.type.with_element_ty(element) if pointer.type.is_block() else element
    return element, np.full(pointer.handle.data.shape, value, dtype), type_


def _loads_with(language: Any) -> int | None:
    """Count the parameters of the interpreter's load after pointers, mask and other.

    `None` if it is built differently. These parameters control caching, which is not interpreted.
    """
    function = getattr(language.InterpreterBuilder, "create_masked_load", None)
    function = getattr(function, "__wrapped__", function)
    if function is None:
        return None
    names = [*inspect.signature(function).parameters]
    return len(names) - 4 if names[:4] == ["self", "ptrs", "mask", "other"] else None


def _cast(slow: Any, language: Any) -> Callable[..., Any]:
    """Make a `tl.cast` that caches the result types of integers, by source and target type."""
    from triton.language import core

    known: dict[Any, tuple[Any, Any, Any]] = {}
    handle_of, tensor, kinds = language.TensorHandle, core.tensor, core.dtype

    def cast(value: Any, dtype: Any, *more: Any, **options: Any) -> Any:
        if type(value) is not tensor or not isinstance(dtype, kinds) or more or options:
            return slow(value, dtype, *more, **options)
        key = value.type.name, dtype.name
        way = known.get(key)
        if way is None:
            result = slow(value, dtype)
            before, after = value.type.scalar, result.type.scalar
            # The interpreter takes two integers of 32 bits for one address.
            if (
                before != after
                and _is_integer(before)
                and (_is_integer(after) or (after.is_ptr() and before.int_bitwidth == 64))
            ):
                known[key] = result.handle.data.dtype, result.handle.dtype, result.type
            return result
        made, scalar, type_ = way
        return tensor(handle_of(value.handle.data.astype(made), scalar), type_)

    return cast


def _is_integer(scalar: Any) -> bool:
    """Return whether a type is an integer type of more than one bit."""
    return bool(scalar.is_int() and not scalar.is_bool())


def _in(dtype: np.dtype[Any], value: Any) -> Any:
    """Convert a tensor's contents, or a number, to a dtype."""
    if isinstance(value, int):
        return np.array([value], dtype)
    data = value.handle.data
    return data if data.dtype == dtype else data.astype(dtype)


def _name(value: Any, tensor: Any) -> str | int | None:
    """Return the part of a result type's key for an operand; `None`: left to the interpreter."""
    if type(value) is tensor:
        return None if value.type.scalar.is_ptr() else str(value.type.name)
    return value if type(value) is int and abs(value) < 2**31 else None


def _way(name: str, left: Any, right: Any, language: Any) -> _Way | None:
    """Find how an operator works for two operands' types; `None`: left to the interpreter."""
    semantic = language.interpreter_semantic
    is_number = isinstance(right, int)
    if left.type.scalar.is_ptr():
        return None if name not in _MOVES else _move(left, right, semantic)
    if name in _SHIFTS and not (is_number and 0 <= right < left.type.scalar.primitive_bitwidth):
        return None
    try:
        one, other = semantic.binary_op_type_checking_impl(left, right)
    except Exception:  # the interpreter then refuses it too
        return None
    scalar = one.type.scalar
    if not scalar.is_int() or scalar != other.type.scalar:
        return None
    dtype = np.dtype(language._get_np_dtype(scalar))
    if dtype == np.bool_ and (name in _ARITHMETIC or name in _SHIFTS):
        return None  # one bit wraps around
    value = np.array([right], dtype) if is_number else None
    result = semantic._bool_like(one) if name in _COMPARISONS else one.type
    return _Way(dtype, value, scalar, result)


def _move(pointer: Any, offset: Any, semantic: Any) -> _Way | None:
    """Find how a pointer is moved by a number, or by signed integers."""
    if not isinstance(offset, int) and not offset.type.scalar.is_int_signed():
        return None
    try:
        moved = semantic.add(pointer, offset, False)
    except Exception:  # the interpreter then refuses it too
        return None
    width = max(1, pointer.type.scalar.element_ty.primitive_bitwidth // 8)
    value = None
    if isinstance(offset, int):
        value = np.array([offset], np.int64).astype(np.uint64) * np.uint64(width)
    return _Way(np.dtype(np.uint64), value, pointer.handle.dtype, moved.type, width)
