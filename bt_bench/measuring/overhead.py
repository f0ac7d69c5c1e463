"""Host cost of launching an empty kernel, through each route that Python has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import triton

from bt_bench.measuring.ports import Clock, SystemClock

# Launches in a row between two synchronizations: fewer than the queue of a stream holds, so that
# the host never waits for the device.
BATCH = 100


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def _empty_kernel() -> None:
    pass


@triton.jit
def _empty_kernel_with_arguments(  # type: ignore[no-untyped-def]  # Triton's own types
    a, b, c, d, e, f, g, h, i, j
):
    pass


@dataclass(frozen=True)
class Route:
    """A way to launch, and what one launch costs the host.

    Args:
        name: short name.
        what: what is launched, for people.
        samples_us: host time per launch in µs, one sample per batch of `BATCH` launches.
    """

    name: str
    what: str
    samples_us: list[float]

    @property
    def median_us(self) -> float:
        """Median host time per launch in µs."""
        return median(self.samples_us)


def measure_overhead(rounds: int = 50, clock: Clock | None = None) -> list[Route]:
    """Times every route, interleaved in rounds, on the current CUDA device."""
    routes = _routes()
    now_ns = (clock or SystemClock()).now_ns
    samples: dict[str, list[float]] = {name: [] for name in routes}
    for _what, launch in routes.values():
        for _ in range(10):
            launch()
    for _ in range(rounds):
        for name, (_what, launch) in routes.items():
            torch.cuda.synchronize()
            start = now_ns()
            for _ in range(BATCH):
                launch()
            end = now_ns()
            samples[name].append((end - start) / 1e3 / BATCH)
    torch.cuda.synchronize()
    return [Route(name, what, samples[name]) for name, (what, _launch) in routes.items()]


def _routes() -> dict[str, tuple[str, Callable[[], object]]]:
    buffer = torch.zeros(1, dtype=torch.int32, device="cuda")
    arguments = (buffer,) * 6 + (17, 33, 65, 129)
    jit: Any = _empty_kernel
    jit_with_arguments: Any = _empty_kernel_with_arguments
    compiled = jit[(1,)]()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        jit[(1,)]()
    return {
        "empty_call": ("a Python call that does nothing", lambda: None),
        "triton_jit": ("Triton, no argument", lambda: jit[(1,)]()),
        "triton_jit_10": (
            "Triton, 6 tensors and 4 integers",
            lambda: jit_with_arguments[(1,)](*arguments),
        ),
        "triton_compiled": ("Triton's compiled handle, no argument", lambda: compiled[(1, 1, 1)]()),
        "torch_fill": ("torch fill_ of one element", lambda: buffer.fill_(1)),
        "cuda_graph": ("replay of a CUDA graph of one empty kernel", graph.replay),
    }


def saved_us(route: Route, num_groups: int) -> float:
    """Host time in µs that going from G + 2 launches to 2 saves by this route."""
    return num_groups * route.median_us
