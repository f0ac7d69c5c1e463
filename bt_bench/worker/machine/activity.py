"""Notes of the running arm in shared memory, for when its process can no longer report it.

The worker notes an arm before any of its code runs and takes the note back afterwards. A watcher
reads the count of notes to see whether the worker makes progress, and the note itself to find the
arm to blame if it does not. A note takes a few hundred nanoseconds and is never made inside a timed
region.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.reduction import DupFd
from typing import Any

_NOTES, _PLACE, _CALLS = 0, 1, 2
_CELLS = 3
_BYTES = 8 * _CELLS


class SharedBlock:
    """Memory for two `Activity` objects: of this process, and of one that it starts.

    It lies in no file system, so it needs no `/dev/shm`: there, arrays of `multiprocessing` lie,
    and it is read-only or too small in some containers. It is pickled while a process starts.

    Args:
        descriptor: of memory that another process has allocated; `None`: it is allocated.

    Attributes:
        memory: the bytes, as a buffer.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _allocated() if descriptor is None else descriptor
        weakref.finalize(self, os.close, self._descriptor)
        self.memory = mmap.mmap(self._descriptor, _BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the descriptor, of which a process that starts gets a copy."""
        return _received, (DupFd(self._descriptor),)


def _allocated() -> int:
    """Return the descriptor of new memory; of a deleted temporary file where there is no other."""
    try:
        descriptor = os.memfd_create("bt-bench")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, _BYTES)
    return descriptor


def _received(copy: Any) -> SharedBlock:
    return SharedBlock(copy.detach())


def _nothing(_arm: str) -> None:
    """Do nothing before an arm's code runs, the default."""


class Activity:
    """The notes of one process.

    Args:
        block: shared with the other process; without one, the notes stay private.

    Attributes:
        on_enter: called with the name of an arm before any of its code runs.
    """

    def __init__(self, block: SharedBlock | None = None) -> None:
        memory = array("q", [0] * _CELLS) if block is None else block.memory
        self._cells = memoryview(memory).cast("B").cast("q")
        self._places: dict[str, int] = {}
        self.on_enter: Callable[[str], None] = _nothing

    def detach(self) -> None:
        """Make further notes private: this process is only a forked copy of the worker."""
        self._cells = memoryview(array("q", self._cells.tolist()))

    def expect(self, places: Mapping[str, int]) -> None:
        """Set the number of each arm, from 0 on; no arm runs yet."""
        self._places = {name: place + 1 for name, place in places.items()}
        self._cells[_PLACE] = 0
        self._cells[_NOTES] += 1

    def enter(self, arm: str) -> int:
        """Note that code of an arm is about to run, and return the previous note."""
        self.on_enter(arm)
        cells = self._cells
        before = cells[_PLACE]
        cells[_PLACE] = self._places.get(arm, 0)
        cells[_NOTES] += 1
        return before

    def leave(self, before: int) -> None:
        """Restore the note from before `enter`."""
        cells = self._cells
        cells[_PLACE] = before
        cells[_NOTES] += 1

    def count_calls(self, number: int) -> None:
        """Note how many calls of a scenario were made, in case the next one ends the process."""
        self._cells[_CALLS] = number

    @contextmanager
    def running(self, arm: str) -> Iterator[None]:
        """Note an arm for the length of a `with`."""
        before = self.enter(arm)
        try:
            yield
        finally:
            self.leave(before)

    @property
    def notes(self) -> int:
        """Return the number of notes made; while it changes, the process makes progress."""
        return self._cells[_NOTES]

    @property
    def calls(self) -> int:
        """Return how many calls of the last scenario were made."""
        return self._cells[_CALLS]

    @property
    def place(self) -> int | None:
        """Return the number of the arm whose code runs, or `None`."""
        return self._cells[_PLACE] - 1 if self._cells[_PLACE] else None


_current = Activity()


def current() -> Activity:
    """Return the `Activity` of this process."""
    return _current


def use(activity: Activity) -> None:
    """Set the `Activity` of this process, for as long as it lives."""
    global _current
    _current = activity
