"""From validated parameters to a workload, and what it takes in memory.

The window of a trace starts at a given step, at the "start", around the "middle" step of the whole
sequence, or where its steps have the most tokens in all ("busiest", the first such window). Its
setup holds the blocks of the requests that run when it starts, one append for each.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

import numpy as np

from bt_bench.errors import UsageError
from bt_bench.workloads.assemble import layout_of
from bt_bench.workloads.batch import build_batch, validate_batch
from bt_bench.workloads.parameters import (
    BatchParameters,
    TraceParameters,
    UniformParameters,
    Window,
)
from bt_bench.workloads.serving.limits import validate_trace
from bt_bench.workloads.serving.scheduler import Scheduler
from bt_bench.workloads.steps import Int64Array, Step, Workload
from bt_bench.workloads.uniform import build_uniform, validate_uniform
from bt_kernels.layout import CUSTOM_OUTPUTS, DUMMY_REQUESTS, TableLayout

__all__ = [
    "build_workload",
    "estimate_bytes",
    "features_of",
    "first_step",
    "layout_of",
    "tokens_per_step",
    "validate_parameters",
]

AnyParameters = UniformParameters | BatchParameters | TraceParameters

TABLE_ITEM_BYTES = 4
SLOT_ITEM_BYTES = 8


def validate_parameters(parameters: AnyParameters) -> None:
    """Refuses parameters that do not go together, cheaply: nothing is built or read.

    Raises:
        UsageError: naming parameter, value and limit.
    """
    if isinstance(parameters, UniformParameters):
        validate_uniform(parameters)
    elif isinstance(parameters, BatchParameters):
        validate_batch(parameters)
    else:
        validate_trace(parameters)


def build_workload(parameters: AnyParameters) -> Workload:
    """Builds the workload; equal parameters give equal workloads.

    Raises:
        UsageError: as `validate_parameters`; for a trace that cannot be read or served, or whose
            sequence ends before the window does.
    """
    if isinstance(parameters, UniformParameters):
        return build_uniform(parameters)
    if isinstance(parameters, BatchParameters):
        return build_batch(parameters)
    return _build_from_trace(parameters)


def estimate_bytes(layout: TableLayout) -> int:
    """Device bytes of one variant: source and input tables, and slot mappings."""
    cells: int = layout.max_num_reqs * sum(layout.widths)
    slots: int = layout.num_groups * layout.max_num_batched_tokens
    return 2 * TABLE_ITEM_BYTES * cells + SLOT_ITEM_BYTES * slots


def features_of(parameters: AnyParameters) -> frozenset[str]:
    """The `features` of the workload of these parameters, which need not be built for it."""
    features = set(layout_of(parameters).features)
    if parameters.custom_outputs:
        features.add(CUSTOM_OUTPUTS)
    if not isinstance(parameters, TraceParameters) and parameters.dummy_requests:
        features.add(DUMMY_REQUESTS)
    return frozenset(features)


def _build_from_trace(parameters: TraceParameters) -> Workload:
    window = parameters.window
    start = _known_start(window)
    if start is None:
        start = first_step(window, tokens_per_step(parameters))
    scheduler = Scheduler(parameters)
    while scheduler.num_steps < start and scheduler.advance():
        pass
    setup = scheduler.live_rows()
    steps: list[Step] = []
    while len(steps) < window.steps and scheduler.advance():
        steps.append(scheduler.step())
    if len(steps) < window.steps:
        raise _beyond_the_end(window, start, scheduler.num_steps)
    return Workload(
        layout_of(parameters),
        parameters.idx_mapping_dtype,
        setup,
        tuple(steps),
        parameters.custom_outputs,
    )


def first_step(window: Window, tokens: Int64Array) -> int:
    """The first step of a window in a sequence whose steps have so many tokens.

    Raises:
        UsageError: when the window does not fit into the sequence.
    """
    start = _known_start(window)
    if start is None and window.steps <= len(tokens):
        if window.at == "middle":
            return (len(tokens) - window.steps) // 2
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(tokens)))
        return int((before[window.steps :] - before[: -window.steps]).argmax())
    if start is None or start + window.steps > len(tokens):
        raise _beyond_the_end(window, start or 0, len(tokens))
    return start


def tokens_per_step(parameters: TraceParameters) -> Int64Array:
    """Tokens of each step of the whole sequence."""
    # All windows of a sequence share one pass over it.
    return _tokens_per_step(parameters.model_copy(update={"window": Window()}).model_dump_json())


@lru_cache(maxsize=8)
def _tokens_per_step(parameters_json: str) -> Int64Array:
    scheduler = Scheduler(TraceParameters.model_validate_json(parameters_json))
    tokens = array("q")
    while scheduler.advance():
        tokens.append(scheduler.batch.num_tokens)
    counts = np.array(tokens, dtype=np.int64)
    counts.flags.writeable = False
    return counts


def _known_start(window: Window) -> int | None:
    if window.at == "start":
        return 0
    return window.at if isinstance(window.at, int) else None


def _beyond_the_end(window: Window, start: int, num_steps: int) -> UsageError:
    return UsageError(
        f"window {window.name!r} needs {window.steps} steps from step {start}, which is "
        f"{start + window.steps}, but the sequence has {num_steps}; choose an earlier or a shorter "
        "window"
    )
