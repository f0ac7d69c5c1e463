"""Random layouts, batches and writes, on both sides of every size at which the code branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bt_kernels.layout import TableLayout

Rng = np.random.Generator
Ints = npt.NDArray[np.int64]

ROWS_IN_ALL = (1024, 1025)  # above 1024, a program handles two requests
LENGTHS = (0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300)
WRITES = (1, 1, 1, 2, 3, 4, 5, 255, 256, 257, 511, 512, 513, 1100)


class Limits(NamedTuple):
    """The sizes to draw from; the smaller set is for Triton's interpreter."""

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    widths: tuple[int, ...]
    elements: int  # of all tables


ON_GPU = Limits(
    rows=(16, 48, 130, 257, 400, 513, 800, 1024, 1024),
    tokens=(64, 600, 2048, 8192, 8192, 16384, 16384),
    widths=(1, 3, 16, 40, 100, 256, 300, 1023, 1024, 1025, 1100, 1536, 1600, 3000, 6000),
    elements=12_000_000,
)
INTERPRETED = Limits(rows=(2, 5), tokens=(12, 70), widths=(1, 3, 9), elements=1_000)


@dataclass(frozen=True)
class Step:
    """A drawn step; with `repeated`, a row occurs more than once."""

    rows: Ints
    lengths: Ints
    positions: Ints
    num_reqs_padded: int
    num_tokens_padded: int
    computed: Ints | None
    repeated: bool


def layout_of(rng: Rng, limits: Limits) -> TableLayout:
    """Draw the sizes and options of a set of tables."""
    groups = int(rng.integers(1, 9))
    rows = int(rng.choice(limits.rows))
    most = max(1, limits.elements // (rows * groups))
    widths = np.minimum(rng.choice(limits.widths, groups), most)
    if rng.random() < 0.5:
        widths = (widths + 3) // 4 * 4  # rows then begin at multiples of 16 bytes
    sizes = rng.choice((16, 16, 4, 1, 3, 5, 64, 128, 544, 262_144), groups)
    cp_size = int(rng.choice((1, 1, 1, 2, 3)))
    interleave = int(rng.choice((1, 2, 4)))
    plain = rng.random() < 0.4
    return TableLayout(
        tuple(sizes.tolist()),
        tuple(widths.tolist()),
        rows,
        int(rng.choice(limits.tokens)),
        slot_mapping_enabled=() if plain else tuple((rng.random(groups) < 0.85).tolist()),
        sliding_window_reach=()
        if plain
        else tuple((rng.integers(0, 2000, groups) * (rng.random(groups) < 0.5)).tolist()),
        cp_size=1 if plain else cp_size,
        cp_rank=0 if plain else int(rng.integers(0, cp_size)),
        cp_interleave=1 if plain else interleave,
        dcp_sharded=tuple(
            bool(size % interleave == 0 and rng.random() < 0.7) for size in sizes.tolist()
        ),
    )


def step_of(rng: Rng, layout: TableLayout, most_rows: int, most_tokens: int) -> Step:
    """Draw a batch of at most `most_rows` requests and `most_tokens` tokens."""
    near = [count // layout.num_groups for count in ROWS_IN_ALL]
    sizes = (0, 1, 2, 3, 7, 32, most_rows, most_rows, *near, *(n + 1 for n in near))
    size = int(rng.choice(sizes)) if rng.random() < 0.6 else int(rng.integers(0, most_rows + 1))
    num_reqs = min(size, most_rows)
    lengths = _lengths(rng, num_reqs, most_tokens)
    rows, repeated = _rows(rng, layout.max_num_reqs, num_reqs)
    num_tokens = int(lengths.sum())
    padded = num_reqs if rng.random() < 0.4 else int(rng.integers(num_reqs, most_rows + 1))
    computed = None
    if any(layout.sliding_window_reach) and rng.random() < 0.8:
        most = int(rng.choice((50, 3000, 100_000, 2**31 - 1)))
        computed = rng.integers(0, most, layout.max_num_reqs)
    return Step(
        rows,
        lengths,
        _positions(rng, layout, lengths),
        padded,
        int(rng.integers(num_tokens, most_tokens + 1)),
        computed,
        repeated,
    )


def _lengths(rng: Rng, num_reqs: int, most: int) -> Ints:
    """Draw the number of tokens of each request."""
    kind = rng.choice((0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 6, 7, 8))
    lengths = np.ones(num_reqs, dtype=np.int64)
    if kind == 1:
        lengths[:] = rng.integers(0, 9)  # drafts
    elif kind == 2:
        lengths = rng.choice(LENGTHS, num_reqs)
    elif kind == 3:
        lengths = rng.integers(0, 2 * max(1, most // max(num_reqs, 1)) + 1, num_reqs)
    elif kind == 4:  # few have most of them
        lengths = (rng.pareto(0.7, num_reqs) * 3).clip(0, most).astype(np.int64)
    elif kind == 5:  # few long ones anywhere, among short ones
        long = rng.random(num_reqs) < rng.choice((0.01, 0.03, 0.1))
        short = rng.integers(int(rng.choice((0, 1))), int(rng.choice((2, 5, 9, 17))), num_reqs)
        longest = int(rng.choice((40, 140, 300, most + 1)))
        sizes = rng.choice(LENGTHS, num_reqs) if rng.random() < 0.3 else None
        lengths = np.where(
            long, rng.integers(0, longest, num_reqs) if sizes is None else sizes, short
        )
    elif kind == 6:
        lengths = rng.integers(0, 3, num_reqs)
    elif kind == 7 and num_reqs:
        lengths[: int(rng.integers(1, num_reqs + 1))] = int(rng.choice(LENGTHS))
    elif kind == 8 and num_reqs:
        lengths[:] = int(rng.choice((0, 4)))
        lengths[rng.integers(0, num_reqs)] = int(rng.integers(0, most + 1))
    if rng.random() < 0.25:
        lengths = rng.permutation(lengths)
    if rng.random() < 0.2:
        lengths = np.sort(lengths)[:: int(rng.choice((1, -1)))]
    ends = np.cumsum(lengths)
    if rng.random() < 0.5:  # some requests end at a boundary of a token block, or one beside it
        block = int(rng.choice((32, 128, 128, 256)))
        snapped = (ends + block // 2) // block * block + rng.integers(-1, 2, num_reqs)
        ends = np.where(rng.random(num_reqs) < rng.choice((0.05, 0.3)), snapped, ends)
    ends = np.maximum.accumulate(np.clip(ends, 0, most)) if num_reqs else ends
    return np.diff(ends, prepend=0)


def _rows(rng: Rng, max_num_reqs: int, num_reqs: int) -> tuple[Ints, bool]:
    """Draw the row of each request, including dummies and rows that do not exist."""
    repeated = bool(rng.random() < 0.15)
    if repeated:
        rows = rng.integers(0, max_num_reqs, num_reqs)
    elif rng.random() < 0.3:
        rows = np.arange(num_reqs)
    else:
        rows = rng.permutation(max_num_reqs)[:num_reqs]
    if rng.random() < 0.4:
        rows[rng.random(num_reqs) < rng.choice((0.02, 0.3, 1.0))] = -1
    if rng.random() < 0.1:
        odd = (max_num_reqs, 2**31 - 1, -(2**31), 2**31, 2**32, 2**32 + 1, -(2**32) + 1, 2**62)
        chosen = rng.random(num_reqs) < 0.1
        rows[chosen] = rng.choice(odd, int(chosen.sum()))
    return rows.astype(np.int64), repeated


def _positions(rng: Rng, layout: TableLayout, lengths: Ints) -> Ints:
    """Draw the position of each token: consecutive or arbitrary ones."""
    group = int(rng.integers(0, layout.num_groups))
    ranks = layout.cp_size
    capacity = layout.widths[group] * layout.block_sizes[group] * ranks
    num_tokens = int(lengths.sum())
    if rng.random() < 0.1:
        anything = rng.integers(-5, capacity + 5, num_tokens)
        odd = rng.random(num_tokens) < 0.2
        anything[odd] = rng.choice((-1, capacity, 2**31, 2**40, -(2**40)), int(odd.sum()))
        return anything
    starts = rng.integers(0, max(1, capacity), len(lengths))
    if rng.random() < 0.8:  # inside the row, as an engine's
        starts = np.maximum(0, np.minimum(starts, capacity - lengths))
    ends = np.cumsum(lengths)
    return np.arange(num_tokens) + np.repeat(starts - (ends - lengths), lengths)


def writes_of(
    rng: Rng,
    layout: TableLayout,
    num_blocks: npt.NDArray[np.integer],
    rows: Ints,
    *,
    same: bool = False,
) -> list[tuple[int, list[list[int]], bool]]:
    """Draw the writes to stage: for each append the row, ids per group, and whether it overwrites.

    Args:
        rng: random generator.
        layout: layout of the tables.
        num_blocks: `[G, max_num_reqs]`, number of blocks that each row owns; not changed.
        rows: rows of the step's batch, the targets of most appends.
        same: make all ids 1, for callers to whom ids do not matter.
    """
    kind = rng.integers(0, 6)
    if kind == 0:
        return []
    batch = rows[(rows >= 0) & (rows < layout.max_num_reqs)]
    few = int(rng.choice((1, 2, 5, 60, 64, 65)))
    count = min(layout.max_num_reqs, few if kind < 4 else layout.max_num_reqs)
    if len(batch) and rng.random() < 0.8:
        chosen = rng.choice(batch, min(count, len(batch)), replace=bool(rng.random() < 0.1))
    else:
        chosen = rng.permutation(layout.max_num_reqs)[:count]
    widths = np.array(layout.widths)
    owned = num_blocks.copy()
    found = []
    for row in chosen.tolist():
        overwrite = bool(rng.random() < (0.1 if kind < 4 else 0.02))
        start = np.zeros_like(widths) if overwrite else owned[:, row]
        if kind in (1, 4):
            wanted = np.ones_like(widths)
        elif kind == 2:
            wanted = rng.choice(WRITES, len(widths))
        else:
            wanted = rng.integers(0, 6, len(widths))
        if rng.random() < 0.2:
            wanted = wanted * (rng.random(len(widths)) < 0.5)
        if not overwrite and (start + wanted > widths).any() and rng.random() < 0.5:
            overwrite, start = True, np.zeros_like(widths)
        wanted = np.minimum(wanted, widths - start)
        owned[:, row] = start + wanted
        high = int(rng.choice((1000, 2**31 - 1)))
        least = -3 if high > 1000 else 0
        counts = wanted.tolist()
        ids = [[1] * n if same else rng.integers(least, high, n).tolist() for n in counts]
        found.append((row, ids, overwrite))
    return found
