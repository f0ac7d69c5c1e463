"""Sequences of an engine's calls on vLLM's block tables and on ours, compared after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from fuzz.comparison import Comparison, Difference

from beside.draw import (
    DUMMIES_GATHERED,
    FIRST_SLOTS,
    OUT_PTRS,
    POSITIONS_OUTSIDE,
    Batch,
    Drawn,
    Ints,
    Rng,
    Scheduler,
    positions_of,
)

WAYS = ("three calls", "three calls", "two calls", "one call")
"""List the ways to call ours for vLLM's three calls; each sequence draws one."""

ATTRIBUTES = ("block_sizes", "cp_size", "cp_rank", "cp_interleave", "num_kv_cache_groups")
"""Attributes that engines read and nobody changes."""

Tensors = Sequence[torch.Tensor]


class Session:
    """Steps of an engine, each made with both; ours may make it in fewer calls.

    Args:
        theirs: vLLM's class.
        ours: the class that is to do the same.
        drawn: the layout.
        device: device of the tables.
        rng: generator of everything that is drawn.
        left_out: counts replaced inputs, by the names in `draw.LEFT_OUT`.
    """

    def __init__(
        self,
        theirs: type[Any],
        ours: type[Any],
        drawn: Drawn,
        device: torch.device,
        rng: Rng,
        left_out: Counter[str],
    ) -> None:
        self.layout = drawn.layout
        self.drawn, self.device, self.rng, self.left_out = drawn, device, rng, left_out
        self.theirs, self.ours = (_made(kind, drawn, device) for kind in (theirs, ours))
        self.scheduler = Scheduler(rng, drawn, left_out)
        self.generator = torch.Generator(device).manual_seed(int(rng.integers(2**31)))
        self.way = str(rng.choice(WAYS))
        # vLLM's runner has int64, and its class takes either.
        self.dtype = torch.int64 if rng.random() < 0.8 else torch.int32
        self.dirty = bool(rng.random() < 0.6)
        dtype = str(self.dtype).removeprefix("torch.")
        self.seen: Counter[str] = Counter(
            {f"way: {self.way}": 1, f"sequences with an {dtype} idx_mapping": 1}
        )
        self._comparison = Comparison(device)
        self._number, self._kind, self._applies = 0, "", 0
        self._own: list[tuple[str, torch.Tensor, torch.Tensor]] = []  # the caller's buffers
        self._graphs: _Graphs | None = None
        self._other_differences: list[Difference] = []
        self._hold()
        for name in ATTRIBUTES:
            mine, other = (np.atleast_1d(getattr(each, name)) for each in (self.ours, self.theirs))
            self._same(name, mine.tolist(), other.tolist())
        for both in (self.theirs, self.ours):
            both.slot_mappings.zero_()
        left_out[FIRST_SLOTS] += 1

    def play(self, num_steps: int) -> Iterator[Difference]:
        """Play `num_steps` steps; yield the differences."""
        kinds: dict[str, tuple[Callable[[], None], float]] = {
            "step": (self._step, 0.3),
            "step with drafts": (self._step_with_drafts, 0.3),
            "prefill context parallelism": (self._step_into_out, 0.12),
            "without tokens": (self._without_tokens, 0.1),
            "dummies": (self._dummies, 0.08),
            "writes redirected": (self._redirected, 0.05),
            "tables replaced": (self._replaced, 0.05),
        }
        chances = [chance for _, chance in kinds.values()]
        for _ in range(num_steps):
            self._number += 1
            self._kind = str(self.rng.choice(list(kinds), p=chances))
            self._own = []
            if self.dirty:
                self._make_dirty()
            kinds[self._kind][0]()
            if self.rng.random() < 0.2:
                self._write_as_others()
            self.seen[f"step: {self._kind}"] += 1
            self._compare()
            # vLLM's host may be ahead by two applies and no more. Until then, it is left ahead.
            if self._applies > 1 or self.rng.random() < 0.5:
                self._applies = 0
                yield from self._differences()
        yield from self._differences()

    # Steps

    def _step(self) -> None:
        """Stage, apply, gather and map, as `execute_model` does."""
        batch = self._stage(self.scheduler.schedule())
        mapping, starts, positions = self._tensors(batch.rows, batch.lengths, batch.positions)
        computed = torch.tensor(batch.computed, dtype=torch.int32, device=self.device)
        sizes = batch.num_reqs_padded, batch.num_tokens_padded
        self._apply(self.theirs)
        tables = self._call(
            self.theirs, "gather_block_tables", mapping, sizes[0], num_computed_tokens=computed
        )
        slots = self._call(
            self.theirs, "compute_slot_mappings", mapping, starts, positions, sizes[1]
        )
        if self.way == "one call":
            found = self._call(
                self.ours,
                "prepare_step",
                *(mapping, starts, positions, *sizes),
                num_computed_tokens=computed,
            )
        elif self.way == "two calls":
            self._apply(self.ours)
            found = self._call(
                self.ours,
                "gather_and_compute_slot_mappings",
                *(mapping, starts, positions, *sizes),
                num_computed_tokens=computed,
            )
        else:
            self._apply(self.ours)
            found = (
                self._call(
                    self.ours,
                    "gather_block_tables",
                    *(mapping, sizes[0]),
                    num_computed_tokens=computed,
                ),
                self._call(
                    self.ours, "compute_slot_mappings", mapping, starts, positions, sizes[1]
                ),
            )
        self._compare_tables(found[0], tables)
        self._compare_views("slots", found[1], slots, self._slots())
        self.batch = batch

    def _step_with_drafts(self) -> None:
        """Make a step, and then the calls of speculators."""
        self._step()
        speculators = [self._expanded, self._advanced, self._ignored, self._replayed]
        for speculator in self.rng.permutation(np.array(speculators, dtype=object))[
            : int(self.rng.integers(1, 3))
        ]:
            speculator()

    def _expanded(self) -> None:
        """Map one more token of each request, into slots for all tokens and all requests."""
        batch, layout = self.batch, self.layout
        lengths = batch.lengths + 1
        positions = self._within(positions_of(batch.starts, lengths))
        columns = layout.max_num_batched_tokens + layout.max_num_reqs
        out = self._own_slots(columns)
        num_tokens = int(lengths.sum())
        self._map(batch.rows, lengths, positions, num_tokens, out)

    def _advanced(self) -> None:
        """Map one token of each request, once for each draft."""
        batch = self.batch
        for draft in range(int(self.rng.integers(1, 4))):
            positions = self._within(batch.starts + batch.lengths + draft)
            padded = self._between(len(positions), self.layout.max_num_batched_tokens)
            rows = self._with_dummies(batch.rows)
            self._map(rows, np.ones_like(rows), positions, padded)
            self._compare()

    def _replayed(self) -> None:
        """The same in a captured graph, whose inputs change from replay to replay."""
        if not self.layout.num_groups:
            return  # nothing to capture
        if self._graphs is None:
            self._graphs = _Graphs(self)
        for draft in range(int(self.rng.integers(1, 4))):
            positions = self._within(self.batch.starts + self.batch.lengths + draft)
            self._graphs.replay(self._with_dummies(self.batch.rows), positions)
            replay = "replay" if self.device.type == "cuda" else "repeated call"
            self.seen[f"call: {replay} of compute_slot_mappings, both"] += 1
            self._compare()

    def _ignored(self) -> None:
        """Gather again without a window, for the persistent tables alone; map again."""
        batch = self.batch
        mapping = torch.tensor(batch.rows, dtype=self.dtype, device=self.device)
        found, expected = (
            self._call(both, "gather_block_tables", mapping, num_reqs_padded=len(batch.rows))
            for both in (self.ours, self.theirs)
        )
        self._compare_tables(found, expected)
        positions = self._within(batch.positions + 1)
        padded = self._between(len(positions), self.layout.max_num_batched_tokens)
        self._map(batch.rows, batch.lengths, positions, padded)

    def _step_into_out(self) -> None:
        """Gather a rank's part of the batch, and map all of it, both into the caller's buffers."""
        rng, layout = self.rng, self.layout
        batch = self._stage(self.scheduler.schedule())
        for both in (self.theirs, self.ours):
            self._apply(both)
        # A request is cut into two pieces, each with its own row.
        local = rng.permutation(np.concatenate((batch.rows, batch.rows)))
        local = local[: int(rng.integers(1, len(local) + 1))]
        self.seen["gathers of more than max_num_reqs rows"] += len(local) > layout.max_num_reqs
        padded = self._between(len(local), 2 * layout.max_num_reqs)
        mapping = torch.tensor(local, dtype=self.dtype, device=self.device)
        outs = self._own_tables(2 * layout.max_num_reqs)
        if rng.random() < 0.1:
            self.left_out[OUT_PTRS] += 1
        found, expected = (
            self._call(both, "gather_block_tables", mapping, padded, out=out, out_ptrs=pointers)
            for both, (out, pointers) in zip((self.ours, self.theirs), outs, strict=True)
        )
        self._compare_views_of(found, expected, *(out for out, _ in outs))
        out = self._own_slots(layout.max_num_batched_tokens + int(rng.integers(0, 9)))
        self._map(batch.rows, batch.lengths, batch.positions, len(batch.positions), out)

    def _without_tokens(self) -> None:
        """Apply staged writes, if any, and return early."""
        if self.rng.random() < 0.7:
            self._stage(self.scheduler.schedule())
        for both in (self.theirs, self.ours):
            self._apply(both)

    def _dummies(self) -> None:
        """Ask for dummy tables and slots, and write into the tables, as a profiling run does."""
        layout, rng = self.layout, self.rng
        rows = self._between(0, layout.max_num_reqs)
        tokens = self._between(0, layout.max_num_batched_tokens)
        filled = rng.random() < 0.5
        results = []
        for both in (self.ours, self.theirs):
            tables = self._call(both, "get_dummy_block_tables", rows)
            if filled:
                states = torch.arange(1, rows + 1, dtype=torch.int32, device=self.device)
                for table in tables:
                    table[:, 0].copy_(states)
            results.append((tables, self._call(both, "get_dummy_slot_mappings", tokens)))
        self._compare_tables(results[0][0], results[1][0])
        self._compare_views("slots", results[0][1], results[1][1], self._slots())

    def _redirected(self) -> None:
        """Make a step whose writes go to the null block, as a warm-up does."""
        for both in (self.theirs, self.ours):
            both.redirect_writes_to_null_block = True
        self._step()
        for both in (self.theirs, self.ours):
            both.redirect_writes_to_null_block = False

    def _replaced(self) -> None:
        """Replace tables by copies elsewhere, and make a step."""
        inputs = self.rng.random() < 0.5
        for both in (self.theirs, self.ours):
            for group, table in enumerate(both.block_tables):
                table.gpu = table.gpu.clone()
                if inputs:
                    both.input_block_tables[group] = both.input_block_tables[group].clone()
            self._call(both, "init_block_table_layout_tensors")
        self._graphs = None  # it has the old addresses
        self._hold()
        self._step()

    # Calls

    def _call(self, both: Any, name: str, *arguments: Any, **options: Any) -> Any:
        self.seen[f"call: {'vLLM' if both is self.theirs else 'ours'}.{name}"] += 1
        return getattr(both, name)(*arguments, **options)

    def _apply(self, both: Any) -> None:
        self._call(both, "apply_staged_writes")
        self._applies += both is self.theirs

    def _stage(self, batch: Batch) -> Batch:
        for row, ids, overwrite in batch.writes:
            for both in (self.theirs, self.ours):
                name = "append_block_ids, new" if overwrite else "append_block_ids, running"
                self.seen[f"call: {'vLLM' if both is self.theirs else 'ours'}.{name}"] += 1
                both.append_block_ids(row, ids, overwrite=overwrite)
        self.seen["steps with nothing staged"] += not batch.writes
        return batch

    def _map(
        self,
        rows: Ints,
        lengths: Ints,
        positions: Ints,
        padded: int,
        out: Tensors | None = None,
    ) -> None:
        """Map tokens with both, into their slots or a buffer for each."""
        wide = len(positions) > self.layout.max_num_batched_tokens
        self.seen["slots of more than max_num_batched_tokens tokens"] += wide
        mapping, starts, places = self._tensors(rows, lengths, positions)
        outs = (None, None) if out is None else out
        found, expected = (
            self._call(both, "compute_slot_mappings", mapping, starts, places, padded, out=own)
            for both, own in zip((self.ours, self.theirs), outs, strict=True)
        )
        self._compare_views("slots", found, expected, self._slots() if out is None else out)

    # Arguments

    def _tensors(self, rows: Ints, lengths: Ints, positions: Ints) -> list[torch.Tensor]:
        """Return mapping, starts and positions; the latter two may be whole buffers."""
        rng, layout = self.rng, self.layout
        starts = np.concatenate(([0], np.cumsum(lengths)))
        if rng.random() < 0.4:
            spare = layout.max_num_reqs - len(rows)
            starts = np.concatenate((starts, np.full(spare, starts[-1])))
            room = max(0, layout.max_num_batched_tokens - len(positions))
            positions = np.concatenate((positions, rng.integers(0, 2**20, room)))
        return [
            torch.tensor(rows, dtype=self.dtype, device=self.device),
            torch.tensor(starts, dtype=torch.int32, device=self.device),
            torch.tensor(positions, dtype=torch.int64, device=self.device),
        ]

    def _within(self, positions: Ints) -> Ints:
        """Return positions of drafts, none of them past the end of its row."""
        last = self.drawn.max_model_len - 1
        self.left_out[POSITIONS_OUTSIDE] += int((positions > last).sum())
        return np.minimum(positions, last)

    def _with_dummies(self, rows: Ints) -> Ints:
        """Return rows, some of them dummies."""
        if self.rng.random() < 0.3:
            self.left_out[DUMMIES_GATHERED] += 1
            return np.where(self.rng.random(len(rows)) < 0.3, -1, rows)
        return rows

    def _between(self, low: int, high: int) -> int:
        """Draw a size from `low` to `high`, often one of both."""
        return int(self.rng.choice((low, high, self.rng.integers(low, high + 1))))

    def _own_tables(self, rows: int) -> list[tuple[tuple[torch.Tensor, ...], torch.Tensor]]:
        """Allocate tables of a caller, with their addresses, for both."""
        first = [
            torch.empty(rows, width, dtype=torch.int32, device=self.device).random_(
                generator=self.generator
            )
            for width in self.layout.widths
        ]
        found = []
        for tables in (tuple(first), tuple(table.clone() for table in first)):
            addresses = [table.data_ptr() for table in tables]
            pointers = torch.tensor(addresses, dtype=torch.uint64, device=self.device)
            found.append((tables, pointers))
        self._own += [
            (f"out[{group}]", mine, other)
            for group, (mine, other) in enumerate(zip(found[0][0], found[1][0], strict=True))
        ]
        return found

    def _own_slots(self, columns: int) -> Tensors:
        """Allocate slots of a caller, for both, some as part of wider ones."""
        whole = columns + int(self.rng.choice((0, 0, 6)))
        shape = (self.layout.num_groups, whole)
        mine = torch.empty(shape, dtype=torch.int64, device=self.device)
        mine.random_(generator=self.generator)
        other = mine.clone()
        self._own.append((f"slots_out_{len(self._own)}", mine, other))
        return mine[:, :columns], other[:, :columns]

    def _slots(self) -> Tensors:
        return self.ours.slot_mappings, self.theirs.slot_mappings

    # Others who write

    def _make_dirty(self) -> None:
        """Fill input tables and slots with random values, which exposes elements not written."""
        for mine, other in self._persistent():
            mine.random_(generator=self.generator)
            other.copy_(mine)

    def _write_as_others(self) -> None:
        """Write into some input tables and slots, as kernels of speculators and models do."""
        self.seen["writes by others"] += 1
        for mine, other in self._persistent():
            if mine.numel() and self.rng.random() < 0.5:
                rows = slice(int(self.rng.integers(0, mine.shape[0])), None)
                mine[rows].random_(generator=self.generator)
                other[rows].copy_(mine[rows])

    def _persistent(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from zip(self.ours.input_block_tables, self.theirs.input_block_tables, strict=True)
        yield self.ours.slot_mappings, self.theirs.slot_mappings

    # Comparing

    def _compare(self) -> None:
        """Compare all buffers as they are at this point, without synchronizing."""
        ours, theirs = self.ours, self.theirs
        pairs = [("slot_mappings", ours.slot_mappings, theirs.slot_mappings), *self._own]
        for group, (mine, other) in enumerate(
            zip(ours.block_tables, theirs.block_tables, strict=True)
        ):
            pairs.append((f"block_tables[{group}]", mine.gpu, other.gpu))
        for group, (mine, other) in enumerate(
            zip(ours.input_block_tables, theirs.input_block_tables, strict=True)
        ):
            pairs.append((f"input_block_tables[{group}]", mine, other))
        pairs.append(("num_blocks.gpu", ours.num_blocks.gpu, theirs.num_blocks.gpu))
        pairs.append(
            ("num_blocks.np", torch.tensor(ours.num_blocks.np), torch.tensor(theirs.num_blocks.np))
        )
        for name, mine, other in pairs:
            self._comparison.add(self._number, self._kind, name, mine, other)
        self._same("addresses", [*map(torch.Tensor.data_ptr, self._of_ours())], self._addresses)

    def _compare_tables(self, found: Tensors, expected: Tensors) -> None:
        """Compare returned tables, views of the input tables."""
        self._compare_views_of(
            found, expected, self.ours.input_block_tables, self.theirs.input_block_tables
        )

    def _compare_views_of(
        self, found: Tensors, expected: Tensors, mine: Tensors, theirs: Tensors
    ) -> None:
        self._same("number of returned tables", [len(found)], [len(expected)])
        for group, views in enumerate(zip(found, expected, mine, theirs, strict=True)):
            self._compare_views(f"tables[{group}]", *views[:2], views[2:])

    def _compare_views(
        self, name: str, found: torch.Tensor, expected: torch.Tensor, buffers: Tensors
    ) -> None:
        """Compare returned views: contents, and their place in the buffer of each."""
        places = [
            [*view.shape, *view.stride(), view.itemsize, _place(view, buffer)]
            for view, buffer in zip((found, expected), buffers, strict=True)
        ]
        self._same(f"shape, strides and place of returned {name}", *places)
        if found.shape == expected.shape:
            self._comparison.add(self._number, self._kind, f"returned {name}", found, expected)

    def _same(self, name: str, found: list[int], expected: list[int]) -> None:
        """Compare facts that the host knows."""
        for index, (mine, other) in enumerate(zip(found, expected, strict=True)):
            if mine != other:
                self._other_differences.append(
                    Difference(self._number, self._kind, name, 1, index, mine, other)
                )

    def _differences(self) -> Iterator[Difference]:
        yield from self._other_differences
        self._other_differences = []
        yield from self._comparison.read()

    def _of_ours(self) -> list[torch.Tensor]:
        """Return the tables of which engines keep addresses and views."""
        ours = self.ours
        sources = [table.gpu for table in ours.block_tables]
        return [*sources, *ours.input_block_tables, ours.slot_mappings]

    def _hold(self) -> None:
        self._addresses = [table.data_ptr() for table in self._of_ours()]


class _Graphs:
    """Slots of both, of as many requests as there are rows.

    On a GPU each is a captured graph, elsewhere a repeated call.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        layout, device = session.layout, session.device
        rows = layout.max_num_reqs
        self._mapping = torch.full((rows,), -1, dtype=session.dtype, device=device)
        self._starts = torch.zeros(rows + 1, dtype=torch.int32, device=device)
        self._positions = torch.zeros(rows, dtype=torch.int64, device=device)
        self._replays: list[Callable[[], None]] = []
        for both in (session.ours, session.theirs):
            self._map(both)  # loads the kernels
            if device.type != "cuda":
                self._replays.append(partial(self._map, both))
                continue
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._map(both)
            self._replays.append(graph.replay)

    def _map(self, both: Any) -> None:
        layout = self._session.layout
        both.compute_slot_mappings(
            self._mapping, self._starts, self._positions, layout.max_num_batched_tokens
        )

    def replay(self, rows: Ints, positions: Ints) -> None:
        """Replay with one token of each request; those behind have none."""
        rng, spare = self._session.rng, len(self._mapping) - len(rows)
        behind = rng.choice((-1, 0, int(rng.integers(0, len(self._mapping)))))
        mapping = np.concatenate((rows, np.full(spare, behind)))
        starts = np.minimum(np.arange(len(self._starts)), len(rows))
        self._mapping.copy_(torch.tensor(mapping))
        self._starts.copy_(torch.tensor(starts, dtype=torch.int32))
        self._positions[: len(positions)].copy_(torch.tensor(positions, dtype=torch.int64))
        for replay in self._replays:
            replay()


def _place(view: torch.Tensor, buffer: torch.Tensor) -> int:
    """Return at which byte of a buffer a view begins; an empty one is nowhere."""
    return view.data_ptr() - buffer.data_ptr() if view.numel() else 0


def _made(kind: type[Any], drawn: Drawn, device: torch.device) -> Any:
    """Build tables by keyword, as the model runner does."""
    layout = drawn.layout
    return kind(
        block_sizes=list(layout.block_sizes),
        max_num_reqs=layout.max_num_reqs,
        max_num_batched_tokens=layout.max_num_batched_tokens,
        max_num_blocks_per_group=list(layout.widths),
        device=device,
        cp_size=layout.cp_size,
        cp_rank=layout.cp_rank,
        cp_interleave=layout.cp_interleave,
        slot_mapping_enabled=list(layout.slot_mapping_enabled),
        dcp_sharded=list(layout.dcp_sharded),
        sliding_window_reach=list(layout.sliding_window_reach),
    )
