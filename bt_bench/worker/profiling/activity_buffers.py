"""CUPTI's activity records, read from whole buffers.

`cupti-python` makes an object for each record, and looks its attributes up in an array. That is too
slow for the thousands of records of a pass.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

# Much more than a pass fills: CUPTI returns a full buffer in the middle of a pass.
BUFFER_BYTES = 8 << 20

# The fields that are read of each kind of record, with their places in bytes: cupti_activity.h.
# Records have become longer from version to version of CUPTI, but these have kept their places.
_CALL = {"cbid": (4, "u4"), "start": (8, "u8"), "end": (16, "u8"), "correlation_id": (32, "u4")}
_TIMES = {"start": (16, "u8"), "end": (24, "u8")}
_KERNEL = {
    **_TIMES,
    "correlation_id": (92, "u4"),
    "name": (104, "u8"),
    "queued": (120, "u8"),
    "submitted": (128, "u8"),
}
_MEMCPY = {**_TIMES, "copy_kind": (4, "u1"), "bytes": (8, "u8"), "correlation_id": (44, "u4")}
_MEMSET = {**_TIMES, "bytes": (8, "u8"), "correlation_id": (44, "u4")}

_Requested = ctypes.CFUNCTYPE(
    None, *[ctypes.POINTER(each) for each in (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)]
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)

_Layout = Mapping[str, tuple[int, str]]
Columns = Mapping[str, list[int]]
_Bytes = npt.NDArray[np.uint8]


class ActivityBuffers:
    """The memory that CUPTI borrows for its records, and the reader of these.

    Args:
        cupti: the module `cupti.cupti`.

    Raises:
        AttributeError: if the module lacks something that is needed.
        RuntimeError: if the records of this CUPTI have another layout.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._layouts: dict[int, _Layout] = {
            int(kinds.DRIVER): _CALL,
            int(kinds.RUNTIME): _CALL,
            int(kinds.CONCURRENT_KERNEL): _KERNEL,
            int(kinds.KERNEL): _KERNEL,
            int(kinds.MEMCPY): _MEMCPY,
            int(kinds.MEMSET): _MEMSET,
        }
        _check_layouts(cupti)
        self._end = int(cupti.Result.ERROR_MAX_LIMIT_REACHED)
        self._register = _c_function(
            "cuptiActivityRegisterCallbacks",
            "CUptiResult (CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc)",
            *(_Requested, _Completed),
        )
        self._next_record = _c_function(
            "cuptiActivityGetNextRecord",
            "CUptiResult (uint8_t *, size_t, CUpti_Activity **)",
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)),
        )
        self._callbacks = _Requested(self._lend), _Completed(self._given_back)
        self._free: list[_Bytes] = []
        self._lent: dict[int, _Bytes] = {}
        self._filled: list[tuple[_Bytes, int]] = []
        self._lost = 0
        self.unreadable: str | None = None
        """Why the last unreadable buffer could not be read."""

    def register(self) -> None:
        """Have CUPTI take its memory from here, until it is finalized."""
        if self not in _ever_registered:
            _ever_registered.append(self)
        self._cupti.check_status(self._register(*self._callbacks))

    def take(self, use: Callable[[int, Columns], None]) -> None:
        """Read all buffers that CUPTI has returned.

        If reading or using a buffer fails, the rest of it is lost. `reclaim` counts that loss, and
        its caller takes the pass again.

        Args:
            use: called for each kind of record of a buffer, with the kind and the columns.
        """
        while self._filled:
            buffer, valid = self._filled.pop(0)
            try:
                for kind, columns in self._read(buffer, valid):
                    use(kind, columns)
            except Exception as error:
                self._lost += 1
                self.unreadable = f"{type(error).__name__}: {error}"
            finally:
                self._free.append(buffer)

    def reclaim(self) -> int:
        """Take all memory back once CUPTI is finalized.

        Returns:
            The number of buffers with records that were lost since the last call: returned too late
            to be read, unreadable, or not from this memory.
        """
        late = sum(valid > 0 for _, valid in self._filled)
        lost, self._lost = self._lost + late, 0
        self._free += [*(buffer for buffer, _ in self._filled), *self._lent.values()]
        self._filled.clear()
        self._lent.clear()
        return lost

    def _lend(self, buffer: Any, size: Any, most: Any) -> None:
        """Lend CUPTI a buffer, in any thread; for a buffer of 0 bytes, CUPTI drops the record."""
        buffer[0], size[0], most[0] = None, 0, 0  # as many records as fit
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.zeros(BUFFER_BYTES, np.uint8)
        self._lent[memory.ctypes.data] = memory
        buffer[0], size[0] = memory.ctypes.data, BUFFER_BYTES

    def _given_back(self, _context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
        """Take a buffer back from CUPTI, in any thread; no exception may reach CUPTI."""
        memory = self._lent.pop(buffer, None)
        if memory is None:
            self._lost += 1
        else:
            self._filled.append((memory, valid))

    def _read(self, buffer: _Bytes, valid: int) -> list[tuple[int, Columns]]:
        offsets = self._record_offsets(buffer.ctypes.data, valid)
        kinds = buffer.view(np.int32)[offsets // 4]
        return [
            (kind, _columns(buffer, offsets[kinds == kind], layout))
            for kind, layout in self._layouts.items()
        ]

    def _record_offsets(self, base: int, valid: int) -> npt.NDArray[np.int64]:
        """Return the start of each record, in bytes from the start of the buffer."""
        record = ctypes.c_void_p()
        address = ctypes.byref(record)
        found = []
        while (status := self._next_record(base, valid, address)) != self._end:
            self._cupti.check_status(status)
            found.append(record.value)
        return np.array(found, np.int64) - base


_ever_registered: list[ActivityBuffers] = []
"""Never emptied: a CUPTI that was not finalized may still call them, and write to their memory."""


def _columns(buffer: _Bytes, offsets: npt.NDArray[np.int64], layout: _Layout) -> Columns:
    columns = {}
    for name, (place, form) in layout.items():
        within = np.arange(place, place + np.dtype(form).itemsize)
        columns[name] = buffer[offsets[:, None] + within].view(form)[:, 0].tolist()
    return columns


# Own prototypes, since the whole process shares those in `ctypes.pythonapi` itself.
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _c_function(name: str, signature: str, *arguments: Any) -> Any:
    """Return a function of CUPTI, as the module's own C code calls it."""
    capsule = import_module("cupti.cycupti").__pyx_capi__.get(name)
    try:
        address = _pointer_of(capsule, signature.encode())
    except ValueError as error:
        raise AttributeError(f"cupti.cycupti has no {name} of the form {signature}") from error
    return ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(address)


def _check_layouts(cupti: Any) -> None:
    """Check the layouts against all that the module has, which may be of several versions."""
    for kind, layout in (
        *(("api", _CALL), ("kernel", _KERNEL)),
        *(("memcpy", _MEMCPY), ("memset", _MEMSET)),
    ):
        # With a prefix before cupti-python 13.
        name = re.compile(rf"(c_upti_)?activity_{kind}\d*_dtype")
        found = {each: getattr(cupti, each).fields for each in dir(cupti) if name.fullmatch(each)}
        if not found:
            raise AttributeError(f"cupti.cupti has no layout for records of kind {kind}")
        for each, fields in found.items():
            for field, (place, form) in layout.items():
                dtype, its_place = fields.get(field, (None, None))[:2]
                if its_place != place or dtype.itemsize != np.dtype(form).itemsize:
                    raise RuntimeError(
                        f"{each}.{field} is {dtype} at byte {its_place}, and is expected to be "
                        f"{np.dtype(form)} at byte {place}"
                    )
