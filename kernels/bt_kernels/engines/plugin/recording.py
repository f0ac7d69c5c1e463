"""Recording of all calls on block tables, of vLLM's class or ours, into a file.

An object that is recorded has a class of its own, derived from the one it had. Calls are noted as
integers and as references to arrays that the runner has on the host; nothing waits for the GPU. At
the end of `execute_model` they become a frame, and frames are written together. Once anything
fails, the object has its own class again, and a warning gives the reason.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any
from weakref import WeakSet

from bt_kernels.engines.plugin import settings
from bt_kernels.engines.plugin.call_files import CallFile
from bt_kernels.engines.plugin.headers import recording_header
from bt_kernels.engines.plugin.messages import LOGGER, describe, warn_once
from bt_kernels.engines.plugin.noting import Notes, forget_batches
from bt_kernels.engines.plugin.recorded import REDIRECT, recorded
from bt_kernels.engines.plugin.snapshots import SnapshotCopies
from bt_kernels.engines.recordings import Frame

_FRAME_STEPS = 32
_WRITE_SECONDS = 1.0
_RECORDED: WeakSet[Any] = WeakSet()


def record(
    tables: Any, path: Path, theirs: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record the calls on tables from now on.

    Args:
        tables: new tables, of vLLM's class or ours.
        path: see `CallFile`.
        theirs: vLLM's class.
        args: the arguments of its constructor.
        kwargs: those by keyword.

    Raises:
        OSError: when no file can be created.
        ValueError: when the constructor has an argument that recordings have no field for.
    """
    file = CallFile(path, recording_header(theirs, args, kwargs), settings.record_bytes())
    Recorder(file, tables)


def end_all() -> None:
    """End all recordings of this process, and close their files."""
    for tables in list(_RECORDED):
        recorder = vars(tables).get("_recorder")
        if recorder is not None:
            recorder.close()
            recorder.leave(tables)
    forget_batches()  # not before: C tells of its latest one when it leaves


class Recorder:
    """Records the calls on one object.

    Args:
        file: where frames go.
        tables: the object, whose class becomes a recorded one.
    """

    def __init__(self, file: CallFile, tables: Any) -> None:
        self._file, self._notes = file, Notes(frame_steps=_FRAME_STEPS)
        self._copies = SnapshotCopies(tables)
        self._copies_wait = False
        self._frames: list[bytearray] = []
        self._num_steps, self._written_at = 0, monotonic()
        self._ended = False
        from multiprocessing.util import Finalize

        # Not `atexit`, whose functions a process of multiprocessing does not call.
        self._at_exit = Finalize(None, self.close, exitpriority=0)
        self.follow(tables)
        _RECORDED.add(tables)
        LOGGER.info("bt_kernels: calls are recorded in %s", file.path)

    def follow(self, tables: Any) -> None:
        """Record the object, which has become one of another class."""
        if self._ended:
            return
        tables._recorder = self
        tables.__class__ = recorded(type(tables), self._notes, self._end_frame, self.fail)
        _find_short_ways(tables)

    def leave(self, tables: Any) -> None:
        """Give the object its own class back."""
        vars(tables).pop("_recorder", None)
        kind = type(tables)
        if "_bt_kernels_records" in vars(kind):
            tables.__class__ = kind.__bases__[0]
            _find_short_ways(tables)

    def fail(self, tables: Any, error: Exception) -> None:
        """Stop recording, with a warning."""
        self._warn(error)
        self.leave(tables)

    def close(self) -> None:
        """Write all frames, and close the file; done at exit, too."""
        if self._ended:
            return
        try:
            self._add()
            if not self._file.belongs_to_parent:
                self._write()
            self._end()
        except Exception as error:
            self._warn(error)

    def _end_frame(self, tables: Any, num_steps: int = 1) -> None:
        """Write the calls since the last frame, if there are many or it was long ago."""
        self._num_steps += num_steps
        now = monotonic()
        if self._num_steps < _FRAME_STEPS and now - self._written_at < _WRITE_SECONDS:
            return
        try:
            if not self._ended:
                self._write_frame(tables, now)
        except Exception as error:
            self.fail(tables, error)

    def _write_frame(self, tables: Any, now: float) -> None:
        self._add()
        if self._file.belongs_to_parent:
            raise RuntimeError("this process was forked from the one that records")
        if not self._write():
            return
        self._num_steps, self._written_at = 0, now
        staged = self._notes.frame.staged
        if self._file.is_full and not staged and self._copies.can_begin():
            self._file.replace()
            self._copies.begin(tables)
            self._copies_wait = True
            if getattr(tables, REDIRECT, False):
                self._notes.frame.redirect(True)

    def _add(self) -> None:
        self._frames.append(self._notes.frame.take())

    def _write(self) -> bool:
        """Write all frames; return `False` while the contents before them are being copied."""
        if self._copies_wait:
            snapshot = self._copies.take()
            if snapshot is None:
                return False
            self._copies_wait = False
            first = Frame()
            first.snapshot(snapshot)
            self._frames.insert(0, first.take())
        for frame in self._frames:
            self._file.write(frame)
        self._frames.clear()
        return True

    def _warn(self, error: Exception) -> None:
        warn_once(
            f"recording of calls in {self._file.path} stopped ({describe(error)}). The engine goes "
            "on"
        )
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._at_exit.cancel()
        self._frames.clear()
        try:
            self._file.close()
        except OSError as error:
            LOGGER.debug("bt_kernels: %s", describe(error))


def _find_short_ways(tables: Any) -> None:
    """See `DeferringTables`, whose module is not imported where the engine has its own class."""
    find = getattr(tables, "find_short_ways", None)
    if find is not None:
        find()
