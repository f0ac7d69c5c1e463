"""What records the calls and device operations of a step: CUPTI, or torch's profiler without it.

Both take the same records. Only one of them may be used in a process: CUPTI has one subscriber.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import Any, Literal, Protocol

# Much more than a pass fills: a buffer that is full is given back in the middle of it.
BUFFER_BYTES = 8 << 20
_MODULE = "cupti-python"


@dataclass(frozen=True)
class ApiRecord:
    """A call of the CUDA API; times of the host's real-time clock in ns."""

    api: Literal["driver", "runtime"]
    name: str
    correlation: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class DeviceRecord:
    """A device operation; times as those of `ApiRecord`."""

    kind: Literal["kernel", "copy", "memset"]
    name: str
    correlation: int
    start_ns: int
    end_ns: int
    queued_ns: int | None = None
    submitted_ns: int | None = None
    moved_bytes: int | None = None


@dataclass
class Taken:
    """The records of all passes, in the order in which they came.

    `dropped` is how many were lost.
    """

    calls: list[ApiRecord] = field(default_factory=list)
    operations: list[DeviceRecord] = field(default_factory=list)
    dropped: int = 0


class Tracer(Protocol):
    """Records passes, one after the other."""

    @property
    def source(self) -> str:
        """What it is, with its version."""
        ...

    @property
    def missing(self) -> Sequence[str]:
        """What it does not tell, as clauses."""
        ...

    def recording(self) -> AbstractContextManager[None]:
        """A pass: everything in the block is recorded. Before and after it nothing is attached to
        the process, which would make calls of CUDA longer.
        """
        ...

    def dropped(self) -> int:
        """How many records were lost since this was last asked."""
        ...

    def taken(self) -> Taken:
        """The records of all passes."""
        ...


def tracer() -> Tracer:
    """CUPTI's own module if it is there and works, else torch's profiler."""
    try:
        return CuptiTracer()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return TorchTracer(f"{type(error).__name__}: {error}")


class CuptiTracer:
    """By `cupti-python`, which has to be of the CUDA version of the driver.

    Raises:
        ImportError: if the module, or what it needs, is not installed.
        AttributeError: if it is too old to have what is needed.
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
        self._names: dict[tuple[str, int], str] = {}
        self._taken = Taken()
        self._lost = 0
        # Now rather than in the first pass, where nothing else could be used instead.
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
        except self._cupti.cuptiError as error:
            raise RuntimeError(f"CUPTI refused: {error}") from error

    def _attach(self) -> None:
        self._cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)
        self._cupti.activity_enable_latency_timestamps(1)
        for kind in self._kinds:
            self._cupti.activity_enable(kind)

    def _give_out(self) -> None:
        """Ends a pass: takes all records, and asks how many were lost, which CUPTI forgets then."""
        for kind in self._kinds:
            self._cupti.activity_disable(kind)
        self._cupti.activity_flush_all(1)
        number = ctypes.c_size_t(0)
        self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(number))
        self._lost += number.value

    def dropped(self) -> int:
        """See `Tracer`."""
        lost, self._lost = self._lost, 0
        return lost

    def taken(self) -> Taken:
        """See `Tracer`."""
        return self._taken

    def _completed(self, activities: Sequence[Any]) -> None:
        """Takes the records of a buffer, whose memory is CUPTI's again afterwards.

        Nothing is raised into CUPTI, which would leave the records out without a word.
        """
        try:
            self._take(activities)
        except Exception:
            self._lost += 1

    def _take(self, activities: Sequence[Any]) -> None:
        kinds = self._cupti.ActivityKind
        for activity in activities:
            kind = activity.kind
            if kind in (kinds.DRIVER, kinds.RUNTIME):
                self._taken.calls.append(self._call(activity, kind == kinds.DRIVER))
            elif kind in (kinds.CONCURRENT_KERNEL, kinds.KERNEL):
                self._taken.operations.append(
                    DeviceRecord(
                        "kernel",
                        str(activity.name),
                        activity.correlation_id,
                        activity.start,
                        activity.end,
                        activity.queued or None,
                        activity.submitted or None,
                    )
                )
            elif kind in (kinds.MEMCPY, kinds.MEMSET):
                is_copy = kind == kinds.MEMCPY
                name = _copy_name(activity.copy_kind) if is_copy else "memset"
                self._taken.operations.append(
                    DeviceRecord(
                        "copy" if is_copy else "memset",
                        name,
                        activity.correlation_id,
                        activity.start,
                        activity.end,
                        moved_bytes=activity.bytes,
                    )
                )

    def _call(self, activity: Any, is_driver: bool) -> ApiRecord:
        domain = self._cupti.CallbackDomain
        api: Literal["driver", "runtime"] = "driver" if is_driver else "runtime"
        key = (api, activity.cbid)
        if key not in self._names:
            of = domain.DRIVER_API if is_driver else domain.RUNTIME_API
            self._names[key] = _without_version(str(self._cupti.get_callback_name(of, key[1])))
        return ApiRecord(
            api, self._names[key], activity.correlation_id, activity.start, activity.end
        )


# CUpti_ActivityMemcpyKind of cupti_activity.h.
_COPIES = {1: "host to device", 2: "device to host", 8: "device to device", 9: "host to host"}


def _copy_name(kind: int) -> str:
    return f"copy {_COPIES.get(int(kind), f'of kind {int(kind)}')}"


def _without_version(name: str) -> str:
    """`cudaLaunchKernel_v7000` as it is called in a program."""
    base, mark, version = name.rpartition("_v")
    return base if mark and version.isdecimal() else name


class TorchTracer:
    """By torch's profiler, which asks the same CUPTI, but not for everything.

    Args:
        why: CUPTI's own module is not used.
    """

    def __init__(self, why: str) -> None:
        import torch

        self._taken = Taken()
        self.source = f"torch.profiler {torch.__version__}"
        self.missing = (
            "when a command was queued, and when it was submitted to the GPU",
            "calls of the CUDA API that torch's profiler leaves out",
            "how many bytes a copy moved",
            "records that were lost",
            f"since cupti-python cannot be used ({why}); install that of the CUDA version of the "
            "driver, such as: pip install 'cupti-python==13.0.*'",
        )

    @contextmanager
    def recording(self) -> Iterator[None]:
        """See `Tracer`."""
        from torch.autograd.profiler import profile

        with profile(use_kineto=True, use_device="cuda", use_cpu=False) as profiler:
            yield
        results: Any = profiler.kineto_results
        for event in results.events():
            _take_event(event, self._taken)

    def dropped(self) -> int:
        """See `Tracer`; torch does not tell."""
        return 0

    def taken(self) -> Taken:
        """See `Tracer`."""
        return self._taken


def _take_event(event: Any, taken: Taken) -> None:
    """Sorts an event of Kineto's; what is neither a call of CUDA nor a device operation is left."""
    from torch._C._autograd import DeviceType

    name, start = str(event.name()), int(event.start_ns())
    end, correlation = start + int(event.duration_ns()), int(event.correlation_id())
    if event.device_type() == DeviceType.CUDA:
        if name.startswith("Memcpy"):
            operation = DeviceRecord("copy", name, correlation, start, end)
        elif name.startswith("Memset"):
            operation = DeviceRecord("memset", name, correlation, start, end)
        else:
            operation = DeviceRecord("kernel", name, correlation, start, end)
        taken.operations.append(operation)
    elif name.startswith("cuda"):
        taken.calls.append(ApiRecord("runtime", name, correlation, start, end))
    elif name.startswith("cu") and name[2:3].isupper():
        taken.calls.append(ApiRecord("driver", name, correlation, start, end))
