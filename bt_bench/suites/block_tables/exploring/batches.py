"""Draws the batches of a scenario: which requests, how many tokens, at which positions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import OWN_SIZE, Batch, Ints, Parts
from bt_bench.suites.block_tables.exploring.themes import Plan
from bt_kernels.layout import CUSTOM_OUTPUTS, DUMMY_REQUESTS, SLIDING_WINDOW, TableLayout

FAR = (2**24, 2**31, 2**32, 2**40, 2**62)


@dataclass
class Model:
    """What the caller of a table knows: legal calls follow from that."""

    layout: TableLayout
    owned: Ints  # [G, rows]
    validates: bool = False
    last: Batch | None = None
    captured: list[Batch] = field(default_factory=list)  # of steps, which are numbered from 1
    restored: int | None = None  # the snapshot that was restored last


@dataclass
class Batches:
    """Draws batches.

    Args:
        rng: random numbers.
        source: of the scenario.
        plan: of the scenario.

    Attributes:
        reqs: requests of the next batches, if they are given.
    """

    rng: np.random.Generator
    source: Source
    plan: Plan
    reqs: int | None = None

    def batch(self, model: Model, like: Batch | None) -> Batch:
        """A legal batch; with `like`, one with tensors of the same sizes and options."""
        rng, layout, features = self.rng, model.layout, self.source.features
        rows_in_all = layout.max_num_reqs
        if like is not None:  # tensors are the same if they are as long
            reqs, spare = len(like.rows), len(like.positions)
        else:
            reqs, spare = min(self._reqs(rows_in_all), rows_in_all), 0
        rows = rng.permutation(rows_in_all)[:reqs].astype(np.int64)
        if reqs > 1 and rng.random() < 0.04:
            rows[0] = rows[-1]
        if DUMMY_REQUESTS in features and rng.random() < 0.3:
            rows[rng.random(reqs) < rng.choice([0.1, 0.5])] = -1
        most = layout.max_num_batched_tokens if reqs else 0
        if like is not None:
            most = min(most, spare)
        if self.plan.tokens is not None and like is None:
            tokens = min(most, max(0, self.plan.tokens + self.beside()))
        else:
            tokens = most if rng.random() < 0.1 else int(rng.integers(most + 1))
        starts = self._starts(reqs, tokens)
        owners = np.repeat(np.arange(reqs), np.diff(starts))
        positions = self._positions(model, rows[owners] if reqs else rows)
        extra = (spare if like is not None else tokens + int(rng.integers(6))) - tokens
        positions = np.concatenate([positions, rng.integers(2**40, size=extra)])
        most_reqs = rows_in_all
        padded = reqs if rng.random() < 0.4 else int(rng.integers(reqs, most_reqs + 1))
        if self.plan.batch is not None and padded > 2 * reqs + 4:
            padded = reqs + int(rng.integers(4)) if reqs + 4 <= most_reqs else reqs
        limit = layout.max_num_batched_tokens
        tokens_padded = tokens if rng.random() < 0.4 else int(rng.integers(tokens, limit + 1))
        computed = None
        wanted = any(layout.reaches) or rng.random() < 0.1
        if SLIDING_WINDOW in features and wanted and rng.random() < 0.85:
            reach = max(w * b for w, b in zip(layout.widths, layout.block_sizes, strict=True))
            computed = rng.integers(min(2 * reach + 2, 2**31 - 1), size=rows_in_all)
        out, parts, pointers = None, Parts.BOTH, True
        if CUSTOM_OUTPUTS in features and rng.random() < 0.2:
            out, pointers = int(rng.integers(OWN_SIZE + 1)), bool(rng.random() < 0.5)
            parts = list(Parts)[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
        int64 = like.int64 if like is not None else bool(rng.random() < 0.4)
        return Batch(
            *(rows, starts, positions, padded, tokens_padded),
            *(computed, out, parts, pointers, int64),
            more=int(rng.integers(4)) if rng.random() < 0.3 else 0,
        )

    def beside(self) -> int:
        """How far beside a size that the code names something is."""
        return int(self.rng.choice([-1, 0, 0, 1])) if self.plan.beside else 0

    def _reqs(self, most: int) -> int:
        """Requests of the next batch."""
        rng, plan = self.rng, self.plan
        if self.reqs is not None:
            return self.reqs
        if plan.batch is None:
            return most if rng.random() < 0.1 else int(rng.integers(most + 1))
        return int(rng.integers(plan.batch + 1)) if rng.random() < 0.1 else plan.batch

    def _starts(self, reqs: int, tokens: int) -> Ints:
        """`query_start_loc`: even, all in one request, or at random."""
        rng = self.rng
        if not reqs:
            return np.zeros(1, dtype=np.int64)
        way = rng.random()
        if way < 0.2:
            cuts = np.full(reqs - 1, int(rng.choice([0, tokens])))
        elif way < 0.4:
            cuts = np.arange(1, reqs) * tokens // reqs
        else:
            cuts = np.sort(rng.integers(tokens + 1, size=reqs - 1))
        return np.concatenate([[0], cuts, [tokens]]).astype(np.int64)

    def _positions(self, model: Model, rows: Ints) -> Ints:
        """A position for each token: mostly inside what its row owns, and all kinds of others."""
        rng, layout = self.rng, model.layout
        count = len(rows)
        group = int(rng.integers(layout.num_groups))
        size, width = layout.tokens_per_block[group], layout.widths[group]
        owned = np.maximum(model.owned[group, np.maximum(rows, 0)], 1)
        positions = (rng.random(count) * owned * size).astype(np.int64)
        edge = rng.integers(width + 1, size=count) * size + rng.integers(-1, 2, size=count)
        outside = width * size + rng.integers(0, 2 * size + 2, size=count)
        far = rng.choice(FAR, size=count) + rng.integers(-2, width * size + 1, size=count)
        negative = -rng.integers(1, 3 * size + 2, size=count)
        kind = rng.random(count)
        for least, values in ((0.7, edge), (0.88, outside), (0.93, far), (0.98, negative)):
            positions = np.where(kind >= least, values, positions)
        return np.asarray(positions, dtype=np.int64)

    def replayed(self, model: Model, captured: Batch) -> Batch:
        """Other contents for the tensors of a captured step, which has the sizes of its capture."""
        like = replace(captured, positions=captured.positions[: captured.tokens])
        drawn = self.batch(model, like)
        spare = np.zeros(len(captured.positions) - len(like.positions), dtype=np.int64)
        computed = captured.computed
        return replace(
            drawn,
            positions=np.concatenate([drawn.positions, spare]),
            reqs=captured.reqs,
            tokens=captured.tokens,
            computed=None if computed is None else self.rng.permutation(computed),
            out=None,
            int64=captured.int64,
            more=captured.more,
        )
