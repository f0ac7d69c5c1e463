"""A recorder of the launches of a driver without a GPU, and of ptxas's resource usage."""

from __future__ import annotations

import ctypes
import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bt_bench.analysis.code.ptxas import Usage, read_usage
from bt_bench.results import Kernel, StepLaunches
from bt_bench.worker.compiling.driver import Launch
from bt_bench.worker.compiling.machine_code import Disassembler, code_of
from bt_bench.worker.machine.torch_operations import TorchOperations

_DIGITS = 16

LEAST_ADDRESS = 2**40
"""64-bit integers from here up are taken for addresses; kernels compute with smaller ones."""


def short_digest(data: bytes) -> str:
    """Return the first 16 hex digits of a SHA-256."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


class LaunchWindow:
    """The launches of one operation on the steps of a workload.

    Attributes:
        steps: for each step, numbers of launches and torch operations by name.
        kernels: the kernels that were launched.
    """

    def __init__(self, target: str) -> None:
        self.steps: list[Counter[str]] = []
        self.kernels: set[Kernel] = set()
        self._target = target
        self._sequence = hashlib.sha256()

    @property
    def sequence(self) -> str:
        """Return a digest of all launches and torch operations, in order."""
        return self._sequence.hexdigest()[:_DIGITS]

    def runs(self) -> list[StepLaunches]:
        """Return the steps, with equal neighbours merged."""
        return [
            StepLaunches(steps=len([*steps]), launches=launches)
            for launches, steps in groupby(dict(sorted(step.items())) for step in self.steps)
        ]

    def begin_step(self) -> None:
        """Begin the next step."""
        self.steps.append(Counter())
        self._note("step")

    def launched(self, launch: Launch, usage: Usage) -> None:
        """Add a launch of a kernel with this resource usage."""
        self.steps[-1][launch.kernel] += 1
        self.kernels.add(_kernel(launch, usage, self._target))
        self._note(launch.binary, launch.settings, launch.grid, _all_described(launch.arguments))

    def computed(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Add an operation of torch."""
        self.steps[-1][f"torch.{name}"] += 1
        self._note(name, _all_described(arguments))

    def _note(self, *what: object) -> None:
        self._sequence.update(f"{what}\n".encode())


class BinaryRecorder:
    """A recorder of each binary's resource usage; it passes launches to the current window.

    Args:
        disassembler: disassembles each compiled binary; `None`: none is disassembled.

    Attributes:
        log: receives the output printed while kernels are compiled, including ptxas's.
    """

    def __init__(self, disassembler: Disassembler | None = None) -> None:
        self.log = io.StringIO()
        self._disassembler = disassembler
        self._usages: dict[str, Usage] = {}  # by digest of the binary
        self._window: LaunchWindow | None = None

    @contextmanager
    def step(self, window: LaunchWindow) -> Iterator[None]:
        """Record the launches and torch operations of the `with` block as a step of a window."""
        window.begin_step()
        self._window = window
        try:
            with TorchOperations(window.computed):
                yield
        finally:
            self._window = None

    def on_compiled(
        self, *, metadata_group: dict[str, str], cache_hit: bool, **_rest: object
    ) -> None:
        """Record a binary's resource usage from ptxas's output; Triton's `compilation.listener`.

        Raises:
            RuntimeError: if that output cannot be parsed.
        """
        log = self.log.getvalue()
        self.log.seek(0)
        self.log.truncate()
        if cache_hit:
            return  # compiled before in this process, for another variant
        cubin, ptx = (
            next(Path(path) for name, path in metadata_group.items() if name.endswith(kind))
            for kind in (".cubin", ".ptx")
        )
        usage = read_usage(log)
        if usage is None:
            raise RuntimeError(f"ptxas printed neither registers nor spills, but {log!r}")
        digest = self.on_load(cubin.read_bytes())
        self._usages[digest] = usage
        if self._disassembler is not None:
            self._disassembler.begin(digest, ptx, cubin)

    def on_load(self, binary: bytes) -> str:
        """Return the digest of a binary; the driver calls this before the binary's first launch.

        With a disassembler, binaries have line information, which differs between folders; then
        only their instructions are digested.
        """
        return short_digest(binary if self._disassembler is None else code_of(binary))

    def on_launch(self, launch: Launch) -> None:
        """Add a launch to the current step, in place of making it; ignore it outside of steps."""
        if self._window is not None:
            self._window.launched(launch, self._usages[str(launch.binary)])


def _kernel(launch: Launch, usage: Usage, target: str) -> Kernel:
    facts = {
        "name": launch.kernel,
        "target": target,
        "signature": launch.signature,
        "binary": str(launch.binary),
        "registers": usage.registers,
        "spill_bytes": usage.spill_bytes,
        "stack_bytes": usage.stack_bytes,
        "shared_bytes": launch.shared_bytes,
    }
    return Kernel.model_validate(facts | {"id": short_digest(repr(facts).encode())})


def _all_described(arguments: Sequence[object]) -> object:
    """Return the arguments of a call, without anything that differs between processes."""
    return _described(arguments, frozenset(_with_addresses(arguments)))


def _with_addresses(value: object) -> Iterator[int]:
    """Yield the start of each storage that may hold addresses: it has an int64 tensor."""
    if isinstance(value, torch.Tensor):
        if value.dtype is torch.int64:
            yield value.untyped_storage().data_ptr()
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _with_addresses(item)


def _described(value: object, with_addresses: frozenset[int]) -> object:
    if isinstance(value, torch.Tensor):
        shape = str(value.dtype), tuple(value.shape), value.stride(), value.storage_offset()
        return *shape, _contents(value, with_addresses)
    if isinstance(value, tuple | list):
        return tuple(_described(item, with_addresses) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__


def _contents(tensor: torch.Tensor, with_addresses: frozenset[int]) -> str:
    """Return a digest of a tensor's whole storage, with addresses replaced by numbers."""
    storage = tensor.untyped_storage()
    # Not by operations of torch, which would count as the variant's.
    data = ctypes.string_at(storage.data_ptr(), storage.nbytes())
    if storage.data_ptr() in with_addresses:
        words = len(data) // 8
        numbered = number_addresses(np.frombuffer(data, dtype=np.int64, count=words))
        data = numbered.tobytes() + data[8 * words :]
    return short_digest(data)


def number_addresses(values: np.ndarray) -> np.ndarray:
    """Replace addresses by numbers, in the order of their first occurrence."""
    at = values >= LEAST_ADDRESS
    if not at.any():
        return values
    _, first, which = np.unique(values[at], return_index=True, return_inverse=True)
    numbered = values.copy()
    numbered[at] = LEAST_ADDRESS + first.argsort().argsort()[which]
    return numbered
