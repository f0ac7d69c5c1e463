"""A stand-in for `cupti-python`: its module, and the C functions below it."""

from __future__ import annotations

import ctypes
import sys
from enum import IntEnum
from importlib import metadata
from types import ModuleType, SimpleNamespace

import numpy as np

_END = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
INVALID_KIND, _REFUSED = 21, 39
_STATUSES = {
    INVALID_KIND: "CUPTI_ERROR_INVALID_KIND",
    _REFUSED: "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
}


class Kind(IntEnum):
    """Of `CUpti_ActivityKind`, with its values."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    OVERHEAD = 17


NAMES = {
    ("runtime", 1): "cudaLaunchKernel_v7000",
    ("runtime", 2): "cudaGraph_vector",
    ("driver", 1): "cuLaunchKernelEx",
    ("driver", 2): "cuMemcpyHtoDAsync_v2",
}


def _dtype(size, **fields):
    names = ["kind", *fields]
    return np.dtype(
        {
            "names": names,
            "formats": ["i4", *(form for _, form in fields.values())],
            "offsets": [0, *(place for place, _ in fields.values())],
            "itemsize": size,
        }
    )


# As cupti-python 13.0.1 has them, without what is not read.
LAYOUTS = {
    "activity_api_dtype": _dtype(
        40, cbid=(4, "u4"), start=(8, "u8"), end=(16, "u8"), correlation_id=(32, "u4")
    ),
    "activity_kernel10_dtype": _dtype(
        216,
        start=(16, "u8"),
        end=(24, "u8"),
        correlation_id=(92, "u4"),
        name=(104, "i8"),
        queued=(120, "u8"),
        submitted=(128, "u8"),
    ),
    "activity_memcpy6_dtype": _dtype(
        96,
        copy_kind=(4, "u1"),
        bytes=(8, "u8"),
        start=(16, "u8"),
        end=(24, "u8"),
        correlation_id=(44, "u4"),
    ),
    "activity_memset4_dtype": _dtype(
        88, bytes=(8, "u8"), start=(16, "u8"), end=(24, "u8"), correlation_id=(44, "u4")
    ),
    "activity_overhead3_dtype": _dtype(48),
}
_LAYOUT_OF = {
    Kind.DRIVER: "activity_api_dtype",
    Kind.RUNTIME: "activity_api_dtype",
    Kind.KERNEL: "activity_kernel10_dtype",
    Kind.CONCURRENT_KERNEL: "activity_kernel10_dtype",
    Kind.MEMCPY: "activity_memcpy6_dtype",
    Kind.MEMSET: "activity_memset4_dtype",
    Kind.OVERHEAD: "activity_overhead3_dtype",
}
_KEPT = {name: ctypes.create_string_buffer(name.encode()) for name in ("gather_kernel", "slots")}


def record(kind, *, name=None, **values):
    """A record in memory; what is not given holds ones, as the memory of a buffer may."""
    layout = LAYOUTS[_LAYOUT_OF[kind]]
    made = np.frombuffer(b"\xff" * layout.itemsize, layout).copy()
    made["kind"] = kind
    if name is not None:
        made["name"] = ctypes.addressof(_KEPT[name])
    for field, value in values.items():
        made[field] = value
    return made


class FakeCupti(ModuleType):
    """`cupti.cupti`, as far as it is used; records are given out when it is flushed."""

    ActivityKind = Kind
    CallbackDomain = SimpleNamespace(DRIVER_API="driver", RUNTIME_API="runtime")
    Result = SimpleNamespace(ERROR_MAX_LIMIT_REACHED=_END)

    class cuptiError(Exception):  # noqa: N801 - as it is called there
        pass

    def __init__(self):
        super().__init__("cupti.cupti")
        for name, layout in LAYOUTS.items():
            setattr(self, name, layout)
        self.enabled, self.waiting = set(), []
        self.dropped = 0
        self.asked = 0
        self.lent = []  # addresses
        self.per_buffer = 100
        self.attached = False
        self.refuses = ""
        self.unreadable = False
        self.late = []  # records that are given out when it is finalized

    def _may(self, call):
        if call == self.refuses:
            raise self.cuptiError(_STATUSES[_REFUSED])

    def check_status(self, status):
        if status:
            raise self.cuptiError(_STATUSES[status])

    def register(self, requested, completed):
        if self.refuses == "register":
            return _REFUSED
        self.attached = True
        self._requested, self._completed = requested, completed
        return 0

    def activity_enable_latency_timestamps(self, enable):
        assert enable == 1

    def activity_enable(self, kind):
        self._may("enable")
        self.enabled.add(kind)

    def activity_disable(self, kind):
        self.enabled.remove(kind)

    def activity_flush_all(self, flag):
        assert flag == 1  # of buffers that are not full, too
        assert not self.enabled
        while self.waiting:
            of_buffer = self.waiting[: self.per_buffer]
            del self.waiting[: self.per_buffer]
            self.fill(of_buffer)

    def fill(self, records):
        """Has a buffer lent, and gives it back with records."""
        address, size = self.lend()
        content = b"".join(each.tobytes() for each in records)
        ctypes.memmove(address, content, len(content))
        self._completed(None, 0, address, size, len(content))

    def lend(self):
        """Has a buffer lent; returns its address and its size."""
        address, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(7)
        self._requested(*(ctypes.pointer(each) for each in (address, size, most)))
        assert size.value >= 1 << 20
        assert most.value == 0  # as many records as fit
        assert address.value % 8 == 0
        self.lent.append(address.value)
        return address.value, size.value

    def next_record(self, buffer, valid, address):
        """The record behind the one that the address is of."""
        at = 0
        if self.unreadable:
            return INVALID_KIND
        if address[0]:
            kind = ctypes.c_int32.from_address(address[0]).value
            at = address[0] - buffer + LAYOUTS[_LAYOUT_OF[Kind(kind)]].itemsize
        if at >= valid:
            return _END
        address[0] = buffer + at
        return 0

    def activity_get_num_dropped_records(self, context, stream, address):
        ctypes.c_size_t.from_address(address).value = self.dropped
        self.dropped = 0

    def finalize(self):
        self._may("finalize")
        if self.late:
            self.fill(self.late.pop())
        self.attached = False
        self.enabled = set()

    def get_callback_name(self, domain, number):
        self.asked += 1
        return NAMES[domain, number]


_CALLBACKS = "CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc"
_SIGNATURES = {
    "cuptiActivityRegisterCallbacks": (_CALLBACKS, (ctypes.c_void_p, ctypes.c_void_p)),
    "cuptiActivityGetNextRecord": (
        "uint8_t *, size_t, CUpti_Activity **",
        (ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)),
    ),
}


class FakeCycupti(ModuleType):
    """`cupti.cycupti`: capsules of functions with the C calling convention."""

    def __init__(self, cupti):
        super().__init__("cupti.cycupti")
        self._cupti = cupti
        calls = {
            "cuptiActivityRegisterCallbacks": self._register,
            "cuptiActivityGetNextRecord": cupti.next_record,
        }
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        new.restype = ctypes.py_object
        self._kept = []
        self.__pyx_capi__ = {}
        for name, call in calls.items():
            text, arguments = _SIGNATURES[name]
            function = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(call)
            signature = ctypes.create_string_buffer(f"CUptiResult ({text})".encode())
            self._kept += [function, signature]
            address = ctypes.cast(function, ctypes.c_void_p)
            self.__pyx_capi__[name] = new(address, signature, None)

    def _register(self, requested, completed):
        pointers = [ctypes.POINTER(ctypes.c_void_p), *[ctypes.POINTER(ctypes.c_size_t)] * 2]
        given = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, *[ctypes.c_size_t] * 2
        return self._cupti.register(
            ctypes.CFUNCTYPE(None, *pointers)(requested), ctypes.CFUNCTYPE(None, *given)(completed)
        )


def install(monkeypatch):
    """CUPTI's module, installed for a test."""
    fake = FakeCupti()
    package = ModuleType("cupti")
    package.cupti, package.cycupti = fake, FakeCycupti(fake)
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", fake)
    monkeypatch.setitem(sys.modules, "cupti.cycupti", package.cycupti)
    monkeypatch.setattr(metadata, "version", lambda name: {"cupti-python": "13.0.1"}[name])
    return fake
