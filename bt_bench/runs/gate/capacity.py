"""The number of processes that a gate may have at once."""

from __future__ import annotations

from bt_bench.base import format_bytes
from bt_bench.base.errors import UsageError
from bt_bench.base.limits import usable_cores
from bt_bench.runs.gate.sides import RoundsRequest
from bt_bench.worker import Hello, available_bytes

MAX_WORKERS = 24
HOST_BYTES_OF_WORKER = 3 * 2**30  # torch, CUDA's libraries and a context's host side
DEVICE_BYTES_OF_WORKER = 2**30  # a context, and the smallest blocks of torch's allocator
STATES_OF_INSTANCE = 2  # its tensors, and at most one snapshot from before the first step


def num_workers(request: RoundsRequest, hello: Hello, *, shared: bool) -> int:
    """Return how many processes may run at once: by cores and memory, or by `--workers`.

    There is one for each device, if there is memory for them.

    Raises:
        UsageError: if not even one fits into memory.
    """
    spec = request.spec
    needed = sum(case.parameters.num_bytes() for case in spec.cases)
    needed *= STATES_OF_INSTANCE * request.plan().instances * len(request.variants)
    if shared:
        needed *= len(request.sides)
    on_gpu = hello.device == "cuda"
    devices = len(request.devices)
    rooms = [(available_bytes("cpu"), HOST_BYTES_OF_WORKER if on_gpu else 2**29 + needed, 1)]
    if on_gpu:
        rooms.append((hello.available_bytes, DEVICE_BYTES_OF_WORKER + needed, devices))
    for room, each, _ in rooms:
        if room is not None and room < each:
            raise UsageError(
                f"a process-round would need {format_bytes(each)} of memory, "
                f"{format_bytes(needed)} of it for {len(spec.cases)} cases with "
                f"{len(request.variants)} variants, and {format_bytes(room)} are available; raise "
                "the limit of a container, or leave cases out with -k, or variants with --variants"
            )
    fitting = min((room // each * of for room, each, of in rooms if room is not None), default=2)
    environment = hello.environment
    affinity = environment.cpu_affinity or environment.cpu_count or 1
    cores = usable_cores(affinity, environment.cpu_quota)
    # A user who names a number may know of memory that the system does not show.
    return request.workers or min(max(devices, workers_of(cores)), fitting)


def workers_of(cores: int) -> int:
    """Return how many processes so many cores may have at once, if memory allows."""
    return min(MAX_WORKERS, max(2, 3 * cores // 2))
