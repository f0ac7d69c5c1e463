"""Layouts of scenarios: small with any options, or large in one direction."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from bt_kernels.layout import (
    CONTEXT_PARALLELISM,
    DISABLED_GROUPS,
    INT32_MAX,
    SLIDING_WINDOW,
    TableLayout,
)

BLOCK_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 100, 128, 257, 1024)
CP_SIZES = (2, 3, 4, 5, 6, 7, 8, 12)


@dataclass
class Shape:
    """The fixed sizes of a layout; those that are `None` are small and drawn at random.

    Args:
        groups: G.
        rows: `max_num_reqs`.
        width: width of one group; the others stay small.
        tokens: `max_num_batched_tokens`.
        block_size: block size of one group.
        cp: whether ranks share the tokens; `None`: perhaps.
        ranks: number of ranks that share them; `None`: any.
        interleave: consecutive tokens of a rank; `None`: any possible number.
        windows: whether all groups have a sliding window; otherwise, they may.
        widths: widths of the first groups.
        sizes: block sizes of the first groups.
        options: share of layouts with each of the other options.
    """

    groups: int | None = None
    rows: int | None = None
    width: int | None = None
    tokens: int | None = None
    block_size: int | None = None
    cp: bool | None = None
    ranks: int | None = None
    interleave: int | None = None
    windows: bool = False
    widths: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    options: float = 0.3


def draw_layout(
    rng: np.random.Generator, shape: Shape, features: frozenset[str], *, most_cells: int
) -> TableLayout:
    """Draw a layout of a shape that needs no feature beyond those given.

    Args:
        rng: random numbers.
        shape: the fixed sizes.
        features: the variant's features.
        most_cells: most elements of all its tables; the number of rows is reduced to fit.
    """
    groups = shape.groups or int(rng.integers(1, 7))
    cp = shape.cp if shape.cp is not None else rng.random() < 0.2
    cp = cp and CONTEXT_PARALLELISM in features
    widths = [int(rng.integers(1, 13)) for _ in range(groups)]
    sizes = [int(rng.choice(BLOCK_SIZES)) for _ in range(groups)]
    at = int(rng.integers(groups))
    if shape.width is not None:
        widths[at] = shape.width
    if shape.block_size is not None:
        sizes[at] = shape.block_size
    widths[: len(shape.widths)] = shape.widths
    sizes[: len(shape.sizes)] = shape.sizes
    rows = shape.rows or int(rng.integers(1, 10))
    rows = max(1, min(rows, most_cells // sum(widths)))
    tokens = shape.tokens or int(rng.integers(1, 60))
    options: dict[str, Any] = {}
    if cp:
        plain = shape.block_size is None and not shape.sizes
        if plain and rng.random() < 0.5:  # lets ranks take turns by several tokens
            least = int(rng.choice([2, 3, 4, 16]))
            sizes = [least * int(rng.choice([1, 1, 2, 3, 4])) for _ in sizes]
        options |= _cp_options(rng, sizes, shape)
    if DISABLED_GROUPS in features and rng.random() < shape.options:
        enabled = [bool(rng.random() < 0.6) for _ in range(groups)]
        # Otherwise nothing might be mapped, which only small scenarios can afford.
        if shape.width is not None or shape.block_size is not None:
            enabled[at] = True
        if not any(enabled) and (rng.random() < 0.7 or shape.options < 0.3):
            enabled[int(rng.integers(groups))] = True
        options["slot_mapping_enabled"] = tuple(enabled)
    if SLIDING_WINDOW in features and (shape.windows or rng.random() < shape.options):
        options["sliding_window_reach"] = tuple(
            _reach(rng, size, width, least=int(shape.windows))
            for size, width in zip(sizes, widths, strict=True)
        )
    return TableLayout(tuple(sizes), tuple(widths), rows, tokens, **options)


def _reach(rng: np.random.Generator, size: int, width: int, *, least: int) -> int:
    """Draw a reach: none, one token, one block, anything up to three rows, or the longest."""
    some = int(rng.integers(1, min(3 * size * width + 1, INT32_MAX)))
    way = rng.random()
    reach = some if way < 0.4 else int(rng.choice([0, 1, size, INT32_MAX], p=[0.3, 0.3, 0.3, 0.1]))
    return max(least, reach)


def _cp_options(rng: np.random.Generator, sizes: list[int], shape: Shape) -> dict[str, Any]:
    sharded = [bool(rng.random() < 0.8) for _ in sizes]
    if shape.ranks is not None and not any(sharded):
        sharded = [True for _ in sizes]
    common = 0
    for size, shared in zip(sizes, sharded, strict=True):
        common = gcd(common, size) if shared else common
    divisors = [n for n in range(1, min(common or 1, 4_096) + 1) if (common or 1) % n == 0]
    divisors += [common] * (common > 4_096)
    cp_size = shape.ranks or int(rng.choice(CP_SIZES))
    interleave = divisors[-1] if rng.random() < 0.4 else int(rng.choice(divisors))
    return {
        "cp_size": cp_size,
        "cp_rank": int(rng.integers(cp_size)),
        "cp_interleave": shape.interleave or interleave,
        "dcp_sharded": tuple(sharded),
    }
