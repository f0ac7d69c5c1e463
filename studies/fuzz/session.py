"""Sessions of random steps on one set of tables, whose buffers are compared with the oracle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from bt_kernels.layout import TableLayout
from fuzz.comparison import Comparison, Difference
from fuzz.draw import Rng, Step, step_of, writes_of
from fuzz.oracle import PAD, Oracle

INT32_MAX = 2**31 - 1
STEPS_INTERPRETED = 4


class Session:
    """Random steps on one object: eager steps, captured and replayed ones, single operations.

    Before each step, input tables and slots are filled with random values, which exposes elements
    that the step fails to write. After it, the whole buffers are compared.

    Args:
        variant: class of the tables.
        layout: layout of the tables.
        device: device of the tables.
        rng: generator of everything that is drawn.
    """

    def __init__(self, variant: type, layout: TableLayout, device: torch.device, rng: Rng) -> None:
        self.layout, self.device, self.rng = layout, device, rng
        self.tables: Any = variant(layout, device)
        self.oracle = Oracle(layout, self.tables.device)
        self.generator = torch.Generator(device).manual_seed(int(rng.integers(2**31)))
        self.dtype = torch.int64 if rng.random() < 0.6 else torch.int32
        self.seen: Counter[str] = Counter()
        self._captured: _Captured | None = None
        self._comparison = Comparison(device)
        self._number = 0

    def play(self, num_steps: int) -> Iterator[Difference]:
        """Play `num_steps` steps; yield the differences."""
        self._fill_rows()
        for _ in range(num_steps):
            self._number += 1
            self._make_dirty()
            kind, compared = self._one_step()
            self.seen[f"kind: {kind}"] += 1
            self._compare(kind, compared)
            # Reading differences synchronizes. Most steps skip it: the device may lag by several.
            if self.rng.random() < 0.4:
                yield from self._comparison.read()
        yield from self._comparison.read()

    def _fill_rows(self) -> None:
        """Give blocks to most rows, and to some as many as fit."""
        layout, rng = self.layout, self.rng
        for row in range(layout.max_num_reqs):
            if rng.random() < 0.1:
                continue
            share = float(rng.choice((1.0, 1.0, 0.5, rng.random())))
            ids = [
                rng.integers(1, 2**31 - 1, int(width * share)).tolist() for width in layout.widths
            ]
            self._stage(row, ids, True)
        self.tables.apply_staged_writes()
        self.oracle.apply()

    def _stage(self, row: int, ids: list[list[int]], overwrite: bool) -> None:
        self.tables.append_block_ids(row, ids, overwrite)
        self.oracle.stage(row, ids, overwrite)

    def _stage_writes(self, rows: np.ndarray) -> None:
        writes = writes_of(self.rng, self.layout, self.oracle.num_blocks, rows)
        if writes and self.rng.random() < 0.3:
            self.tables.append_many(*map(list, zip(*writes, strict=True)))
            for write in writes:
                self.oracle.stage(*write)
        else:
            for write in writes:
                self._stage(*write)
        longest = max((len(own) for _, ids, _ in writes for own in ids), default=0)
        several = "none" if not writes else "single ids" if longest == 1 else "several ids"
        self.seen[f"writes: {several}"] += 1

    def _make_dirty(self) -> None:
        for mine, other in zip(self.tables.input_block_tables, self.oracle.inputs, strict=True):
            mine.random_(generator=self.generator)
            other.copy_(mine)
        self.tables.slot_mappings.random_(generator=self.generator)
        self.oracle.slots.copy_(self.tables.slot_mappings)

    def _one_step(self) -> tuple[str, list[tuple[str, torch.Tensor, torch.Tensor]]]:
        """Make a step with tables and oracle; return its kind, and caller's buffers to compare."""
        drawn = self.rng.random()
        if drawn < 0.3:
            return self._replayed(), []
        layout = self.layout
        step = self._drawn_step(layout.max_num_reqs, layout.max_num_batched_tokens)
        if drawn < 0.33:
            return self._dummies(step), []
        return self._eager(step, whole=drawn > 0.4)

    def _drawn_step(self, most_rows: int, most_tokens: int) -> Step:
        """Draw a step, count its features, and stage writes for it."""
        step = step_of(self.rng, self.layout, most_rows, most_tokens)
        if self.dtype is torch.int32:
            step.rows[(step.rows > INT32_MAX) | (step.rows < -INT32_MAX - 1)] = -1
        self._note(step)
        self._stage_writes(step.rows)
        return step

    def _note(self, step: Step) -> None:
        layout = self.layout
        many = layout.num_groups * max(step.num_reqs_padded, self.oracle.dirty) > 1024
        longest = int(step.lengths.max(initial=0))
        odd = (step.rows >= layout.max_num_reqs).any() or (step.rows < -1).any()
        for name, true in (
            ("rows x groups above 1,024", many),
            ("a request of more than 32 tokens", longest > 32),
            ("the same, and rows x groups above 1,024", many and longest > 32),
            ("dummy requests", (step.rows == -1).any()),
            ("rows that do not exist", odd),
            ("a row more than once", step.repeated),
            ("a window", step.computed is not None and layout.cp_size == 1),
            ("context parallelism", layout.cp_size > 1),
            ("no token", step.lengths.sum() == 0),
        ):
            self.seen[name] += bool(true)

    def _tensors(self, step: Step) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return mapping, starts and positions of a step; the latter two end with garbage."""
        room = self.layout.max_num_batched_tokens - len(step.positions)
        spare = self.rng.integers(-(2**20), 2**20, int(self.rng.choice((0, min(room, 3), room))))
        starts = np.concatenate(([0], np.cumsum(step.lengths), spare[:3])).astype(np.int32)
        mapping = torch.tensor(step.rows, dtype=self.dtype, device=self.device)
        positions = torch.tensor(np.concatenate((step.positions, spare)), device=self.device)
        return mapping, torch.tensor(starts, device=self.device), positions

    def _eager(
        self, step: Step, *, whole: bool
    ) -> tuple[str, list[tuple[str, torch.Tensor, torch.Tensor]]]:
        tables, oracle, rng = self.tables, self.oracle, self.rng
        mapping, starts, positions = self._tensors(step)
        computed = None
        if step.computed is not None:
            computed = torch.tensor(step.computed, dtype=torch.int32, device=self.device)
        out = self._own_tables(step) if rng.random() < 0.25 else None
        pointers = None
        if out is not None and rng.random() < 0.5:
            addresses = [table.data_ptr() for table in out]
            pointers = torch.tensor(addresses, dtype=torch.int64, device=self.device)
        slots = self._own_slots(step) if rng.random() < 0.25 else None
        copies = [table.clone() for table in out] if out is not None else None
        copy = slots.clone() if slots is not None else None
        sizes = step.num_reqs_padded, step.num_tokens_padded
        options = {"out": out, "out_ptrs": pointers, "num_computed_tokens": computed}
        if whole:
            kind = "whole step"
            tables.prepare_step(mapping, starts, positions, *sizes, slots_out=slots, **options)
        else:
            tables.apply_staged_writes()
            if rng.random() < 0.5:
                kind = "apply; gather and slots"
                tables.gather_and_compute_slot_mappings(
                    mapping, starts, positions, *sizes, slots_out=slots, **options
                )
            else:
                kind = "apply; gather; slots"
                tables.gather_block_tables(mapping, sizes[0], **options)
                tables.compute_slot_mappings(mapping, starts, positions, sizes[1], slots)
        oracle.apply()
        num_rows = sizes[0] if out is not None else max(sizes[0], oracle.dirty)
        oracle.gather(mapping, num_rows, copies, computed)
        oracle.map(mapping, starts, positions, copy)
        if out is None:
            oracle.dirty = len(step.rows)
        compared = []
        if out is not None and copies is not None:
            self.seen["tables of the caller"] += 1
            compared += [(f"out[{g}]", out[g], copies[g]) for g in range(len(out))]
        if slots is not None and copy is not None:
            self.seen["slots of the caller"] += 1
            compared.append(("slots_out", slots, copy))
        return kind, compared

    def _own_tables(self, step: Step) -> list[torch.Tensor]:
        """Allocate a caller's tables, at arbitrary offsets."""
        found = []
        for width in self.layout.widths:
            rows = step.num_reqs_padded + int(self.rng.integers(1, 3))
            skip = self.rng.choice((0, 1))
            flat = torch.empty(rows * width + 1, dtype=torch.int32, device=self.device)
            flat.random_(generator=self.generator)
            found.append(flat[skip : skip + rows * width].view(rows, width))
        return found

    def _own_slots(self, step: Step) -> torch.Tensor:
        size = max(1, step.num_tokens_padded + int(self.rng.integers(0, 1500)))
        whole = torch.empty(self.layout.num_groups, size + 8, dtype=torch.int64, device=self.device)
        whole.random_(generator=self.generator)
        return whole[:, :size]

    def _dummies(self, step: Step) -> str:
        """Request dummy tables and slots, as an idle engine does; staged writes stay staged."""
        tables, oracle = self.tables, self.oracle
        num_rows = step.num_reqs_padded
        tables.get_dummy_block_tables(num_rows)
        tables.get_dummy_slot_mappings(step.num_tokens_padded)
        for table in oracle.inputs:
            table[: max(num_rows, oracle.dirty)] = 0
        oracle.slots.fill_(PAD)
        oracle.dirty = num_rows
        return "dummies"

    def _replayed(self) -> str:
        """Replay the session's captured step with another batch, or capture it first."""
        if self._captured is None:
            self._captured = _Captured(self)
        captured = self._captured
        step = self._drawn_step(captured.num_reqs, captured.num_tokens)
        if self.rng.random() < 0.1:  # published, and never replayed
            captured.publish()
            self.oracle.apply()
            self._stage_writes(step.rows)
        captured.run(step)
        return "replayed step"

    def _compare(self, kind: str, more: list[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
        """Count the differences of all buffers on the device, without synchronizing."""
        tables, oracle = self.tables, self.oracle
        pairs = [("slot_mappings", tables.slot_mappings, oracle.slots), *more]
        if kind != "dummies":  # dummies leave the staged writes out of the tables
            pairs += [
                (f"block_tables[{g}]", mine, oracle.source[g])
                for g, mine in enumerate(tables.block_tables)
            ]
        pairs += [
            (f"input_block_tables[{g}]", mine, oracle.inputs[g])
            for g, mine in enumerate(tables.input_block_tables)
        ]
        pairs.append(
            (
                "num_blocks",
                torch.from_numpy(tables.num_blocks),
                torch.from_numpy(oracle.num_blocks),
            )
        )
        for name, mine, expected in pairs:
            self._comparison.add(self._number, kind, name, mine, expected)


class _Captured:
    """A captured step of a session: a CUDA graph on a GPU, a repeated call elsewhere."""

    def __init__(self, session: Session) -> None:
        self._session = session
        rng, layout, device = session.rng, session.layout, session.device
        sizes = (1, layout.max_num_reqs, rng.integers(1, layout.max_num_reqs + 1))
        self.num_reqs = int(rng.choice(sizes))
        self.num_tokens = int(rng.integers(1, layout.max_num_batched_tokens + 1))
        self._padded = int(rng.integers(self.num_reqs, layout.max_num_reqs + 1))
        self._mapping = torch.full((self.num_reqs,), -1, dtype=session.dtype, device=device)
        self._starts = torch.zeros(self.num_reqs + 1, dtype=torch.int32, device=device)
        self._positions = torch.zeros(self.num_tokens, dtype=torch.int64, device=device)
        self._computed = None
        if any(layout.sliding_window_reach) and rng.random() < 0.7:
            rows = layout.max_num_reqs
            self._computed = torch.zeros(rows, dtype=torch.int32, device=device)
        step = self._call()  # of dummy requests alone
        session.oracle.apply()
        session.oracle.slots.fill_(PAD)
        for table in session.oracle.inputs:
            table[: max(self._padded, session.oracle.dirty)] = 0
        self.publish: Callable[[], None] = step.publish
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._call()
        self._settle_dirty_rows()

    def _call(self) -> Any:
        return self._session.tables.capture_step(
            *(self._mapping, self._starts, self._positions, self._padded, self.num_tokens),
            num_computed_tokens=self._computed,
        )

    def _settle_dirty_rows(self) -> None:
        """Set the number of dirty rows in tables and oracle; the host does not see replays."""
        self._session.tables.num_dirty_rows = self._session.oracle.dirty = self._padded

    def run(self, step: Step) -> None:
        """Replay with a batch, padded with dummy requests without tokens."""
        session, oracle = self._session, self._session.oracle
        present = np.sort(session.rng.permutation(self.num_reqs)[: len(step.rows)])
        rows = np.full(self.num_reqs, -1)
        rows[present] = step.rows
        lengths = np.zeros(self.num_reqs, dtype=np.int64)
        lengths[present] = step.lengths
        positions = np.zeros(self.num_tokens, dtype=np.int64)
        positions[: len(step.positions)] = step.positions
        self._mapping.copy_(torch.tensor(rows, dtype=session.dtype))
        starts = np.concatenate(([0], np.cumsum(lengths)))
        self._starts.copy_(torch.tensor(starts, dtype=torch.int32))
        self._positions.copy_(torch.tensor(positions))
        if self._computed is not None:
            computed = 0 if step.computed is None else torch.tensor(step.computed)
            self._computed.copy_(torch.as_tensor(computed))
        dirty = oracle.dirty
        if self._graph is None:
            self._call()
        else:
            self.publish()
            self._graph.replay()
        oracle.apply()
        for table in oracle.inputs:
            table[self._padded : max(dirty, self._padded)] = 0
        oracle.gather(self._mapping, self._padded, None, self._computed)
        oracle.map(self._mapping, self._starts, self._positions, None)
        self._settle_dirty_rows()
