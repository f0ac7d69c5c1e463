"""Bounds for kernels under Triton's interpreter, where a stray store would hit Python's heap.

On the CPU a pointer is a plain address: a kernel that writes past a table can abort the process,
or spoil another tensor without a trace. While the guard is on, every address that an interpreted
kernel loads from or stores to must lie in a tensor that belongs to the variant or was passed to
the launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_DEPTH = 4  # how far tensors are looked for inside of a variant's attributes


class OutOfBoundsError(Exception):
    """An interpreted kernel left the memory that belongs to its variant."""


@contextmanager
def guarded_memory(*owners: object) -> Iterator[None]:
    """Checks every access of the kernels that are interpreted in the `with` block.

    Args:
        owners: objects whose tensors, also in attributes and containers, may be accessed.

    Raises:
        OutOfBoundsError: on the first access outside, before it is made.
    """
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    guard = _Guard(owners)
    builder: Any = InterpreterBuilder  # its methods are replaced, which types do not foresee
    load, store = builder.create_masked_load, builder.create_masked_store
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas
    run = InterpretedFunction.run

    def guarded_load(self: Any, ptrs: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        guard.check("reads", ptrs, mask, self)
        return load(self, ptrs, mask, *args, **kwargs)

    def guarded_store(self: Any, ptrs: Any, value: Any, mask: Any, *args: Any, **kw: Any) -> Any:
        guard.check("writes", ptrs, mask, self)
        return store(self, ptrs, value, mask, *args, **kw)

    def guarded_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *args: Any) -> Any:
        guard.check("updates", ptr, mask, self)
        return rmw(self, op, ptr, val, mask, *args)

    def guarded_cas(self: Any, ptr: Any, *args: Any) -> Any:
        guard.check("updates", ptr, None, self)
        return cas(self, ptr, *args)

    def guarded_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard.enter(self.fn.__name__, args)
        try:
            return run(self, *args, **kwargs)
        except Exception:
            guard.reraise()
            raise

    builder.create_masked_load, builder.create_masked_store = guarded_load, guarded_store
    builder.create_atomic_rmw, builder.create_atomic_cas = guarded_rmw, guarded_cas
    InterpretedFunction.run = guarded_run
    try:
        yield
    finally:
        builder.create_masked_load, builder.create_masked_store = load, store
        builder.create_atomic_rmw, builder.create_atomic_cas = rmw, cas
        InterpretedFunction.run = run


class _Guard:
    """The memory that may be accessed, as sorted intervals of addresses."""

    def __init__(self, owners: tuple[object, ...]) -> None:
        self._owners = owners
        self._kernel = ""
        self._starts = np.zeros(0, dtype=np.int64)
        self._ends = np.zeros(0, dtype=np.int64)
        self._error: OutOfBoundsError | None = None

    def enter(self, kernel: str, arguments: Iterable[object]) -> None:
        """A launch begins; what its owners hold may have changed since the last."""
        self._kernel = kernel
        spans = sorted(
            (tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size())
            for tensor in _tensors_in((self._owners, tuple(arguments)), _DEPTH)
        )
        self._starts = np.array([start for start, _ in spans], dtype=np.int64)
        # A view may lie inside a longer tensor that starts before it.
        self._ends = np.maximum.accumulate(np.array([end for _, end in spans], dtype=np.int64))

    def check(self, verb: str, pointers: Any, mask: Any, builder: Any) -> None:
        """Checks the addresses of one load or store that the mask lets through."""
        addresses = np.asarray(pointers.data).reshape(-1)
        let_through = np.True_ if mask is None else np.asarray(mask.data)
        active = np.broadcast_to(let_through, np.shape(pointers.data)).reshape(-1)
        addresses = addresses[active.astype(bool)].astype(np.int64)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (place >= 0) & (addresses + size <= self._ends[place])
        if not inside.all():
            program = tuple(int(index) for index in builder.grid_idx)
            self._error = OutOfBoundsError(
                f"{self._kernel}, program {program}, {verb} {int((~inside).sum())} elements "
                "outside of every tensor of the variant"
            )
            raise self._error

    def reraise(self) -> None:
        """Raises the guard's own error, which the interpreter has wrapped into one of its own."""
        if self._error is not None:
            raise self._error


def _tensors_in(value: object, depth: int) -> Iterator[torch.Tensor]:
    """Tensors in a value, in its items and in its attributes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth == 0 or isinstance(value, (str, bytes, int, float, np.ndarray, type)):
        return
    elif isinstance(value, Mapping):
        yield from _tensors_in(tuple(value.values()), depth - 1)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            # Containers are transparent: depth counts attributes.
            yield from _tensors_in(item, depth)
    elif hasattr(value, "__dict__"):
        yield from _tensors_in(tuple(vars(value).values()), depth - 1)
