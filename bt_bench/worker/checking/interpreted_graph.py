"""Graphs of interpreted kernels: a replay repeats the launches of a captured call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bt_bench.worker.machine.torch_operations import TorchOperations


class InterpretedGraph:
    """A stand-in for a CUDA graph under Triton's interpreter.

    As in a CUDA graph, a replay launches with the captured arguments: numbers and addresses are
    fixed, and each replay reads the contents of tensors anew.

    Attributes:
        is_whole: whether the captured block did nothing but launch. If torch computed something
            (a CUDA graph would repeat it), or a thread was started (torch may have computed in it),
            a replay is incomplete.
    """

    def __init__(self) -> None:
        self.is_whole = True
        self._launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Record the launches in the `with` block; they are also made."""
        from triton.runtime.interpreter import InterpretedFunction

        run = InterpretedFunction.run
        computations = TorchOperations(self._note_computation)

        def recorded_run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            self._launches.append((kernel, args, kwargs))
            computations.paused += 1  # the interpreter itself computes with torch
            try:
                return run(kernel, *args, **kwargs)
            finally:
                computations.paused -= 1

        threads: Any = threading.Thread  # untyped, since a method is replaced
        start = threads.start

        def noted_start(thread: threading.Thread) -> None:
            self.is_whole = False  # torch's operations are seen in this thread only
            start(thread)

        InterpretedFunction.run, threads.start = recorded_run, noted_start
        try:
            with computations:
                yield
        finally:
            InterpretedFunction.run, threads.start = run, start

    def replay(self) -> None:
        """Repeat the launches in order."""
        for kernel, args, kwargs in self._launches:
            kernel.run(*args, **kwargs)

    def _note_computation(self, _name: str, _arguments: tuple[Any, ...]) -> None:
        self.is_whole = False
