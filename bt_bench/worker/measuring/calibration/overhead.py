"""Host cost of launching an empty kernel, through each route that Python has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import triton

from bt_bench.worker.measuring.calibration.timers import Sampler, interleave
from bt_bench.worker.measuring.device_kernels import launch_null
from bt_bench.worker.measuring.ports import Call, Clock, SystemClock
from bt_bench.worker.measuring.regions import host_time_in_a_row

# Launches in a row between two synchronizations: fewer than the queue of a stream holds. The host
# therefore never waits for the device.
BATCH = 100
_WARMUP_LAUNCHES = 10


@triton.jit
def _null_kernel_with_arguments(  # type: ignore[no-untyped-def]  # Triton's own types
    a, b, c, d, e, f, g, h, i, j
):
    pass


@dataclass(frozen=True)
class LaunchRoute:
    """A way to launch.

    Args:
        name: short name.
        what: description for people.
        launch: enqueues one launch.
    """

    name: str
    what: str
    launch: Call


@dataclass(frozen=True)
class Route:
    """A way to launch, and the host cost of one launch.

    Args:
        name: short name.
        what: description for people.
        samples_us: host time per launch in µs, one sample per batch of `BATCH` launches.
    """

    name: str
    what: str
    samples_us: list[float]

    @property
    def median_us(self) -> float:
        """Return the median host time per launch in µs."""
        return median(self.samples_us)


def measure_overhead(rounds: int) -> list[Route]:
    """Time every route, interleaved in rounds, on the current CUDA device."""
    nothing = LaunchRoute("empty_call", "a Python call that does nothing", lambda: None)
    routes = [nothing, *launch_routes()]
    synchronize = torch.cuda.synchronize
    samplers = launch_samplers(routes, SystemClock(), synchronize, BATCH)
    samples = interleave(samplers, rounds)
    synchronize()
    return [Route(route.name, route.what, samples[route.name]) for route in routes]


def launch_samplers(
    routes: Sequence[LaunchRoute], clock: Clock, synchronize: Call, count: int
) -> list[Sampler]:
    """Build samplers of each route's host time per launch in µs.

    Each sample makes `count` launches in a row onto an idle device.
    """

    def sample(launch: Call) -> tuple[float]:
        synchronize()
        return (host_time_in_a_row(clock, launch, count),)

    return [Sampler((route.name,), partial(sample, route.launch)) for route in routes]


def launch_routes() -> list[LaunchRoute]:
    """Build the routes to launch an empty kernel on the current CUDA device, warmed up."""
    buffer = torch.zeros(1, dtype=torch.int32, device="cuda")
    arguments = (buffer,) * 6 + (17, 33, 65, 129)
    jit_with_arguments: Any = _null_kernel_with_arguments
    compiled = launch_null()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_null()
    routes = [
        LaunchRoute("triton_jit", "Triton, no argument", launch_null),
        LaunchRoute(
            "triton_jit_10",
            "Triton, 6 tensors and 4 integers",
            lambda: jit_with_arguments[(1,)](*arguments),
        ),
        LaunchRoute(
            "triton_compiled",
            "Triton's compiled handle, no argument",
            lambda: compiled[(1, 1, 1)](),
        ),
        LaunchRoute("torch_fill", "torch fill_ of one element", lambda: buffer.fill_(1)),
        LaunchRoute("cuda_graph", "replay of a CUDA graph of one empty kernel", graph.replay),
    ]
    for route in routes:
        for _ in range(_WARMUP_LAUNCHES):
            route.launch()
    torch.cuda.synchronize()
    return routes


def saved_us(route: Route, launches: int) -> float:
    """Return the host time in µs that `launches` fewer launches save by this route."""
    return launches * route.median_us
