"""Layouts of engines, scaled down, and a scheduler that makes valid steps for them.

Inputs for which vLLM's result is undefined are drawn, then replaced and counted (`LEFT_OUT`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bt_bench.suites.block_tables.vllm.differences import (
    INT32_SLOTS,
    MEANINGS,
    OUT_PTRS,
    POSITIONS_OUTSIDE,
    WRITES_TO_A_ROW,
)
from bt_bench.suites.block_tables.workloads.layouts.presets import MODEL_PRESETS
from bt_kernels.layout import TableLayout

Rng = np.random.Generator
Ints = npt.NDArray[np.int64]

NO_GROUPS = "no groups"
LAYOUTS = (*MODEL_PRESETS, NO_GROUPS)

RANKS_INTERPRETED = "ranks_interpreted"
DUMMIES_GATHERED = "dummies_gathered"
FIRST_SLOTS = "first_slots"
LEFT_OUT = {
    WRITES_TO_A_ROW: f"{MEANINGS[WRITES_TO_A_ROW]}: two appends became one",
    POSITIONS_OUTSIDE: f"{MEANINGS[POSITIONS_OUTSIDE]}: a draft at max_model_len took the last",
    INT32_SLOTS: f"{MEANINGS[INT32_SLOTS]}: a greater id was replaced",
    OUT_PTRS: f"{MEANINGS[OUT_PTRS]}: a gather got both",
    DUMMIES_GATHERED: "the input row of a dummy request is whatever precedes the tables: a gather "
    "got none, and slots did",
    FIRST_SLOTS: "slots before the first step are 0, and ours PAD: a sequence began with 0 in both",
    RANKS_INTERPRETED: "Triton's interpreter cannot run vLLM's kernel with context parallelism: a "
    "sequence was played without",
}
"""Inputs that are never played: the reason, and the replacement when one was drawn."""


class Limits(NamedTuple):
    """The sizes to draw from; the smaller set is for Triton's interpreter."""

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    elements: int  # of all source tables
    ranks: bool


ON_GPU = Limits(
    rows=(1, 7, 33, 130, 257, 520, 1024),
    tokens=(64, 600, 2048, 8192, 16384),
    lengths=(200, 1000, 5000, 20_000, 131_072),
    elements=3_000_000,
    ranks=True,
)
INTERPRETED = Limits(
    rows=(1, 2, 3, 4),
    tokens=(4, 9, 40),
    lengths=(40, 200, 1500, 2600),
    elements=12_000,
    ranks=False,
)


@dataclass(frozen=True)
class Drawn:
    """A layout, and how long a sequence may become."""

    name: str
    layout: TableLayout
    max_model_len: int
    spare_blocks: tuple[int, ...]


def layout_of(rng: Rng, name: str, limits: Limits, left_out: Counter[str]) -> Drawn:
    """Draw sizes and options of the tables of a preset, or of an engine without any group."""
    rows = int(rng.choice(limits.rows))
    tokens = max(rows, int(rng.choice(limits.tokens)))
    length = int(rng.choice(limits.lengths)) + int(rng.integers(0, 40))
    groups = list(MODEL_PRESETS[name].groups) if name != NO_GROUPS else []
    cp_size = int(rng.choice((1, 1, 2, 3, 4))) if groups else 1
    if cp_size > 1 and not limits.ranks:
        left_out[RANKS_INTERPRETED] += 1
        cp_size = 1
    while rows * sum(group.width(length, cp_size) for group in groups) > limits.elements:
        length = max(length * 2 // 3, 8)
        if length == 8:
            break
    tables = [
        (
            group.block_size,
            group.width(length, cp_size),
            group.slot_mapping_enabled,
            group.reach,
            group.dcp_sharded,
            group.spare_blocks,
        )
        for group in groups
    ]
    if groups and rng.random() < 0.3:  # a circular buffer of a model's, whose tokens have no slots
        buffer = (int(rng.choice((1, 16, 4096))), int(rng.integers(1, 4)), False, 0, False, 0)
        tables.insert(int(rng.integers(0, len(tables) + 1)), buffer)
    sizes, widths, enabled, reaches, sharded, spare = (
        zip(*tables, strict=True) if tables else [()] * 6
    )
    smallest = min((size for size, own in zip(sizes, sharded, strict=True) if own), default=1)
    layout = TableLayout(
        sizes,
        widths,
        rows,
        tokens,
        slot_mapping_enabled=enabled,
        sliding_window_reach=reaches,
        cp_size=cp_size,
        cp_rank=int(rng.integers(0, cp_size)),
        cp_interleave=int(rng.choice((1, 2, 4, smallest))) if cp_size > 1 else 1,
        dcp_sharded=sharded,
    )
    return Drawn(name, layout, length, spare)


@dataclass
class Request:
    """A running request: its computed tokens, and the blocks it has in each group."""

    computed: int
    owned: Ints


@dataclass(frozen=True)
class Batch:
    """Hold the decisions of a scheduler for a step.

    Args:
        writes: of each append the row, ids per group, and whether it overwrites.
        rows: row of each request, none of them twice.
        lengths: tokens of each.
        starts: position of the first token of each.
        computed: `[max_num_reqs]`, computed tokens of each row.
        num_reqs_padded: rows that the model is run with.
        num_tokens_padded: likewise its tokens.
    """

    writes: list[tuple[int, tuple[list[int], ...], bool]]
    rows: Ints
    lengths: Ints
    starts: Ints
    computed: Ints
    num_reqs_padded: int
    num_tokens_padded: int

    @property
    def positions(self) -> Ints:
        """The position of each token."""
        return positions_of(self.starts, self.lengths)


def positions_of(starts: Ints, lengths: Ints) -> Ints:
    """Return the positions of requests' tokens, one request after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum())) + np.repeat(starts - (ends - lengths), lengths)


@dataclass
class Scheduler:
    """Requests that come, run and go, with valid writes: one append for a row and step."""

    rng: Rng
    drawn: Drawn
    left_out: Counter[str]
    running: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        layout = self.drawn.layout
        self.computed = np.zeros(layout.max_num_reqs, dtype=np.int64)
        self._widths = np.array(layout.widths, dtype=np.int64)
        self._enabled = np.array(layout.slot_mapping_enabled, dtype=bool)
        self._spare = np.array(self.drawn.spare_blocks, dtype=np.int64)
        self._tokens_per_block = np.array(
            [
                size * (layout.cp_size if sharded else 1)
                for size, sharded in zip(layout.block_sizes, layout.dcp_sharded, strict=True)
            ],
            dtype=np.int64,
        )

    def schedule(self) -> Batch:
        """Decide a step: which requests end, come, and run, and what blocks they get."""
        rng, layout, longest = self.rng, self.drawn.layout, self.drawn.max_model_len
        leaving = float(rng.choice((0.02, 0.2)))
        for row, request in list(self.running.items()):
            if request.computed >= longest or rng.random() < leaving:
                del self.running[row]  # finished, or preempted
        free = [row for row in range(layout.max_num_reqs) if row not in self.running]
        arriving = int(rng.integers(0, len(free) + 1)) if rng.random() < 0.6 else 0
        new = set(rng.permutation(free)[:arriving].tolist())
        if not self.running and not new:
            new = {int(rng.choice(free))}
        chosen = [row for row in self.running if rng.random() < 0.9] + sorted(new)
        chosen = chosen or list(self.running)  # without tokens, an engine returns early
        budget = layout.max_num_batched_tokens
        rows, lengths, starts, writes = [], [], [], []
        for left, row in zip(
            range(len(chosen), 0, -1), rng.permutation(chosen).tolist(), strict=True
        ):
            if row in new:
                self.running[row] = Request(self._cached(), np.zeros_like(self._widths))
            request = self.running[row]
            # Everybody behind gets a token, too.
            most = min(budget - (left - 1), longest - request.computed)
            length = min(most, self._length(most))
            budget -= length
            ids = self._new_blocks(request, request.computed + length)
            if row in new or any(ids) or rng.random() < 0.1:
                writes.append((row, ids, row in new))
            self.computed[row] = request.computed
            rows.append(row)
            lengths.append(length)
            starts.append(request.computed)
            rejected = int(rng.integers(0, min(length, 4))) if rng.random() < 0.3 else 0
            request.computed += length - rejected
        num_reqs, num_tokens = len(rows), sum(lengths)
        exact = rng.random() < 0.4
        return Batch(
            writes,
            np.array(rows, dtype=np.int64),
            np.array(lengths, dtype=np.int64),
            np.array(starts, dtype=np.int64),
            self.computed.copy(),
            num_reqs if exact else int(rng.integers(num_reqs, layout.max_num_reqs + 1)),
            num_tokens
            if exact
            else int(rng.integers(num_tokens, layout.max_num_batched_tokens + 1)),
        )

    def _cached(self) -> int:
        """Draw how many tokens of a new request are cached, often such that a window just ends."""
        rng, layout, longest = self.rng, self.drawn.layout, self.drawn.max_model_len
        kind = rng.random()
        if kind < 0.3:
            return 0
        if kind < 0.6 and any(layout.sliding_window_reach):
            group = int(rng.choice(np.flatnonzero(layout.sliding_window_reach)))
            size, reach = layout.block_sizes[group], layout.sliding_window_reach[group]
            blocks = int(rng.integers(0, max(1, (longest - reach) // size) + 1))
            edge = reach + blocks * size + int(rng.integers(-1, 2))
            return min(edge, longest - 1)
        return int(rng.integers(0, longest))

    def _length(self, most: int) -> int:
        """Draw the number of tokens of a request: a decode, one with drafts, or a prefill."""
        kind = self.rng.random()
        if kind < 0.5:
            return 1
        if kind < 0.7:
            return int(self.rng.integers(1, 6))
        return int(self.rng.integers(1, most + 1))

    def _new_blocks(self, request: Request, tokens: int) -> tuple[list[int], ...]:
        """Return the ids of the blocks that a request lacks for so many tokens, per group."""
        rng, layout = self.rng, self.drawn.layout
        ahead = int(rng.integers(0, 8)) if rng.random() < 0.3 else 0  # for drafts
        wanted = -(-(tokens + ahead) // self._tokens_per_block) + self._spare
        wanted = np.minimum(np.where(self._enabled, wanted, self._widths), self._widths)
        wanted = np.maximum(wanted, request.owned)
        counts = (wanted - request.owned).tolist()
        request.owned = wanted
        if any(counts) and rng.random() < 0.1:
            self.left_out[WRITES_TO_A_ROW] += 1
        found = []
        for size, reach, count in zip(
            layout.block_sizes, layout.sliding_window_reach, counts, strict=True
        ):
            if not count:
                found.append([])
                continue
            ids = rng.integers(1, int(rng.choice((50, 100_000, 2**31 - 1))), count)
            wraps = ids > (2**31 - 1) // size - 1
            self.left_out[INT32_SLOTS] += int(wraps.sum())
            ids[wraps] %= (2**31 - 1) // size - 1
            if reach and rng.random() < 0.2:  # those before the window are null blocks
                ids[: int(rng.integers(0, count + 1))] = 0
            found.append(ids.tolist())
        return tuple(found)
