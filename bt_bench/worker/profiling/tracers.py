"""Tracers of a step's calls and device operations: CUPTI, or torch's profiler without it.

Both take the same records. A process may use only one of them: CUPTI has one subscriber.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from bt_bench.worker.profiling.cupti_tracer import CuptiTracer
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, PassRecords


class Tracer(Protocol):
    """A recorder of passes, one after the other."""

    @property
    def source(self) -> str:
        """The tracer's name and version."""

    @property
    def missing(self) -> Sequence[str]:
        """The information that the tracer does not provide, as clauses."""

    def recording(self) -> AbstractContextManager[None]:
        """Record everything in the block as one pass.

        Before and after it nothing is attached to the process, since that would make calls of CUDA
        longer.
        """

    def dropped(self) -> int:
        """Return the number of records that were lost since the last call."""

    def taken(self) -> PassRecords:
        """Return the records of all passes."""


def tracer() -> Tracer:
    """Return a tracer with CUPTI's own module if that works, else with torch's profiler."""
    try:
        return CuptiTracer()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return TorchTracer(f"{type(error).__name__}: {error}")


class TorchTracer:
    """A tracer with torch's profiler, which asks the same CUPTI, but not for everything.

    Args:
        why: the reason why CUPTI's own module is not used.
    """

    def __init__(self, why: str) -> None:
        import torch

        self._taken = PassRecords()
        self.source = f"torch.profiler {torch.__version__}"
        self.missing = (
            "when a command was queued, and when it was submitted to the GPU",
            "calls of the CUDA API that torch's profiler leaves out",
            "how many bytes a copy moved",
            "records that were lost",
            f"since cupti-python cannot be used ({why}); install the one for the driver's CUDA "
            "version, such as: pip install 'cupti-python==13.0.*'",
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
        """Return 0, since torch does not count lost records; see `Tracer`."""
        return 0

    def taken(self) -> PassRecords:
        """See `Tracer`."""
        return self._taken


def _take_event(event: Any, taken: PassRecords) -> None:
    """Sort an event of Kineto's; skip all but calls of CUDA and device operations."""
    from torch._C._autograd import DeviceType

    from bt_bench.worker.measuring.profiler_session import kind_of

    name, start = str(event.name()), int(event.start_ns())
    end, correlation = start + int(event.duration_ns()), int(event.correlation_id())
    if event.device_type() == DeviceType.CUDA:
        taken.operations.append(DeviceRecord(kind_of(name), name, correlation, start, end))
    elif name.startswith("cuda"):
        taken.calls.append(ApiRecord("runtime", name, correlation, start, end))
    elif name.startswith("cu") and name[2:3].isupper():
        taken.calls.append(ApiRecord("driver", name, correlation, start, end))
