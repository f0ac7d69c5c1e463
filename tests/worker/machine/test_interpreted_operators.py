"""Operators in the interpreter give what the interpreter's own give: values, types and refusals."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

from bt_bench.worker.machine.interpreted_operators import set_operators

OPERATORS = (
    *("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__and__", "__or__"),
    *("__add__", "__radd__", "__sub__", "__mul__", "__rmul__", "__lshift__", "__rshift__"),
)
TYPES = (tl.int1, tl.int8, tl.int32, tl.int64, tl.uint32, tl.uint64, tl.float32)
POINTERS = tuple(tl.pointer_type(each) for each in (tl.int1, tl.int32, tl.int64))
SHAPES = ((), (4,), (2, 1))
NUMBERS = (0, 1, -1, 3, 63, 2**31 - 1, 2**31, -(2**31), 2**40, True, 2.5, tl.constexpr(5))


def jitted():
    """A function of a module that has the language."""
    return tl


def made(dtype, shape):
    """A tensor of the interpreter's, with values at both ends of its type."""
    rng = np.random.default_rng([len(shape), len(dtype.name)])
    kind = np.uint64 if dtype.is_ptr() else interpreter._get_np_dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if dtype.is_ptr():
        values = rng.integers(2**40, size=count)
    elif dtype.is_int():
        info = np.iinfo(kind) if kind != np.bool_ else np.iinfo(np.int8)
        values = rng.choice(np.array([info.min, info.max, 0, 1, 2, 77], dtype=object), size=count)
        values = values % 2 if kind == np.bool_ else values
    else:
        values = rng.standard_normal(count)
    data = values.astype(kind).reshape(shape or (1,))
    type_ = tl.block_type(dtype, list(shape)) if shape else dtype
    return tl.core.tensor(interpreter.TensorHandle(data, dtype), type_)


def told(function, *operands):
    """Tell what comes out: contents, types, or that it is refused."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = function(*operands)
        except Exception as error:
            return type(error).__name__
    if not isinstance(result, tl.core.tensor):
        return result
    data = result.handle.data
    return data.shape, data.dtype, data.tolist(), result.type.name, result.dtype.name


def assert_the_same(language, function, calls, *replaced):
    """Make calls without what is replaced, with it, and once it knows them."""
    before = [told(function, *call) for call in calls]
    language()
    assert all(hasattr(each(), "slow") for each in replaced)
    for _ in range(2):
        found = [told(function, *call) for call in calls]
        # As texts, since not every number is equal to itself.
        wrong = [t for t in zip(calls, before, found, strict=True) if repr(t[1]) != repr(t[2])]
        assert wrong == []


@pytest.fixture
def language():
    """The language as in a launch, and how to put the operators in place."""
    prepare = getattr(interpreter._patch_lang, "original", interpreter._patch_lang)
    scope = prepare(jitted)
    yield lambda: set_operators(scope)
    scope.restore()


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_what_the_interpreter_gives(language, name):
    tensors = [made(dtype, shape) for dtype in TYPES for shape in SHAPES]
    pointers = [made(dtype, shape) for dtype in POINTERS for shape in SHAPES]
    pairs = [
        *itertools.product(tensors, [*tensors, *NUMBERS]),
        *itertools.product(pointers, [*tensors[::3], *pointers[::4], *NUMBERS]),
        *itertools.product(tensors[::3], pointers[::4]),
    ]

    def function(one, other):
        return getattr(one, name)(other)

    assert_the_same(language, function, pairs, lambda: getattr(tl.core.tensor, name))


def test_where_gives_what_the_interpreter_gives(language):
    conditions = [made(tl.int1, shape) for shape in SHAPES] + [made(tl.int32, (4,))]
    tensors = [made(dtype, shape) for dtype in TYPES for shape in SHAPES[:2]]
    choices = [*tensors, made(POINTERS[1], (4,)), 0, -1, 2**40, 2.5, tl.constexpr(7)]
    threes = list(itertools.product(conditions, choices, choices))
    assert_the_same(language, lambda *three: tl.where(*three), threes, lambda: tl.where)


# Other values at each offset, in each type.
MEMORY = np.arange(64, dtype=np.int64) * 2**55 + 3


def pointers_into(dtype, shape):
    """Addresses of elements of `MEMORY`, which a test keeps."""
    count = int(np.prod(shape, dtype=int))
    data = (MEMORY.ctypes.data + 8 * np.arange(count)).astype(np.uint64).reshape(shape or (1,))
    kind = tl.pointer_type(dtype)
    type_ = tl.block_type(kind, list(shape)) if shape else kind
    return tl.core.tensor(interpreter.TensorHandle(data, kind), type_)


@pytest.mark.parametrize("named", [False, True])
def test_load_gives_what_the_interpreter_gives(language, named):
    kinds = (*TYPES, POINTERS[1])
    pointers = [pointers_into(dtype, shape) for dtype in kinds for shape in SHAPES]
    pointers += [made(tl.int64, (4,))]  # is refused
    masks = [None, *(made(tl.int1, shape) for shape in SHAPES), made(tl.int32, (4,)), True]
    others = [None, 0, -1, 7, 2**31, 2**40, 2**64, 2.5, True, tl.constexpr(5), made(tl.int8, (4,))]
    # Where `other` is wider than the pointers, the interpreter reads masks past their end.
    calls = [
        (pointer, mask, other)
        for pointer, mask, other in itertools.product(pointers, masks, others)
        if not (isinstance(other, tl.core.tensor) and pointer.handle.data.shape == (2, 1))
    ]
    load = (lambda *c: tl.load(c[0], mask=c[1], other=c[2])) if named else lambda *c: tl.load(*c)
    assert_the_same(language, load, calls, lambda: tl.load)


def test_what_is_known_of_a_load_is_not_changed_by_who_loads(language):
    language()
    none = interpreter.TensorHandle(np.zeros(4, dtype=bool), tl.int1)
    mask = tl.core.tensor(none, tl.block_type(tl.int1, [4]))
    for _ in range(3):
        loaded = tl.load(pointers_into(tl.int32, (4,)), mask, 9)
        assert loaded.handle.data.tolist() == [9] * 4
        loaded.handle.data[:] = 1


@pytest.mark.parametrize("masked", [False, True])
def test_each_load_is_guarded(language, masked, monkeypatch):
    seen = []
    builder = interpreter.InterpreterBuilder
    load = builder.create_masked_load

    def guarded(self, ptrs, mask, *more):
        seen.append((ptrs.data.tolist(), mask.data.tolist()))
        return load(self, ptrs, mask, *more)

    guarded.__wrapped__ = load
    monkeypatch.setattr(builder, "create_masked_load", guarded)
    language()
    pointer = pointers_into(tl.int32, (4,))
    mask = made(tl.int1, (4,)) if masked else None
    for count in (1, 2, 3):
        tl.load(pointer, mask)
        assert len(seen) == count
    through = mask.handle.data.tolist() if masked else [True] * 4
    assert seen == [(pointer.handle.data.tolist(), through)] * 3


CASTS = {
    "function": lambda value, dtype: tl.cast(value, dtype),
    "method": lambda value, dtype: value.to(dtype),
    "bits": lambda value, dtype: tl.cast(value, dtype, bitcast=True),
}


@pytest.mark.parametrize("how", CASTS)
def test_cast_gives_what_the_interpreter_gives(language, how):
    kinds = (*TYPES, *POINTERS)
    values = [made(dtype, shape) for dtype in kinds for shape in SHAPES]
    targets = (*kinds, tl.block_type(tl.int64, [4]), tl.constexpr(tl.int32), tl.bfloat16, tl.void)
    pairs = list(itertools.product([*values, 5, tl.constexpr(7)], targets))
    assert_the_same(language, CASTS[how], pairs, lambda: tl.cast, lambda: tl.core.tensor.to)


def test_overflow_is_left_to_the_interpreter_in_debug(language, monkeypatch):
    from dataclasses import replace

    options = replace(interpreter.interpreter_builder.options, debug=True)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)
    language()
    assert not hasattr(tl.core.tensor.__add__, "slow")
