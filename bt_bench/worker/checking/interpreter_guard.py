"""A guard against out-of-bounds accesses and races of kernels under Triton's interpreter.

On the CPU a pointer is a plain address: a kernel that writes past a tensor can abort the process,
or spoil another tensor without a trace. While the guard is on, every address that an interpreted
kernel loads from or stores to must lie in a tensor that belongs to the variant or was passed to
the launch. No program of a launch may access an element that another program of it writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any

import numpy as np
import torch

from bt_bench.results import ReasonCode
from bt_bench.worker.checking.races import Access, Accesses, Int64Array, Race
from bt_bench.worker.tasks.failures import MemoryFaultError

_DEPTH = 4  # levels of attributes and mappings to search for tensors
# Types that hold no tensors.
_LEAVES = (str, bytes, int, float, np.ndarray, type)
# Operations of the interpreter, some missing in some versions, with the kind of access and the
# positions of the arguments for pointers and mask.
_OPERATIONS: dict[str, tuple[Access, int, int | None]] = {
    "create_masked_load": (Access.READ, 0, 1),
    "create_masked_store": (Access.WRITE, 0, 2),
    "create_atomic_rmw": (Access.ATOMIC, 1, 3),
    "create_atomic_cas": (Access.ATOMIC, 0, None),
    "create_atomic_load": (Access.ATOMIC, 0, 1),
    "create_atomic_store": (Access.ATOMIC, 0, 2),
    "create_atomic_poll": (Access.ATOMIC, 0, None),
}


class OutOfBoundsError(MemoryFaultError):
    """An interpreted kernel left the memory that belongs to its variant."""

    code = ReasonCode.OUT_OF_BOUNDS


class RaceError(MemoryFaultError):
    """Two programs of one launch access the same element, and at least one writes it."""

    code = ReasonCode.RACE


@contextmanager
def guarded_memory(*owners: object) -> Iterator[None]:
    """Check every access of kernels that are interpreted in the `with` block.

    Args:
        owners: objects whose tensors, also in attributes and containers, may be accessed.

    Raises:
        OutOfBoundsError: on the first access outside those tensors, before it is made.
        RaceError: after the first launch that has a race.
    """
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    guard = _Guard(owners)
    builder: Any = InterpreterBuilder  # untyped, since its methods are replaced
    operations = {
        name: getattr(builder, name)
        for name, (access, *_) in _OPERATIONS.items()
        # A Triton may lack an atomic operation; a load or store of another name must not go unseen.
        if access is not Access.ATOMIC or hasattr(builder, name)
    }
    run = InterpretedFunction.run

    def guarded_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard.enter(self.fn.__name__, dict(zip(self.arg_names, args, strict=False)) | kwargs)
        try:
            result = run(self, *args, **kwargs)
        except Exception:
            guard.reraise()
            raise
        guard.leave()
        return result

    for name, operation in operations.items():
        setattr(builder, name, _guarded(guard, operation, *_OPERATIONS[name]))
    InterpretedFunction.run = guarded_run
    try:
        yield
    finally:
        for name, operation in operations.items():
            setattr(builder, name, operation)
        InterpretedFunction.run = run


def guard_on(device: torch.device) -> Callable[..., AbstractContextManager[None]]:
    """Return `guarded_memory` for the CPU; on a GPU, where nothing is interpreted, no guard."""
    return guarded_memory if device.type == "cpu" else lambda *_: nullcontext()


def _guarded(
    guard: _Guard, operation: Any, access: Access, pointers_at: int, mask_at: int | None
) -> Any:
    """Wrap an operation of the interpreter, which is called with positions, in a check."""

    @wraps(operation)  # callers look up the parameters of a load
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        mask = None if mask_at is None else args[mask_at]
        guard.check(access, args[pointers_at], mask, self)
        if access is not Access.ATOMIC:
            return operation(self, *args, **kwargs)
        with guard.paused():  # some go through a plain load or store
            return operation(self, *args, **kwargs)

    return guarded


class _Guard:
    """The memory that may be accessed, as sorted intervals of addresses, and the accesses made."""

    def __init__(self, owners: tuple[object, ...]) -> None:
        self._owners = owners
        self._kernel = ""
        self._arguments: Mapping[str, object] = {}
        self._grid = (1, 1, 1)
        self._starts = np.zeros(0, dtype=np.int64)
        self._ends = np.zeros(0, dtype=np.int64)
        self._listed_starts: list[int] = []
        self._listed_ends: list[int] = []
        self._accesses = Accesses()
        self._paused = False
        self._error: OutOfBoundsError | None = None

    def enter(self, kernel: str, arguments: Mapping[str, object]) -> None:
        """Begin a launch; read the owners' tensors anew, as they may have changed."""
        self._kernel = kernel
        self._arguments = arguments
        self._accesses = Accesses()
        spans = sorted(_span(tensor) for _, tensor in self._tensors())
        self._starts = np.array([start for start, _ in spans], dtype=np.int64)
        # A view may lie inside a longer tensor that starts before it.
        self._ends = np.maximum.accumulate(np.array([end for _, end in spans], dtype=np.int64))
        self._listed_starts, self._listed_ends = self._starts.tolist(), self._ends.tolist()

    def leave(self) -> None:
        """End a launch.

        Raises:
            RaceError: if two of its programs raced.
        """
        race = self._accesses.race()
        if race is not None:
            raise RaceError(self._describe(race))

    def check(self, access: Access, pointers: Any, mask: Any, builder: Any) -> None:
        """Check and record the addresses of one operation that its mask selects.

        Raises:
            OutOfBoundsError: for an element outside the memory that may be accessed.
        """
        if self._paused:
            return
        addresses = np.asarray(pointers.data).reshape(-1).view(np.int64)
        if mask is not None:
            let_through = np.asarray(mask.data, dtype=bool)
            if let_through.shape != pointers.data.shape:
                let_through = np.broadcast_to(let_through, pointers.data.shape)
            if not let_through.all():
                addresses = addresses[let_through.reshape(-1)]
        if not addresses.size:
            return
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if addresses.size == 1 and self._has(int(addresses[0]), size):
            self._note(access, builder, size, addresses)
            return
        place = self._starts.searchsorted(addresses, side="right") - 1
        inside = (place >= 0) & (addresses + size <= self._ends[place])
        if not inside.all():
            count = int((~inside).sum())
            program = tuple(int(index) for index in builder.grid_idx)
            self._error = OutOfBoundsError(
                f"{self._kernel}, program {program}, {access} {count} element{'s' * (count > 1)} "
                "outside of every tensor of the variant"
            )
            raise self._error
        self._note(access, builder, size, addresses)

    def _has(self, address: int, size: int) -> bool:
        """Return whether one element lies in a tensor; for a single one, NumPy is slower."""
        place = bisect_right(self._listed_starts, address) - 1
        return place >= 0 and address + size <= self._listed_ends[place]

    def _note(self, access: Access, builder: Any, size: int, addresses: Int64Array) -> None:
        """Record the addresses that the running program accesses."""
        x, y, z = builder.grid_idx
        self._grid = builder.grid_dim
        program = (int(x) * self._grid[1] + int(y)) * self._grid[2] + int(z)
        self._accesses.add(access, program, size, addresses)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend checks within an operation that was already checked as a whole."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def reraise(self) -> None:
        """Raise the guard's own error, which the interpreter has wrapped in one of its own."""
        if self._error is not None:
            raise self._error

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield all tensors that may be accessed, each with its attribute or parameter name."""
        for owner in self._owners:
            yield from _tensors_in("", owner, _DEPTH)
        for name, argument in self._arguments.items():
            yield from _tensors_in(name, argument, _DEPTH)

    def _describe(self, race: Race) -> str:
        program, writer = self._program(race.program), self._program(race.writer)
        return (
            f"{self._kernel}, program {program}, {race.access} {self._element_at(race.address)}, "
            f"which program {writer} of the same launch {race.writes} too"
        )

    def _program(self, number: int) -> tuple[int, ...]:
        return tuple(int(index) for index in np.unravel_index(number, self._grid))

    def _element_at(self, address: int) -> str:
        """Return the element at an address as `out[1, 5]`, in the first tensor that holds it.

        Non-contiguous tensors are skipped; without a tensor, the bare address is returned.
        """
        for name, tensor in self._tensors():
            start, end = _span(tensor)
            if start <= address < end and tensor.is_contiguous():
                offset = (address - start) // tensor.element_size()
                place = np.unravel_index(offset, tensor.shape)
                return f"{name}[{', '.join(str(int(index)) for index in place)}]"
        return f"address {address:#x}"


def tensors_of(owner: object) -> Iterator[torch.Tensor]:
    """Return the tensors of an object, also those in its attributes and containers."""
    return (tensor for _, tensor in _tensors_in("", owner, _DEPTH))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first address of a tensor, and the first one past its end."""
    if tensor.is_contiguous():
        elements = tensor.numel()
    else:
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        elements = 1 + sum((size - 1) * stride for size, stride in sizes) if tensor.numel() else 0
    return tensor.data_ptr(), tensor.data_ptr() + elements * tensor.element_size()


def _tensors_in(name: str, value: object, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a value, its items and its attributes, each with its path."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth == 0 or isinstance(value, _LEAVES):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors_in(f"{name}[{key!r}]", item, depth - 1)
    elif isinstance(value, (list, tuple, set)):
        for index, item in enumerate(value):
            # Sequences add no depth. Leaves are skipped here: lists of block ids are long.
            if not isinstance(item, _LEAVES):
                yield from _tensors_in(f"{name}[{index}]", item, depth)
    elif hasattr(value, "__dict__"):
        for attribute, item in vars(value).items():
            path = f"{name}.{attribute}" if name else attribute
            yield from _tensors_in(path, item, depth - 1)
