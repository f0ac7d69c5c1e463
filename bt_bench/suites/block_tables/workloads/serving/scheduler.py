"""A continuous-batching scheduler: the requests of a trace become the steps of an engine.

It follows vLLM's V1 scheduler and V2 model runner wherever that affects the block tables:

- Requests wait in order of arrival. A step first serves the running requests in order of
  admission, each with one token (decode) or the rest of its prefill, until the token budget
  `max_num_batched_tokens` is spent. With the rest of the budget, it admits waiting requests, the
  last one perhaps with only a chunk of its prefill.
- A request takes a block in each group for every `block_size` tokens, when their first token is
  scheduled. All groups share one pool of ids (`BlockPool`). `num_blocks` counts per group, so the
  pool holds that many times the number of groups; by default, it suffices for every row.
- If the pool runs out, the running request admitted last is preempted until there is room: it
  loses row and blocks, goes to the front of the queue, and computes all its tokens again later.
  No request is admitted in such a step. Admission keeps nothing free.
- The step that completes a prefill generates the first token: a request that generates n tokens
  is in n - 1 decodes. It ends with the step that generates its last token, which is never
  computed itself; row and blocks are free before the next step.
- In a group with a sliding window, the blocks that lie wholly before the window of a running
  request go back to the pool at the beginning of a step, and are handed out again. The row keeps
  their ids and its count. Admission takes no account of windows.
- Free rows are a stack, as in vLLM. Its first order is shuffled with the seed; otherwise, rows
  would follow the order of arrival.
- Decodes come first in the batch, in order of admission; then prefills, shortest chunk first.
- New requests are staged (overwriting) before the running ones (appending). There is no
  speculation or priority.
- With `prefix_caching`, the blocks of prompts are cached, and a request that begins as an earlier
  one is admitted with its blocks, their tokens computed (`prefixes.py`). vLLM also caches blocks
  with generated tokens, of which traces have no hashes, and finds those that the same step
  computes; in a group with a sliding window it needs only the last cached blocks, not all.

A step lasts `base_ms` plus `per_token_us` for each token. If nothing runs or waits, the clock
jumps to the next arrival. A request that would exceed `max_model_len` has its context shortened,
and is counted. If its generated tokens alone reach the limit, they are shortened, too, to leave one
token of context. A request that follows another arrives when its delay after the other's end is
over.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bt_bench.suites.block_tables.workloads.assemble import (
    assemble_step,
    layout_of,
)
from bt_bench.suites.block_tables.workloads.serving.arrivals import Arrivals, Request
from bt_bench.suites.block_tables.workloads.serving.block_pool import BlockPool
from bt_bench.suites.block_tables.workloads.serving.facts import TraceFacts
from bt_bench.suites.block_tables.workloads.serving.limits import pool_size, validate_trace
from bt_bench.suites.block_tables.workloads.serving.parameters import ServingParameters
from bt_bench.suites.block_tables.workloads.serving.prefixes import Blocks, SharingPool, Units
from bt_bench.suites.block_tables.workloads.serving.trace import Trace, TraceReader
from bt_bench.suites.block_tables.workloads.serving.windows import SlidingWindows
from bt_bench.suites.block_tables.workloads.steps import Append, Int32Array, Int64Array, Step

# Rows of `Scheduler._live`: the state of each running request. From HELD on, the blocks that it
# holds, one row for each distinct block size (in tokens of the sequence).
ROW, REQUEST, COMPUTED, PREFILL_END, FINAL, HELD = range(6)


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    """The decisions for one step; the arrays have one entry per request, in batch order.

    Args:
        requests: indices into the trace.
        rows: request rows.
        starts: tokens computed before the step.
        counts: tokens in the step.
        num_tokens: their sum.
        num_prefills: requests, at the end of the batch, whose tokens belong to a prefill.
        row_blocks: `[S, R]`, blocks that each row holds in the step, for each distinct block size;
            those before a sliding window still count.
        appends: writes staged before the step.
        num_computed_tokens: `[max_num_reqs]` by row, where there is a sliding window. Rows without
            a request keep the last one's value, as in an engine.
    """

    requests: Int64Array
    rows: Int64Array
    starts: Int64Array
    counts: Int64Array
    num_tokens: int
    num_prefills: int
    row_blocks: Int64Array
    appends: tuple[Append, ...]
    num_computed_tokens: Int32Array | None = None


class Scheduler:
    """A scheduler that serves the requests of a trace, and keeps the current step only.

    Call `advance` until it returns false. After each call, `batch` and `step` give the step, and
    all other attributes hold the state after it. A trace is read as far as the steps need it.

    Args:
        parameters: workload parameters; a window in them is ignored.
        trace: the requests; `None`: read from `parameters.trace`.

    Attributes:
        facts: facts of the requests read so far; empty if they were given.
        num_hits: requests admitted with cached blocks so far, and again when they were preempted.
        num_hit_tokens: tokens in these blocks.

    Raises:
        UsageError: as from `validate_trace`, or if a request needs more blocks than the pool has;
            of requests that are read later, `advance` raises it.
    """

    def __init__(self, parameters: ServingParameters, trace: Trace | None = None) -> None:
        self.facts = TraceFacts()
        if trace is None:
            validate_trace(parameters)
            reader = reader_of(parameters)
            self.facts, parts = reader.facts, reader.parts()
        else:
            parts = iter((trace,))
        self.num_steps = 0
        self.num_finished = 0
        self.num_preempted = 0
        self.num_hits = 0
        self.num_hit_tokens = 0
        self.clock_s = 0.0
        self._batch: ScheduledBatch | None = None
        self._parameters = parameters
        self._budget = parameters.max_num_batched_tokens
        sizes = parameters.tokens_per_column()
        self._set_up_groups(sizes)
        self._set_up_pool(sizes)
        self._windows = SlidingWindows(
            sizes, layout_of(parameters).reaches, parameters.max_num_reqs
        )
        self._arrivals = Arrivals(parts, parameters, self.pool.num_blocks)
        self._running: dict[int, Request] = {}  # by number
        self._set_up_rows()

    def _set_up_groups(self, sizes: tuple[int, ...]) -> None:
        # Groups of one block size need the same number of blocks, which is computed once.
        groups_of = Counter(sizes)
        self._distinct_sizes = tuple(groups_of)
        self._groups_of_size = list(groups_of.values())
        self._size_of_group = [self._distinct_sizes.index(size) for size in sizes]
        self._sizes = np.array(self._distinct_sizes, dtype=np.int64)[:, np.newaxis]

    def _set_up_pool(self, sizes: tuple[int, ...]) -> None:
        num_blocks = pool_size(self._parameters)
        self._sharing = SharingPool(num_blocks) if self._parameters.prefix_caching else None
        self.pool = self._sharing or BlockPool(num_blocks)
        self._units = Units(self._parameters.columns.places().hash_tokens, sizes)
        self._keys: dict[int, list[int]] = {}  # of the units of running requests, by number
        self._num_kept: dict[int, int] = {}  # how many of them have been cached, or were

    def _set_up_rows(self) -> None:
        capacity = self._parameters.max_num_reqs
        rows = np.random.default_rng(self._parameters.seed).permutation(capacity)
        self._free_rows: list[int] = rows.tolist()
        self._row_blocks: dict[int, list[array[int]]] = {}  # per row and group, its block ids
        self._count = 0  # running requests, which are the first columns of `_live`
        self._live = np.zeros((HELD + len(self._sizes), capacity), dtype=np.int64)
        self._in_prefill = False  # whether any running request is
        self._ones = np.ones(capacity, dtype=np.int64)
        self._ones.flags.writeable = False  # batches share it

    def advance(self) -> bool:
        """Schedule the next step; return false if all requests have been served."""
        if not self._wait_for_work():
            return False
        counts, budget = self._tokens_of_running()
        if self._windows:
            self._give_back_before_windows()
        num_preempted = self.num_preempted
        appends = self._grow_running(counts)
        counts = counts[: self._count]
        if self.num_preempted == num_preempted:
            chunks, admissions = self._admit(budget)
            if chunks:
                counts = np.concatenate((counts, np.array(chunks, dtype=np.int64)))
                appends = admissions + appends
        self._batch = self._record(counts, tuple(appends))
        self._finish_step(counts, self._batch.num_tokens)
        return True

    @property
    def num_truncated(self) -> int:
        """Return the requests cut to `max_model_len`, of those that were read."""
        return self._arrivals.num_truncated

    @property
    def batch(self) -> ScheduledBatch:
        """Return the decisions for the current step."""
        if self._batch is None:
            raise ValueError("there is no step before the first call of advance()")
        return self._batch

    def step(self) -> Step:
        """Return the current step, as an engine would make it."""
        batch = self.batch
        return assemble_step(
            self._parameters,
            batch.appends,
            batch.rows,
            batch.starts,
            batch.counts,
            batch.num_computed_tokens,
        )

    def live_rows(self) -> tuple[Append, ...]:
        """Return appends that bring fresh tables to the present state of all running requests.

        They do not restore other contents: rows of ended requests, and cells beyond a row's blocks.
        Columns before a sliding window keep their ids, though the blocks may be another row's by
        now.
        """
        return tuple(
            Append(row, tuple(ids.tolist() for ids in self._row_blocks[row]), overwrite=True)
            for row in self._live[ROW, : self._count].tolist()
        )

    def _wait_for_work(self) -> bool:
        """Let requests arrive, jumping in time if there is no work; return false at the end."""
        if self._arrivals.first(self.clock_s) is None and not self._count:
            next_s = self._arrivals.next_s()
            if next_s is None:
                return False
            self.clock_s = max(self.clock_s, next_s)
        return True

    def _tokens_of_running(self) -> tuple[Int64Array, int]:
        """Return the tokens of each running request in the step, and the remaining budget."""
        counts, budget = self._ones[: self._count], self._budget - self._count
        if self._in_prefill:
            # Only the request admitted last can be: there was no budget for one after it. For the
            # same reason there are never more running requests than the budget has tokens.
            left = int(self._live[PREFILL_END, self._count - 1])
            left -= int(self._live[COMPUTED, self._count - 1])
            more = min(left - 1, budget)
            counts = counts.copy()
            counts[-1] += more
            budget -= more
        return counts, budget

    def _give_back_before_windows(self) -> None:
        live = self._live[:, : self._count]
        for row, group, columns in self._windows.move(live[ROW], live[COMPUTED]):
            self.pool.give_back(self._row_blocks[row][group][columns])

    def _grow_running(self, counts: Int64Array) -> list[Append]:
        """Give running requests the blocks that their tokens begin; may preempt the last ones."""
        live = self._live[:, : self._count]
        blocks = -(-(live[COMPUTED] + counts) // self._sizes)  # [S, R]
        new = blocks - live[HELD:]
        columns = new.any(axis=0).nonzero()[0]
        appends = []
        for column, new_by_size in zip(columns.tolist(), new[:, columns].T.tolist(), strict=True):
            if not self._make_room(column, new_by_size):
                break
            row = int(live[ROW, column])
            appends.append(Append(row, self._take_blocks(row, new_by_size), overwrite=False))
        live[HELD:] = blocks
        return appends

    def _make_room(self, column: int, new_by_size: list[int]) -> bool:
        """Preempt from the end until the blocks are free; return false if `column` went, too."""
        while self._count > column and self._blocks_in_all_groups(new_by_size) > self.pool.num_free:
            self._preempt_last()
        return self._count > column

    def _preempt_last(self) -> None:
        self._count -= 1
        self.num_preempted += 1
        row, number, computed, *_ = self._live[:, self._count].tolist()
        self._release(row)
        request = self._running.pop(number)
        self._keys.pop(number, None)
        # The token generated last is known, though not computed yet.
        request.prefill_end = max(request.prefill_end, computed + 1)
        self._arrivals.put_back(request)

    def _admit(self, budget: int) -> tuple[list[int], list[Append]]:
        """Admit waiting requests; return the tokens and the append of each."""
        chunks: list[int] = []
        appends = []
        while budget and self._free_rows:
            request = self._arrivals.first(self.clock_s)
            if request is None:
                break
            units = self._cached_units(request)
            computed = len(units) * self._units.num_tokens if units else 0
            chunk = min(request.prefill_end - computed, budget)
            blocks_by_size = [-(-(computed + chunk) // size) for size in self._distinct_sizes]
            new_by_size = [
                blocks - computed // size
                for blocks, size in zip(blocks_by_size, self._distinct_sizes, strict=True)
            ]
            num_new = self._blocks_in_all_groups(new_by_size)
            if self._sharing is not None:
                num_new += self._sharing.num_idle(units)
            if num_new > self.pool.num_free:
                break
            self._arrivals.admit()
            row = self._free_rows.pop()
            self._running[request.number] = request
            held = self._share(request, units)
            self._row_blocks[row] = held
            new = self._take_blocks(row, new_by_size)
            ids = tuple(ids.tolist() for ids in held) if units else new
            appends.append(Append(row, ids, overwrite=True))
            self._live[:, self._count] = (
                *(row, request.number, computed, request.prefill_end, request.final),
                *blocks_by_size,
            )
            self._count += 1
            self._in_prefill = True
            chunks.append(chunk)
            budget -= chunk
        return chunks, appends

    def _cached_units(self, request: Request) -> list[Blocks]:
        """Return the cached blocks that a request can begin with, by units."""
        if self._sharing is None:
            return []
        if request.number not in self._keys:  # else it was looked up, and had to wait
            self._keys[request.number] = self._units.keys(request.hashes, request.context)
        most = (request.prefill_end - 1) // self._units.num_tokens
        return self._sharing.cached(self._keys[request.number], most)

    def _share(self, request: Request, units: list[Blocks]) -> list[array[int]]:
        """Return the ids of the blocks that a request begins with, per group, and hold them."""
        held: list[array[int]] = [array("i") for _ in self._size_of_group]
        if self._sharing is None:
            return held
        self._sharing.hold(units)
        self._num_kept[request.number] = len(units)
        for unit in units:
            for ids, more in zip(held, unit, strict=True):
                ids.extend(more)
        if units:
            self.num_hits += 1
            self.num_hit_tokens += len(units) * self._units.num_tokens
        return held

    def _keep_computed(self, sharing: SharingPool) -> None:
        """Cache the units of prompts whose tokens have all been computed."""
        live = self._live[:PREFILL_END, : self._count]
        for row, number, computed in live.T.tolist():
            keys, kept = self._keys[number], self._num_kept[number]
            done = min(len(keys), computed // self._units.num_tokens)
            for unit in range(kept, done):
                held = self._row_blocks[row]
                passed = self._windows.passed(row, len(held))
                first = self._units.first_columns(unit)
                if all(map(int.__le__, passed, first)):  # else some are another row's by now
                    sharing.keep(keys[unit], self._units.blocks(held, unit))
            self._num_kept[number] = max(kept, done)

    def _record(self, counts: Int64Array, appends: tuple[Append, ...]) -> ScheduledBatch:
        """Return the step in batch order, from the state before its tokens count as computed."""
        live = self._live[:, : self._count].copy()
        num_prefills = 0
        if self._in_prefill:
            in_prefill = live[COMPUTED] < live[PREFILL_END]
            order = np.lexsort((counts, in_prefill))
            num_prefills = int(np.count_nonzero(in_prefill))
            live, counts = live[:, order], counts[order]
        num_computed_tokens = None
        if self._windows:
            num_computed_tokens = self._windows.num_computed_tokens(live[ROW], live[COMPUTED])
        return ScheduledBatch(
            requests=live[REQUEST],
            rows=live[ROW],
            starts=live[COMPUTED],
            counts=counts,
            num_tokens=int(counts.sum()),
            num_prefills=num_prefills,
            row_blocks=live[HELD:],
            appends=appends,
            num_computed_tokens=num_computed_tokens,
        )

    def _finish_step(self, counts: Int64Array, num_tokens: int) -> None:
        """Count the tokens as computed, end requests, and advance the clock."""
        live = self._live[:, : self._count]
        live[COMPUTED] += counts
        if self._sharing is not None and self._in_prefill:
            self._keep_computed(self._sharing)
        self.clock_s += (
            self._parameters.base_ms * 1e-3 + self._parameters.per_token_us * 1e-6 * num_tokens
        )
        ended = live[COMPUTED] == live[FINAL]
        if ended.any():
            for row, number in live[: REQUEST + 1, ended].T.tolist():
                self._release(row)
                self._arrivals.end(number, self.clock_s)
                del self._running[number]
                self._keys.pop(number, None)
                self._num_kept.pop(number, None)
            left = live[:, ~ended]
            self.num_finished += self._count - left.shape[1]
            self._count = left.shape[1]
            live = self._live[:, : self._count]
            live[:] = left
        if self._in_prefill:
            self._in_prefill = bool((live[COMPUTED] < live[PREFILL_END]).any())
        self.num_steps += 1

    def _take_blocks(self, row: int, new_by_size: list[int]) -> tuple[list[int], ...]:
        """Take new ids for a row, one list per group."""
        ids = tuple([self.pool.take(new_by_size[size]) for size in self._size_of_group])
        for held, new in zip(self._row_blocks[row], ids, strict=True):
            held.extend(new)
        return ids

    def _release(self, row: int) -> None:
        held = self._row_blocks.pop(row)
        for ids, first in zip(held, self._windows.forget(row, len(held)), strict=True):
            self.pool.give_back(ids[first:] if first else ids)
        self._free_rows.append(row)

    def _blocks_in_all_groups(self, by_size: list[int]) -> int:
        return sum(map(int.__mul__, by_size, self._groups_of_size))


def reader_of(parameters: ServingParameters) -> TraceReader:
    """Return a reader of the requests that are served."""
    return TraceReader(
        parameters.trace,
        parameters.rate,
        parameters.columns,
        parameters.part,
        parameters.prefix_caching,
    )


def iterate_steps(scheduler: Scheduler) -> Iterator[Step]:
    """Yield all steps, from the scheduler's current place to the end of the trace."""
    while scheduler.advance():
        yield scheduler.step()
