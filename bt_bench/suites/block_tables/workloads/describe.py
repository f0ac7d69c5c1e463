"""The description of a workload, before anything is timed.

Every figure of a trace covers all its steps, and again the window's alone. Only one small integer
is kept of each step; the whole sequence is never in memory.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from bt_bench.base.errors import UsageError
from bt_bench.results import Noun
from bt_bench.suites.block_tables.workloads.assemble import estimate_bytes
from bt_bench.suites.block_tables.workloads.serving.scheduler import ScheduledBatch
from bt_bench.suites.block_tables.workloads.steps import Append, Int64Array, Step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout


class Distribution(Noun):
    """A figure over steps, or over steps and rows. Percentiles are values that occur."""

    min: int
    p50: int
    p90: int
    p99: int
    max: int
    mean: float


class RowBlocks(Noun):
    """Blocks that a scheduled row holds, over steps and rows, in groups of one block size.

    Under context parallelism, `block_size` counts the tokens of a block together with the blocks
    of the other ranks in its place.
    """

    block_size: int
    num_groups: int
    blocks: Distribution


class StepFigures(Noun):
    """Figures of a sequence of steps. The shares are of its steps, from 0 to 1.

    `share_with_prefill` is `None` if requests in prefill and in decode are not distinguished.
    """

    num_steps: int
    num_reqs: Distribution
    num_tokens: Distribution
    rows_written: Distribution
    block_ids_written: Distribution
    row_blocks: list[RowBlocks]
    share_without_write: float
    share_with_every_group_written: float
    share_with_prefill: float | None


class TraceFigures(Noun):
    """Figures that only a trace has: its own, of its serving, and of the window's steps.

    Args:
        requests: its requests, without those that are left out.
        span_s: seconds from its first arrival to its last one, as in the file.
        rate_per_s: mean arrivals a second in the file; `None`: all arrive at once.
        requests_failed: requests of 0 tokens, which are left out.
        requests_in_other_parts: requests left out by the limits of `part`.
        requests_sharing_a_prefix: requests whose prompts begin with the same hashed block as
            another's; `None`: the trace has no hashes.
        prefix_hits: admissions of requests with cached blocks; `None`: there is no cache.
        prefix_hit_tokens: tokens in these blocks; `None` likewise.
        warnings: reasons to think that the trace was read in a wrong way.
        served_whole: whether all of it was served, not just up to the end of the window.
        simulated_s: seconds that serving it takes, so far.
        requests_truncated: requests cut to `max_model_len`.
        preemptions: requests that lost their blocks, counted each time.
        pool_blocks: blocks of all groups.
        window_name: name of the window.
        window_start: its first step.
        window: figures of its steps.
    """

    requests: int
    span_s: float
    rate_per_s: float | None
    requests_failed: int
    requests_in_other_parts: int
    requests_sharing_a_prefix: int | None
    prefix_hits: int | None
    prefix_hit_tokens: int | None
    warnings: list[str]
    served_whole: bool
    simulated_s: float
    requests_truncated: int
    preemptions: int
    pool_blocks: int
    window_name: str
    window_start: int
    window: StepFigures


class RecordedFigures(Noun):
    """Figures that only a recording has.

    Args:
        num_steps: steps of the whole recording.
        window_name: name of the window.
        window_start: its first step.
        left_out: by method, calls of the whole recording that are in no step.
        note: why the end of the file is incomplete; `None`: it is whole.
    """

    num_steps: int
    window_name: str
    window_start: int
    left_out: dict[str, int]
    note: str | None


class Description(Noun):
    """A workload: its sizes, its steps, and its blocks.

    Args:
        kind: such as uniform, batch, spread or trace.
        features: abilities beyond the plain path that a variant needs, sorted.
        block_sizes: tokens per block, per group.
        widths: columns of a row, per group.
        reaches: tokens before a request's first computed one that are still read, per group; 0: no
            sliding window.
        slot_mapping_enabled: whether tokens have slots, per group.
        layout_source: whose tables these are, in words; `None`: nobody's.
        max_num_reqs: rows of a table.
        max_num_batched_tokens: slots per group.
        bytes_per_variant: device memory that a variant needs for the workload.
        requests_served: requests that end in `steps`.
        steps: the sequence of a trace, see `TraceFigures.served_whole`, or the single step.
        block_allocations: block ids handed out, over all groups.
        block_reuse: `block_allocations` per distinct id: 1 means that none was used twice.
        peak_blocks_in_use: most block ids owned by rows at a time, over all groups.
        trace: further figures, for a trace only.
        recorded: further figures, for a recording only.
    """

    kind: str
    features: list[str]
    block_sizes: list[int]
    widths: list[int]
    reaches: list[int]
    slot_mapping_enabled: list[bool]
    layout_source: str | None
    max_num_reqs: int
    max_num_batched_tokens: int
    bytes_per_variant: int
    requests_served: int
    steps: StepFigures
    block_allocations: int
    block_reuse: float
    peak_blocks_in_use: int
    trace: TraceFigures | None = None
    recorded: RecordedFigures | None = None


def sizes_of(layout: TableLayout, features: Collection[str], source: str | None) -> dict[str, Any]:
    """Return the fields of a `Description` that are known without building anything."""
    return {
        "features": sorted(features),
        "block_sizes": list(layout.block_sizes),
        "widths": list(layout.widths),
        "reaches": list(layout.reaches),
        "slot_mapping_enabled": list(layout.slot_mapping_enabled),
        "layout_source": source,
        "max_num_reqs": layout.max_num_reqs,
        "max_num_batched_tokens": layout.max_num_batched_tokens,
        "bytes_per_variant": estimate_bytes(layout),
    }


class HeldBlocks:
    """Blocks that each row holds as the steps of a workload go on.

    Args:
        workload: the workload.
        sizes: tokens for which a row gets one more block, per group.

    Attributes:
        ids: all block ids handed out so far, over all groups.
        peak: most blocks held at a time, over all groups.
        num_requests: requests scheduled so far; each overwrite of a row begins a new one.
    """

    def __init__(self, workload: Workload, sizes: tuple[int, ...]) -> None:
        layout = workload.layout
        self._widths = np.array(layout.widths, dtype=np.int64)
        self._held = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64)
        self._first_groups = [sizes.index(size) for size in dict.fromkeys(sizes)]
        self._rows: set[int] = set()
        self.ids: list[int] = []
        self.peak = 0
        self.num_requests = 0
        for append in workload.setup:
            self._append(append)

    def after(self, step: Step, num_prefills: int | None) -> ScheduledBatch:
        """Apply the appends of a step, and return it in the form that a scheduler gives."""
        for append in step.appends:
            self._append(append)
        rows = step.idx_mapping[step.idx_mapping >= 0]
        new = set(rows.tolist()) - self._rows
        self._rows |= new
        self.num_requests += len(new)
        return ScheduledBatch(
            requests=np.arange(step.num_reqs, dtype=np.int64),
            rows=step.idx_mapping,
            starts=np.zeros(step.num_reqs, dtype=np.int64),  # no figure uses these
            counts=np.diff(step.query_start_loc).astype(np.int64),
            num_tokens=step.num_tokens,
            num_prefills=num_prefills or 0,
            row_blocks=self._held[self._first_groups][:, rows],
            appends=step.appends,
        )

    def _append(self, append: Append) -> None:
        if append.overwrite:
            self._held[:, append.row] = 0
            self._rows.discard(append.row)
        self._held[:, append.row] += [len(ids) for ids in append.block_ids]
        if (self._held[:, append.row] > self._widths).any():
            raise UsageError(
                f"row {append.row} would have {self._held[:, append.row].tolist()} blocks in its "
                f"groups; expected at most {self._widths.tolist()}, the columns of the tables: "
                "raise 'max_model_len', or write fewer blocks"
            )
        self.ids += [block_id for ids in append.block_ids for block_id in ids]
        self.peak = max(self.peak, int(self._held.sum()))


class Tally:
    """A running total of steps: histograms of their figures, and the tokens of each.

    Args:
        layout: layout of the tables.
        sizes: tokens for which a row gets one more block, per group.
    """

    def __init__(self, layout: TableLayout, sizes: tuple[int, ...]) -> None:
        groups: dict[int, list[int]] = {}
        for group, size in enumerate(sizes):
            groups.setdefault(size, []).append(group)
        self._groups_of_size = [
            (layout.tokens_per_block[members[0]], len(members)) for members in groups.values()
        ]
        self._row_blocks = [
            np.zeros(max(layout.widths[group] for group in members) + 1, dtype=np.int64)
            for members in groups.values()
        ]
        names = ("num_reqs", "num_tokens", "rows_written", "block_ids_written")
        self._counts = {name: Counter[int]() for name in names}
        self._tokens = array("i")  # of each step; a week of a trace has tens of millions
        self._every_group_written = 0
        self._with_prefill = 0

    def add(self, batch: ScheduledBatch) -> None:
        """Add one step."""
        lengths = [[len(ids) for ids in append.block_ids] for append in batch.appends]
        counts = (len(batch.rows), batch.num_tokens, len(lengths), sum(map(sum, lengths)))
        for steps_with, count in zip(self._counts.values(), counts, strict=True):
            steps_with[count] += 1
        self._tokens.append(batch.num_tokens)
        self._every_group_written += bool(lengths) and all(map(any, zip(*lengths, strict=True)))
        self._with_prefill += batch.num_prefills > 0
        for histogram, row_blocks in zip(self._row_blocks, batch.row_blocks, strict=True):
            np.add.at(histogram, row_blocks, 1)

    def tokens(self) -> Int64Array:
        """Return the tokens of each step."""
        return np.array(self._tokens, dtype=np.int64)

    def figures(self, prefills_known: bool = True) -> StepFigures:
        """Return the figures of all steps added."""
        num_steps = len(self._tokens)
        of_steps: dict[str, Any] = {
            name: _distribution(*np.array(sorted(steps_with.items()), dtype=np.int64).T)
            for name, steps_with in self._counts.items()
        }
        row_blocks = [
            RowBlocks(
                block_size=block_size,
                num_groups=num_groups,
                blocks=_distribution(histogram.nonzero()[0], histogram[histogram.nonzero()]),
            )
            for (block_size, num_groups), histogram in zip(
                self._groups_of_size, self._row_blocks, strict=True
            )
        ]
        return StepFigures(
            num_steps=num_steps,
            **of_steps,
            row_blocks=row_blocks,
            share_without_write=self._counts["rows_written"][0] / num_steps,
            share_with_every_group_written=self._every_group_written / num_steps,
            share_with_prefill=self._with_prefill / num_steps if prefills_known else None,
        )


def _distribution(values: Int64Array, counts: npt.NDArray[np.intp]) -> Distribution:
    """Return the distribution of distinct rising values, given their counts; zeros if empty."""
    if not len(values):
        return Distribution(min=0, p50=0, p90=0, p99=0, max=0, mean=0.0)
    up_to = np.cumsum(counts)
    total = int(up_to[-1])

    def percentile(percent: int) -> int:
        rank = -(-total * percent // 100)  # the nearest rank, from 1
        return int(values[np.searchsorted(up_to, rank)])

    return Distribution(
        min=int(values[0]),
        p50=percentile(50),
        p90=percentile(90),
        p99=percentile(99),
        max=int(values[-1]),
        mean=float(values @ counts) / total,
    )
