"""Patches that keep Triton's interpreter from repeating work at every function call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from bt_bench.worker.machine.interpreted_operators import set_operators

_MOST_SHAPES = 10_000  # known at once, since some types have a shape of their own


def speed_up_interpreter() -> None:
    """Remove redundant work from Triton's interpreter; kernels compute the same.

    With Triton 3.9 the following takes more than half the time of a kernel that calls others:

    - Before each call of a kernel's function, the interpreter searches all names of the language
      and replaces the builtins among them. Later calls in a launch find nothing left to replace.
      Here the search runs once per launch and module, and later launches reuse its result.
    - Each look-up of a type builds a table of all types.
    - Integer overflow is computed, and the result dropped unless `debug` is on.
    - Each tensor and each block type makes new objects for the sizes of a shape.
    - Operands of equal shapes are broadcast to that very shape.
    - Each operation goes through all rules for the type of its result, and operators through more.

    Does nothing if Triton's interpreter is built differently.
    """
    from triton.runtime import interpreter

    language: Any = interpreter  # untyped, since its functions are replaced
    prepare = getattr(language, "_patch_lang", None)
    executor = getattr(language, "GridExecutor", None)
    if prepare is None or executor is None or hasattr(prepare, "original"):
        return
    launch = executor.__call__
    prepared: set[int] = set()  # modules, by their globals, in the current launch
    # Replacements by the first call of a launch, by `_languages_of`; undone after the launch.
    replaced: dict[Any, tuple[type[Any], list[tuple[Any, str, Any]]]] = {}
    # Later calls, by the first call's languages and their own. Their replacements stay, so once is
    # enough.
    later: set[Any] = set()
    first: list[Any] = []

    def prepare_once(function: Any) -> Any:
        # A launch restores the scope that its first call returns, and ignores those of later calls.
        if id(function.__globals__) in prepared:
            return None
        languages = _languages_of(function)
        is_first = not prepared
        prepared.add(id(function.__globals__))
        if is_first:
            first[:] = [languages]
            if languages in replaced:
                kind, values = replaced[languages]
                scope = kind()
                for owner, name, value in values:
                    scope.set_attr(owner, name, value)
                return scope
        elif (first[0], languages) in later:
            return None
        scope = prepare(function)
        set_operators(scope)
        changes = getattr(scope, "_changes", None)
        if not is_first:
            later.add((first[0], languages))
        elif isinstance(changes, list):
            names = dict.fromkeys((owner, name) for owner, name, _ in changes)
            values = [(owner, name, vars(owner)[name]) for owner, name in names]
            replaced[languages] = type(scope), values
        return scope

    def launch_anew(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepared.clear()
        try:
            return launch(self, *args, **kwargs)
        finally:
            prepared.clear()  # a hook may launch another kernel before its own

    _make_handles_at_once(language)
    if hasattr(language, "_get_np_dtype"):
        language._get_np_dtype = _looked_up_once(language._get_np_dtype)
    _make_shapes_once()
    _replace_rules()
    replacement: Any = prepare_once
    replacement.original, replacement.launch = prepare, launch
    language._patch_lang = replacement
    executor.__call__ = launch_anew


def _languages_of(function: Any) -> tuple[Any, ...]:
    """List the Triton language modules in a kernel's globals, and whether debug mode is on."""
    from triton import language
    from triton.runtime import interpreter

    options = getattr(getattr(interpreter, "interpreter_builder", None), "options", None)
    known = (language, language.core)
    there = [each for each in function.__globals__.values() if any(each is one for one in known)]
    return (*there, getattr(options, "debug", None))


def _make_handles_at_once(language: Any) -> None:
    """Make tensor handles without validating the size of their elements.

    The interpreter makes millions of handles, and all are valid unless the interpreter has a bug.
    """
    from triton.language import float64

    handle = getattr(language, "TensorHandle", None)

    def begin(self: Any, data: Any, dtype: Any, attr: Any = None) -> None:
        self.data, self.dtype = data, dtype
        self.attr = {} if attr is None else attr

    if handle is not None and _makes(handle, {"data", "dtype", "attr"}, np.zeros(1), float64):
        handle.__init__ = begin


def _looked_up_once(numpy_type: Any) -> Any:
    """Wrap the interpreter's conversion of Triton's types to NumPy's: no new table per call."""
    from triton import language

    known = cache(numpy_type)

    def numpy_type_of(type_: Any) -> Any:
        if isinstance(type_, language.block_type):
            type_ = type_.element_ty
        # Pointer types have no hash, and need no table.
        return (numpy_type if isinstance(type_, language.pointer_type) else known)(type_)

    return numpy_type_of


def _look_for_overflow_in_debug_alone(look: Any) -> Any:
    """Make Triton look for overflows only if `debug` is on; otherwise it drops the result."""

    def look_in_debug(self: Any, *arguments: Any) -> None:
        if self.builder.options.debug:
            look(self, *arguments)

    return look_in_debug


def _make_shapes_once() -> None:
    """Make tensors and block types of one shape share the objects for it."""
    from triton.language import core

    language: Any = core  # untyped, since its functions are replaced
    tensor, block = language.tensor, language.block_type
    make_tensor, make_block = tensor.__init__, block.__init__
    # A tensor's number of elements and shape, by the id of the sizes object that all types of a
    # shape share. The value holds that object too, which keeps the id valid.
    known: dict[int, Any] = {}
    sized: dict[Any, Any] = {}  # a type's sizes, number of elements and name prefix, by sizes

    def begin_tensor(self: Any, handle: Any, type: Any) -> None:  # noqa: A002
        sizes = type.shape if type.is_block() else ()
        found = known.get(id(sizes))
        if found is None:
            make_tensor(self, handle, type)
            if len(known) < _MOST_SHAPES:
                known[id(sizes)] = self.numel, self.shape, sizes
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape, _ = found

    def begin_block(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(shape)
        if sizes not in sized:
            make_block(self, element_ty, shape)
            name = self.name.removesuffix(f"{element_ty}>")
            sized[sizes] = self.shape, self.numel, name
            return
        self.element_ty = element_ty
        self.shape, self.numel, name = sized[sizes]
        self.name = f"{name}{element_ty}>"

    if _makes(tensor, {"handle", "type", "dtype", "numel", "shape"}, None, language.int32):
        tensor.__init__ = begin_tensor
    if _makes(block, {"element_ty", "shape", "numel", "name"}, language.int32, [4, 8]):
        block.__init__ = begin_block


def _makes(kind: Any, attributes: set[str], *arguments: Any) -> bool:
    """Return whether objects of a class have these attributes and no others."""
    try:
        return set(vars(kind(*arguments))) == attributes
    except TypeError:  # it takes other arguments
        return False


def _broadcast_where_shapes_differ(broadcast: Any) -> Any:
    """Leave operands of equal shapes unchanged instead of broadcasting them."""

    def broadcast_others(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left.is_block() and right.is_block() and _is_one(left.shape, right.shape):
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    return broadcast_others


def _is_one(left: Any, right: Any) -> bool:
    """Return whether two shapes are equal; `_make_shapes_once` makes them one object."""
    return left is right or bool(left == right)


def _find_types_of_results_once(find: Any) -> Any:
    """Cache the type of a result by the types of its operands."""
    known: dict[Any, Any] = {}

    def found(self: Any, *arguments: Any) -> Any:
        key = tuple([getattr(each, "name", each) for each in arguments])
        if key not in known:
            known[key] = find(self, *arguments)
        return known[key]

    return found


def _leave_operands_of_one_type(check: Any) -> Any:
    """Leave operands of one integer type unchanged."""
    from triton.language import core

    def check_others(self: Any, lhs: Any, rhs: Any, *arguments: Any, **options: Any) -> Any:
        if type(lhs) is core.tensor is type(rhs):
            left, right = lhs.type, rhs.type
            if left.name == right.name and lhs.dtype.is_int():
                return lhs, rhs
        return check(self, lhs, rhs, *arguments, **options)

    return check_others


# By the name of a rule of Triton's language: what makes its replacement.
_RULES: dict[str, Callable[[Any], Any]] = {
    "binary_op_sanitize_overflow_impl": _look_for_overflow_in_debug_alone,
    "broadcast_impl_value": _broadcast_where_shapes_differ,
    "computation_type_impl": _find_types_of_results_once,
    "binary_op_type_checking_impl": _leave_operands_of_one_type,
}


def _replace_rules() -> None:
    """Replace those rules of Triton's language that it has by these names."""
    try:
        from triton.language.semantic import TritonSemantic
    except ImportError:
        return
    for name, replacement_of in _RULES.items():
        if hasattr(TritonSemantic, name):
            setattr(TritonSemantic, name, replacement_of(getattr(TritonSemantic, name)))
