"""Random batches of a scenario: their requests, token counts, and positions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring.calls import (
    MIXED,
    OWN_SIZE,
    Batch,
    Ints,
    Parts,
    are_own_slots,
)
from bt_bench.suites.block_tables.exploring.starts import starts_of
from bt_bench.suites.block_tables.exploring.themes import FixedStep, ScenarioPlan
from bt_kernels.layout import CUSTOM_OUTPUTS, DUMMY_REQUESTS, SLIDING_WINDOW, TableLayout

MANY = 24  # a batch of more requests is a large one
MANY_RANKS = 24  # with more ranks, hardly any token would belong to the tested one
BEYOND = (0, 0, 1, 33, 70, 130, 200)  # tokens by which a batch may exceed its layout
FAR = (2**24, 2**31, 2**32, 2**40, 2**62)


def edges_of(count: int) -> list[int]:
    """Return places in a batch: its ends, its middle, and around the ends of likely parts."""
    parts = [*range(32, 97, 32), *(128, 256, 512, 768, 1024, 2048)]
    about = {0, 1, 2, count // 2, count - 1, count - 2}
    about |= {at + by for at in parts for by in (-1, 0)}
    return sorted(at for at in about if 0 <= at < count)


@dataclass
class Model:
    """A caller's knowledge of a table: it determines which calls are legal."""

    layout: TableLayout
    owned: Ints  # [G, rows]
    validates: bool = False
    last: Batch | None = None
    method: str = ""  # of the last call
    pending: dict[int, int] = field(default_factory=dict)  # most ids that are staged, by row
    captured: list[Batch] = field(default_factory=list)  # of steps, which are numbered from 1
    restored: int | None = None  # the snapshot that was restored last

    def renew(self) -> None:
        """Start over with new tables, which own nothing."""
        self.owned[:] = 0
        self.validates = False
        self.last = self.restored = None
        self.pending.clear()
        self.captured.clear()

    def before(self) -> Batch | None:
        """Return the last batch, if it may come again: tables that validate refuse unknown rows."""
        batch = self.last
        if batch is None or not self.validates:
            return batch
        return None if (batch.rows >= self.layout.max_num_reqs).any() else batch


@dataclass
class Batches:
    """A source of random batches.

    Args:
        rng: random numbers.
        source: the scenario's source.
        plan: the scenario's plan.

    Attributes:
        given: the fixed parts of the current step.
    """

    rng: np.random.Generator
    source: Source
    plan: ScenarioPlan
    given: FixedStep = field(default_factory=FixedStep)

    def batch(self, model: Model, like: Batch | None, *, wide: bool = False) -> Batch:
        """Draw a legal batch; with `like`, one with tensors of the same sizes and options.

        Args:
            model: the model of its tables.
            like: a batch whose tensors are reused.
            wide: whether it may have more tokens than the layout, in slots of the caller.
        """
        rng, layout, features = self.rng, model.layout, self.source.features
        rows_in_all = layout.max_num_reqs
        if like is not None:  # tensors are reused if they are as long
            reqs, spare = len(like.rows), len(like.positions)
        else:
            reqs, spare = min(self._reqs(rows_in_all), len(self.plan.rows_of(rows_in_all))), 0
        int64 = like.int64 if like is not None else bool(rng.random() < 0.4)
        rows = self._rows(model, reqs, int64=int64)
        out, parts, pointers = self._outputs(reqs)
        limit = layout.max_num_batched_tokens
        if wide and like is None and are_own_slots(out, parts):
            limit = max(limit + int(rng.choice(BEYOND)), self.given.tokens or 0)
        most = limit if reqs else 0
        if like is not None:
            most = min(most, spare)
        wanted_tokens = self.given.tokens if self.given.tokens is not None else self.plan.tokens
        if wanted_tokens is not None and like is None:
            tokens = min(most, max(0, wanted_tokens))
        else:
            full = 0.1 if self.given.reqs is None else 0.4
            least = min(reqs, most) if reqs > MANY and rng.random() < 0.8 else 0
            tokens = most if rng.random() < full else int(rng.integers(least, most + 1))
        starts = starts_of(rng, reqs, tokens, self.given.starts)
        owners = np.repeat(np.arange(reqs), np.diff(starts))
        positions = self._positions(model, rows[owners] if reqs else rows)
        extra = (spare if like is not None else tokens + int(rng.integers(6))) - tokens
        positions = np.concatenate([positions, self._spare(model, extra)])
        most_reqs = rows_in_all
        padded = reqs if rng.random() < 0.4 else int(rng.integers(reqs, most_reqs + 1))
        if (self.plan.batch is not None or reqs > MANY) and padded > reqs + 4:
            padded = reqs + int(rng.integers(4)) if reqs + 4 <= most_reqs else reqs
        if self.given.padded is not None:
            padded = min(most_reqs, max(reqs, self.given.padded))
        if self.given.dummy_last:
            padded = min(most_reqs, reqs + int(rng.integers(1, 4)))
        tokens_padded = tokens if rng.random() < 0.4 else int(rng.integers(tokens, limit + 1))
        computed = None
        wanted = any(layout.reaches) or rng.random() < 0.1
        if SLIDING_WINDOW in features and wanted and rng.random() < 0.85:
            computed = self._computed(layout)
        return Batch(
            *(rows, starts, positions, padded, tokens_padded),
            *(computed, out, parts, pointers, int64),
            more=int(rng.integers(4)) if rng.random() < 0.3 else 0,
            numpy_sizes=bool(rng.random() < 0.08),
        )

    def _outputs(self, reqs: int) -> tuple[int | None, Parts, bool]:
        """Draw the caller's outputs for a batch: their set, parts, and `out_ptrs`."""
        rng = self.rng
        custom = self.plan.custom
        if self.given.reqs is not None:  # mostly the buffers that later calls see
            custom = 0.1 * (self.given.starts is None and reqs < 200)
        if CUSTOM_OUTPUTS not in self.source.features:
            return None, Parts.BOTH, True
        if self.given.out is not None:
            return self.given.out, Parts.BOTH, False
        if rng.random() >= custom:
            return None, Parts.BOTH, True
        out, pointers = int(rng.integers(MIXED, OWN_SIZE + 1)), bool(rng.random() < 0.5)
        return out, list(Parts)[int(rng.choice(3, p=[0.6, 0.2, 0.2]))], pointers

    def changed(self, model: Model, batch: Batch) -> Batch:
        """Return the batch with one change, in tensors of the same lengths."""
        rng, layout = self.rng, model.layout
        reqs, tokens = len(batch.rows), int(batch.starts[-1])
        ways = ["int64"] * bool((batch.rows < 2**31).all())
        ways += ["row"] * 4 * bool(reqs) + ["position"] * 3 * bool(tokens)
        ways += ["start"] * 2 * (reqs > 1 and tokens > 0)
        ways += ["computed"] * 2 * (batch.computed is not None)
        ways += ["reqs"] * (batch.reqs < layout.max_num_reqs)
        ways += ["tokens"] * (batch.tokens < layout.max_num_batched_tokens)
        match ways[int(rng.integers(len(ways)))]:
            case "row":
                rows = batch.rows.copy()
                fewest = -1 if DUMMY_REQUESTS in self.source.features else 0
                rows[self._some(reqs)] = int(rng.integers(fewest, layout.max_num_reqs))
                return replace(batch, rows=rows)
            case "position":
                positions = batch.positions.copy()
                positions[self._some(tokens)] = self._spare(model, 1)[0]
                return replace(batch, positions=positions)
            case "start":
                starts = batch.starts.copy()
                at = int(rng.integers(1, reqs))
                starts[at] = int(rng.integers(starts[at - 1], starts[at + 1] + 1))
                return replace(batch, starts=starts)
            case "computed":
                assert batch.computed is not None
                computed = batch.computed.copy()
                computed[self._some(len(computed))] = self._computed(layout)[0]
                return replace(batch, computed=computed)
            case "reqs":
                return replace(batch, reqs=batch.reqs + 1)
            case "tokens":
                return replace(batch, tokens=batch.tokens + 1)
            case "int64":
                return replace(batch, int64=not batch.int64)
        return batch

    @staticmethod
    def apart(model: Model, batch: Batch) -> Batch:
        """Return a step's batch, without duplicate rows if several ids of a row are staged.

        In the shipped `one_launch`, each program that gathers such a row writes the ids to its
        table: the same ids, yet a race.
        """
        if max(model.pending.values(), default=0) < 2:
            return batch
        rows, seen = batch.rows.copy(), set(batch.rows.tolist())
        free = iter([row for row in range(model.layout.max_num_reqs) if row not in seen])
        met: set[int] = set()
        for at, row in enumerate(batch.rows.tolist()):
            if row >= 0 and row in met:
                rows[at] = next(free)
            met.add(row)
        return replace(batch, rows=rows)

    def _some(self, count: int) -> int:
        """Draw an index below a count: the first, the last, or any."""
        rng = self.rng
        return int(rng.choice([0, count - 1, *rng.integers(count, size=3)]))

    def _rows(self, model: Model, reqs: int, *, int64: bool) -> Ints:
        """Draw `idx_mapping`; a large batch has rows that own blocks where kernels may differ."""
        rng, features, rows_in_all = self.rng, self.source.features, model.layout.max_num_reqs
        rows = rng.permutation(self.plan.rows_of(rows_in_all))[:reqs]
        if reqs > MANY:
            owning = rng.permutation(np.flatnonzero(model.owned.any(axis=0)))
            places = np.array(edges_of(reqs))
            places = np.concatenate([[0, reqs - 1], rng.permutation(places)])[: len(owning)]
            places = places[np.sort(np.unique(places, return_index=True)[1])]
            owning = owning[: len(places)]
            others = rng.permutation(np.setdiff1d(np.arange(rows_in_all), owning))
            rows[:] = -1
            rows[places] = owning
            rows[rows < 0] = others[: reqs - len(places)]
        if reqs > 1 and rng.random() < 0.06:
            rows[0] = rows[-1]
        if DUMMY_REQUESTS not in features:
            return rows
        if rng.random() < 0.3:
            dummies = rng.random(reqs) < rng.choice([0.1, 0.2 if reqs > MANY else 0.5])
            if reqs > MANY:
                dummies[[0, -1]] = False
            rows[dummies] = -1
        if reqs and self.given.dummy_last:
            rows[-1] = -1
        if reqs and rng.random() < 0.12 and not (model.validates or self.plan.rows_before):
            place = self._some(reqs) if reqs <= MANY else int(rng.integers(1, reqs - 1))
            rows[place] = self._beyond(model, int64=int64)
        return rows

    def _beyond(self, model: Model, *, int64: bool) -> int:
        """Draw a row past the tables; in int64, often one whose low 31 bits are a valid row."""
        rng, count = self.rng, model.layout.max_num_reqs
        if int64 and rng.random() < 0.6:
            staged = [row for row, ids in model.pending.items() if ids]
            rows = staged if staged and rng.random() < 0.7 else range(count)
            return int(rng.choice(rows)) + int(rng.choice([2**32, 2**31, 3 * 2**32, 2**62]))
        return int(rng.choice([count, count + 1, 2 * count + 5, 2**31 - 1]))

    def _computed(self, layout: TableLayout) -> Ints:
        """Draw `num_computed_tokens`, now and then at the ends of its range or near the reach."""
        rng = self.rng
        count = layout.max_num_reqs
        lengths = [w * b for w, b in zip(layout.widths, layout.block_sizes, strict=True)]
        computed = rng.integers(min(2 * max(lengths) + 2, 2**31 - 1), size=count)
        group = int(rng.integers(layout.num_groups))
        reach, size = layout.reaches[group], layout.block_sizes[group]
        beside = reach + size * rng.integers(3, size=count) + rng.integers(-1, 2, size=count)
        ends = rng.choice([0, 1, 2**31 - 2, 2**31 - 1], size=count)
        kind = rng.random(count)
        computed = np.where(kind < 0.3, beside, computed)
        computed = np.where(kind > 0.85, ends, computed)
        return np.asarray(np.clip(computed, 0, 2**31 - 1), dtype=np.int64)

    def _spare(self, model: Model, count: int) -> Ints:
        """Draw spare positions behind a batch's own, which nobody may read; most are valid."""
        rows = self.rng.integers(model.layout.max_num_reqs, size=count)
        return self._positions(model, rows)

    def _reqs(self, most: int) -> int:
        """Draw the number of requests of the next batch."""
        rng, plan = self.rng, self.plan
        if self.given.reqs is not None:
            return self.given.reqs
        if plan.idle and rng.random() < plan.idle:
            return 0
        if plan.batch is None:
            return most if rng.random() < 0.1 else int(rng.integers(most + 1))
        return int(rng.integers(plan.batch + 1)) if rng.random() < 0.1 else plan.batch

    def _positions(self, model: Model, rows: Ints) -> Ints:
        """Draw a position for each token: mostly within its row's blocks, else anywhere."""
        rng, layout = self.rng, model.layout
        count = len(rows)
        group = int(rng.integers(layout.num_groups))
        size, width = layout.tokens_per_block[group], layout.widths[group]
        owned = np.maximum(model.owned[group, np.clip(rows, 0, layout.max_num_reqs - 1)], 1)
        positions = (rng.random(count) * owned * size).astype(np.int64)
        edge = rng.integers(width + 1, size=count) * size + rng.integers(-1, 2, size=count)
        outside = width * size + rng.integers(0, 2 * size + 2, size=count)
        far = rng.choice(FAR, size=count) + rng.integers(-2, width * size + 1, size=count)
        negative = -rng.integers(1, 3 * size + 2, size=count)
        kind = rng.random(count)
        for least, values in ((0.6, edge), (0.88, outside), (0.93, far), (0.98, negative)):
            positions = np.where(kind >= least, values, positions)
        if layout.cp_sizes[group] > MANY_RANKS:
            ranks, share = layout.cp_size, layout.cp_interleave
            turns = positions // share // ranks * ranks + layout.cp_rank
            own = turns * share + rng.integers(share, size=count)
            chosen = (rng.random(count) < 0.6) & (positions < size * width)
            positions = np.where(chosen, own, positions)
        return np.asarray(positions, dtype=np.int64)

    def whole(self, model: Model) -> Batch:
        """Draw a batch after which the number of dirty rows is known, whatever came before."""
        return replace(self.batch(model, None), out=None, reqs=model.layout.max_num_reqs)

    def replayed(self, model: Model, captured: Batch) -> Batch:
        """Draw other contents for the tensors of a captured step, in the sizes of its capture."""
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
