"""Recording of steps by CUPTI, with `cupti-python`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any, Literal

from bt_bench.worker.profiling.activity_buffers import ActivityBuffers, Columns
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, PassRecords

_MODULE = "cupti-python"


class CuptiTracer:
    """A tracer with `cupti-python`, which has to match the CUDA version of the driver.

    Raises:
        ImportError: if the module, or one that it needs, is not installed.
        AttributeError: if it lacks something that is needed, as an old one may.
        RuntimeError: if CUPTI refuses, as beside another profiler.
    """

    missing: Sequence[str] = ()

    def __init__(self) -> None:
        self._cupti: Any = import_module("cupti.cupti")
        self.source = f"{_MODULE} {metadata.version(_MODULE)}"
        kinds = self._cupti.ActivityKind
        self._kinds = (
            *(kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET),
            *(kinds.DRIVER, kinds.RUNTIME),
        )
        self._buffers = ActivityBuffers(self._cupti)
        self._call_names: dict[tuple[str, int], str] = {}
        self._kernel_names: dict[int, str] = {}
        self._taken = PassRecords()
        self._lost = 0
        # Fail here, where another tracer can still be used, rather than in the first pass.
        with self.recording():
            pass

    @contextmanager
    def recording(self) -> Iterator[None]:
        """See `Tracer`."""
        try:
            try:
                self._attach()
                yield
                self._give_out()
            finally:
                self._cupti.finalize()
                self._lost += self._buffers.reclaim()
        except self._cupti.cuptiError as error:
            raise RuntimeError(f"CUPTI refused: {error}") from error

    def _attach(self) -> None:
        self._buffers.register()
        self._cupti.activity_enable_latency_timestamps(1)
        for kind in self._kinds:
            self._cupti.activity_enable(kind)

    def _give_out(self) -> None:
        """End a pass: take all records, and the number of lost ones, which CUPTI then resets."""
        for kind in self._kinds:
            self._cupti.activity_disable(kind)
        self._cupti.activity_flush_all(1)
        number = ctypes.c_size_t(0)
        self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(number))
        self._lost += number.value
        # Before CUPTI is finalized: the names of kernels are in its memory.
        self._kernel_names.clear()
        self._buffers.take(self._take)

    def dropped(self) -> int:
        """See `Tracer`."""
        lost, self._lost = self._lost, 0
        return lost

    def taken(self) -> PassRecords:
        """See `Tracer`."""
        self._taken.unreadable = self._buffers.unreadable
        return self._taken

    def _take(self, kind: int, columns: Columns) -> None:
        kinds = self._cupti.ActivityKind
        if kind in (kinds.DRIVER, kinds.RUNTIME):
            self._taken.calls += list(self._calls(columns, kind == kinds.DRIVER))
        elif kind in (kinds.CONCURRENT_KERNEL, kinds.KERNEL):
            self._taken.operations += list(self._kernels(columns))
        elif kind == kinds.MEMCPY:
            names = [_copy_name(copy_kind) for copy_kind in columns["copy_kind"]]
            self._taken.operations += list(_moves("copy", names, columns))
        else:
            names = ["memset"] * len(columns["bytes"])
            self._taken.operations += list(_moves("memset", names, columns))

    def _calls(self, columns: Columns, is_driver: bool) -> Iterator[ApiRecord]:
        api: Literal["driver", "runtime"] = "driver" if is_driver else "runtime"
        for number, correlation, start, end in _rows(
            columns, "cbid", "correlation_id", "start", "end"
        ):
            yield ApiRecord(api, self._call_name(api, number), correlation, start, end)

    def _call_name(self, api: str, number: int) -> str:
        key = api, number
        if key not in self._call_names:
            domain = self._cupti.CallbackDomain
            of = domain.DRIVER_API if api == "driver" else domain.RUNTIME_API
            name = str(self._cupti.get_callback_name(of, number))
            self._call_names[key] = _without_version(name)
        return self._call_names[key]

    def _kernels(self, columns: Columns) -> Iterator[DeviceRecord]:
        names = "name", "correlation_id", "start", "end", "queued", "submitted"
        for address, correlation, start, end, queued, submitted in _rows(columns, *names):
            if address not in self._kernel_names:
                self._kernel_names[address] = _text_at(address)
            name = self._kernel_names[address]
            queue = queued or None, submitted or None
            yield DeviceRecord("kernel", name, correlation, start, end, *queue)


def _text_at(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace") if address else "unnamed kernel"


def _moves(
    kind: Literal["copy", "memset"], names: Sequence[str], columns: Columns
) -> Iterator[DeviceRecord]:
    rows = _rows(columns, "correlation_id", "start", "end", "bytes")
    for name, (correlation, start, end, moved) in zip(names, rows, strict=True):
        yield DeviceRecord(kind, name, correlation, start, end, moved_bytes=moved)


def _rows(columns: Columns, *names: str) -> Iterator[tuple[int, ...]]:
    return zip(*(columns[name] for name in names), strict=True)


# CUpti_ActivityMemcpyKind of cupti_activity.h.
_COPIES = {1: "host to device", 2: "device to host", 8: "device to device", 9: "host to host"}


def _copy_name(kind: int) -> str:
    return f"copy {_COPIES.get(kind, f'of kind {kind}')}"


def _without_version(name: str) -> str:
    """Return the name that programs use: `cudaLaunchKernel` for `cudaLaunchKernel_v7000`."""
    base, mark, version = name.rpartition("_v")
    return base if mark and version.isdecimal() else name
