"""Graphs of interpreted kernels: what a captured call launches is launched again by a replay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bt_bench.worker.machine.torch_operations import TorchOperations


class InterpretedGraph:
    """Stands for a CUDA graph where kernels are interpreted.

    As in a graph, arguments of a launch are those of the capture: numbers and addresses stay, and
    contents of tensors are read anew by each replay.

    Attributes:
        is_whole: whether launches are all that was captured. Where torch computed something
            meanwhile, which a CUDA graph would repeat, or a thread was started, in which it could,
            replays would leave that out.
    """

    def __init__(self) -> None:
        self.is_whole = True
        self._launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Records what is launched in the `with` block, while it is launched."""
        from triton.runtime.interpreter import InterpretedFunction

        run = InterpretedFunction.run
        computations = TorchOperations(self._note_computation)

        def recorded_run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            self._launches.append((kernel, args, kwargs))
            computations.paused += 1  # it is the interpreter that computes
            try:
                return run(kernel, *args, **kwargs)
            finally:
                computations.paused -= 1

        threads: Any = threading.Thread  # untyped, since a method is replaced
        start = threads.start

        def noted_start(thread: threading.Thread) -> None:
            self.is_whole = False  # torch tells what one thread computes
            start(thread)

        InterpretedFunction.run, threads.start = recorded_run, noted_start
        try:
            with computations:
                yield
        finally:
            InterpretedFunction.run, threads.start = run, start

    def replay(self) -> None:
        """Makes the launches once more, in their order."""
        for kernel, args, kwargs in self._launches:
            kernel.run(*args, **kwargs)

    def _note_computation(self, _name: str, _arguments: tuple[Any, ...]) -> None:
        self.is_whole = False
