"""Steps of a continuous-batching scheduler that serves the requests of a trace.

The window starts at a given step, at the "start", or around the "middle" step of the whole
sequence, or it is the one with the most tokens ("busiest", the first such window). Its setup holds
the blocks of the requests that run when it starts, one append for each.
"""

from __future__ import annotations

from array import array
from collections import deque
from functools import lru_cache
from itertools import islice
from typing import Literal

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.assemble import layout_of
from bt_bench.suites.block_tables.workloads.describe import (
    Description,
    StepFigures,
    Tally,
    TraceFigures,
    sizes_of,
)
from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters, programs_of_step
from bt_bench.suites.block_tables.workloads.serving.limits import (
    fit_lengths,
    pool_size,
    refuse_oversized,
    validate_trace,
)
from bt_bench.suites.block_tables.workloads.serving.parameters import ServingParameters
from bt_bench.suites.block_tables.workloads.serving.scheduler import (
    Scheduler,
    iterate_steps,
    reader_of,
)
from bt_bench.suites.block_tables.workloads.steps import Int64Array
from bt_bench.suites.block_tables.workloads.window import (
    Window,
    beyond_the_end,
    first_step,
    known_start,
)
from bt_bench.suites.block_tables.workloads.workload import Workload


class TraceParameters(WorkloadParameters, ServingParameters):
    """Steps of a continuous-batching scheduler that serves the requests of a trace."""

    workload: Literal["trace"]
    window: Window = Window()

    def check(self) -> None:
        """See the base class."""
        try:
            validate_trace(self)
        except (OSError, RuntimeError) as error:  # an invalid path only shows when it is used
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"'trace' is not a usable path: {reason}") from error

    def check_by_reading(self) -> None:
        """See the base class: a trace that is damaged, needs more blocks, or is too short.

        Only the scheduler can determine the length of a sequence. It takes at least as many steps
        as any request generates tokens: a window of no more steps fits, at any named place. Behind
        a window of the start, nothing is read.
        """
        number = longest = 0
        for part in reader_of(self).parts():
            context, generated = fit_lengths(part, self.max_model_len)
            refuse_oversized(context + generated - 1, self, pool_size(self), number)
            number += len(part)
            longest = max(longest, int(generated.max()))
            if known_start(self.window) is not None:
                break
        if isinstance(self.window.at, int) or self.window.steps > longest:
            self.build()

    def num_programs(self) -> int:
        """See the base class; assumes as many as run at once on average, early in the trace."""
        trace = next(reader_of(self).parts())
        _, generated = fit_lengths(trace, self.max_model_len)
        seconds = float(generated.sum()) * self.base_ms / 1000
        running = seconds / max(float(trace.arrival_s[-1]), self.base_ms / 1000)
        requests = min(self.max_num_reqs, int(running) + 1)
        return self.window.steps * programs_of_step(requests, len(self.block_sizes()))

    def build(self) -> Workload:
        """See the base class; reads the trace as far as the window needs it."""
        window = self.window
        start = known_start(window)
        if start is None:
            start = first_step(window, tokens_per_step(self))
        scheduler = Scheduler(self)
        while scheduler.num_steps < start and scheduler.advance():
            pass
        setup = scheduler.live_rows()
        steps = tuple(islice(iterate_steps(scheduler), window.steps))
        if len(steps) < window.steps:
            raise beyond_the_end(window, start, scheduler.num_steps)
        return Workload(
            layout_of(self),
            self.idx_mapping_dtype,
            setup,
            steps,
            self.custom_outputs,
            remarks=tuple(scheduler.facts.remarks()),
        )

    def describe(self, workload: Workload | None = None) -> Description:
        """See the base class; serves the whole trace, or up to the end of a numbered window."""
        scheduler = Scheduler(self)
        tally = Tally(layout_of(self), self.tokens_per_column())
        at = self.window.at
        end = at + self.window.steps if isinstance(at, int) else None
        while scheduler.num_steps != end and scheduler.advance():
            tally.add(scheduler.batch)
        start = first_step(self.window, tally.tokens())
        pool, facts = scheduler.pool, scheduler.facts
        if end is not None:
            reader = reader_of(self)
            facts = reader.facts  # of all requests, which are read, but not served
            deque(reader.parts(), maxlen=0)
        return Description(
            kind=self.workload,
            **sizes_of(layout_of(self), self.features, self.source()),
            requests_served=scheduler.num_finished,
            steps=tally.figures(),
            block_allocations=pool.num_allocations,
            block_reuse=pool.num_allocations / pool.num_distinct,
            peak_blocks_in_use=pool.peak_in_use,
            trace=TraceFigures(
                requests=facts.requests,
                span_s=facts.span_s,
                rate_per_s=facts.rate_per_s,
                requests_failed=facts.failed,
                requests_in_other_parts=facts.elsewhere,
                requests_sharing_a_prefix=facts.sharing,
                prefix_hits=scheduler.num_hits if self.prefix_caching else None,
                prefix_hit_tokens=scheduler.num_hit_tokens if self.prefix_caching else None,
                warnings=list(facts.warnings()),
                served_whole=end is None,
                simulated_s=scheduler.clock_s,
                requests_truncated=scheduler.num_truncated,
                preemptions=scheduler.num_preempted,
                pool_blocks=pool.num_blocks,
                window_name=self.window.name,
                window_start=start,
                window=_window_figures(self, start),
            ),
        )


def _window_figures(parameters: TraceParameters, start: int) -> StepFigures:
    """Compute the window's figures in a second pass, since its place may depend on the first."""
    scheduler = Scheduler(parameters)
    tally = Tally(layout_of(parameters), parameters.tokens_per_column())
    while scheduler.num_steps < start + parameters.window.steps and scheduler.advance():
        if scheduler.num_steps > start:
            tally.add(scheduler.batch)
    return tally.figures()


def tokens_per_step(parameters: TraceParameters) -> Int64Array:
    """Return the tokens of each step of the whole sequence."""
    # All windows of a sequence share one pass over it.
    whole = parameters.model_copy(update={"window": Window()})
    return _tokens_per_step(type(parameters), whole.model_dump_json())


@lru_cache(maxsize=8)
def _tokens_per_step(kind: type[TraceParameters], parameters_json: str) -> Int64Array:
    scheduler = Scheduler(kind.model_validate_json(parameters_json))
    tokens = array("i")
    while scheduler.advance():
        tokens.append(scheduler.batch.num_tokens)
    counts = np.array(tokens, dtype=np.int64)
    counts.flags.writeable = False
    return counts
