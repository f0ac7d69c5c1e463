"""CUPTI's activity records, read from whole buffers.

`cupti-python` hands out an object for each record, whose attributes it looks up in an array. A pass
has thousands of records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

# Much more than a pass fills: a buffer that is full is given back in the middle of it.
BUFFER_BYTES = 8 << 20

# What is read of each kind of record, and where it lies in bytes: cupti_activity.h. Records have
# become longer from version to version of CUPTI, but these have kept their places.
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

Columns = Mapping[str, list[int]]
_Bytes = npt.NDArray[np.uint8]


class ActivityBuffers:
    """Lends CUPTI memory for its records, and reads them.

    Args:
        cupti: the module `cupti.cupti`.

    Raises:
        AttributeError: if the module lacks something that is needed.
        RuntimeError: if it is of a CUPTI whose records are laid out in another way.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._layouts = {
            int(kinds.DRIVER): _CALL,
            int(kinds.RUNTIME): _CALL,
            int(kinds.CONCURRENT_KERNEL): _KERNEL,
            int(kinds.KERNEL): _KERNEL,
            int(kinds.MEMCPY): _MEMCPY,
            int(kinds.MEMSET): _MEMSET,
        }
        _check_layouts(cupti)
        self._end = int(cupti.Result.ERROR_MAX_LIMIT_REACHED)
        self._register = _c_function("cuptiActivityRegisterCallbacks", _Requested, _Completed)
        self._next_record = _c_function(
            "cuptiActivityGetNextRecord",
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)),
        )
        self._callbacks = _Requested(self._lend), _Completed(self._given_back)
        self._free: list[_Bytes] = []
        self._lent: dict[int, _Bytes] = {}
        self._filled: list[tuple[_Bytes, int]] = []

    def register(self) -> None:
        """Has CUPTI take its memory from here, until it is finalized."""
        # What an earlier CUPTI has not given back, and what was not read before it was finalized.
        self._lent.clear()
        self._filled.clear()
        self._cupti.check_status(self._register(*self._callbacks))

    def take(self) -> list[tuple[int, Columns]]:
        """The records of all buffers that CUPTI has given back: the kind, and the columns of each.

        Those of other kinds than are read here are left out.
        """
        found: list[tuple[int, Columns]] = []
        while self._filled:
            buffer, valid = self._filled.pop(0)
            found += self._read(buffer, valid)
            self._free.append(buffer)
        return found

    def _lend(self, buffer: Any, size: Any, most: Any) -> None:
        memory = self._free.pop() if self._free else np.zeros(BUFFER_BYTES, np.uint8)
        self._lent[memory.ctypes.data] = memory
        buffer[0], size[0], most[0] = memory.ctypes.data, BUFFER_BYTES, 0  # as many as fit

    def _given_back(self, _context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
        self._filled.append((self._lent.pop(buffer), valid))

    def _read(self, buffer: _Bytes, valid: int) -> list[tuple[int, Columns]]:
        places = self._places(buffer.ctypes.data, valid)
        kinds = buffer.view(np.int32)[places // 4]
        return [
            (kind, _columns(buffer, places[kinds == kind], layout))
            for kind, layout in self._layouts.items()
        ]

    def _places(self, base: int, valid: int) -> npt.NDArray[np.int64]:
        """Where each record begins, in bytes from the start of its buffer."""
        record = ctypes.c_void_p()
        address = ctypes.byref(record)
        found = []
        while (status := self._next_record(base, valid, address)) != self._end:
            self._cupti.check_status(status)
            found.append(record.value)
        return np.array(found, np.int64) - base


def _columns(
    buffer: _Bytes, places: npt.NDArray[np.int64], layout: Mapping[str, tuple[int, str]]
) -> Columns:
    columns = {}
    for name, (offset, form) in layout.items():
        within = np.arange(offset, offset + np.dtype(form).itemsize)
        columns[name] = buffer[places[:, None] + within].view(form)[:, 0].tolist()
    return columns


def _c_function(name: str, *arguments: Any) -> Any:
    """A function of CUPTI's, as the module's own C code calls it."""
    functions = import_module("cupti.cycupti").__pyx_capi__
    if name not in functions:
        raise AttributeError(f"cupti.cycupti has no {name}")
    api = ctypes.pythonapi
    api.PyCapsule_GetName.argtypes, api.PyCapsule_GetName.restype = (
        [ctypes.py_object],
        ctypes.c_char_p,
    )
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    capsule = functions[name]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(address)


def _check_layouts(cupti: Any) -> None:
    """Compares the layouts with those of the module, which has them from version 13 on."""
    for start, layout in (
        *(("activity_api", _CALL), ("activity_kernel", _KERNEL)),
        *(("activity_memcpy", _MEMCPY), ("activity_memset", _MEMSET)),
    ):
        for name in dir(cupti):
            number = name.removeprefix(start).removesuffix("_dtype")
            if name == f"{start}{number}_dtype" and (not number or number.isdecimal()):
                fields = getattr(cupti, name).fields
                for field, (offset, form) in layout.items():
                    kind, place = fields[field][:2]
                    if place != offset or kind.itemsize != np.dtype(form).itemsize:
                        raise RuntimeError(
                            f"{name}.{field} lies at byte {place}, and is expected at {offset}"
                        )
