"""Speeds up Triton's interpreter by not repeating work at every function call."""

from __future__ import annotations

from functools import cache
from typing import Any


def speed_up_interpreter() -> None:
    """Leaves out what Triton's interpreter repeats for nothing; kernels compute the same.

    With Triton 3.9 the following takes more than half of the time of a kernel that calls others:

    - Before it calls any function of a kernel, the interpreter looks through all names of the
      language and replaces the builtins among them. Later calls of a launch find nothing left to
      replace, so here it does that once per launch and module.
    - To look up one type it builds a table of all types.
    - It computes whether integers overflow and drops the result, unless `debug` is on.

    Does nothing if Triton's interpreter is built differently.
    """
    from triton.runtime import interpreter

    language: Any = interpreter  # untyped, since its functions are replaced
    prepare = getattr(language, "_patch_lang", None)
    executor = getattr(language, "GridExecutor", None)
    if prepare is None or executor is None or hasattr(prepare, "original"):
        return
    launch = executor.__call__
    prepared: set[int] = set()  # modules, by their globals, in the launch that is under way

    def prepare_once(function: Any) -> Any:
        # A launch restores what its first call returns; those of other calls are not looked at.
        if id(function.__globals__) in prepared:
            return None
        prepared.add(id(function.__globals__))
        return prepare(function)

    def launch_anew(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepared.clear()
        try:
            return launch(self, *args, **kwargs)
        finally:
            prepared.clear()  # a hook may launch a kernel before the kernel that it belongs to

    if hasattr(language, "_get_np_dtype"):
        language._get_np_dtype = _looked_up_once(language._get_np_dtype)
    _look_for_overflow_in_debug_alone()
    replacement: Any = prepare_once
    replacement.original, replacement.launch = prepare, launch
    language._patch_lang = replacement
    executor.__call__ = launch_anew


def _looked_up_once(numpy_type: Any) -> Any:
    """The interpreter's function from Triton's types to NumPy's, without a new table per call."""
    from triton import language

    known = cache(numpy_type)

    def numpy_type_of(type_: Any) -> Any:
        if isinstance(type_, language.block_type):
            type_ = type_.element_ty
        # Those of pointers have no hash, and no need of the table.
        return (numpy_type if isinstance(type_, language.pointer_type) else known)(type_)

    return numpy_type_of


def _look_for_overflow_in_debug_alone() -> None:
    """Makes Triton look for overflows only if `debug` is on; otherwise it drops what it finds."""
    try:
        from triton.language.semantic import TritonSemantic
    except ImportError:
        return
    semantic: Any = TritonSemantic
    name = "binary_op_sanitize_overflow_impl"
    look = getattr(semantic, name, None)
    if look is None:
        return

    def look_in_debug(self: Any, *arguments: Any) -> None:
        if self.builder.options.debug:
            look(self, *arguments)

    setattr(semantic, name, look_in_debug)
