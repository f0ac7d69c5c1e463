"""Makes scenarios: for each number a theme, its layouts, and legal calls on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.batches import Batches, Model
from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    CAPTURED_STEPS,
    GATHER,
    SLOTS,
    STEP,
    Apply,
    Batch,
    Call,
    Capture,
    Dummies,
    Form,
    Ints,
    Publish,
    Refused,
    Restore,
    Run,
    Scenario,
    SetFlag,
    Snapshot,
    Stage,
    Write,
)
from bt_bench.suites.block_tables.exploring.layouts import draw_layout
from bt_bench.suites.block_tables.exploring.themes import Plan, plan_of
from bt_kernels.layout import CUSTOM_OUTPUTS, SLIDING_WINDOW, TableLayout

MOST_CELLS, MOST_CELLS_DEEP = 400_000, 4_000_000
# Programs of launches that the interpreter takes about a second for, at some 0.5 ms each.
MOST_PROGRAMS, MOST_PROGRAMS_DEEP = 1_500, 12_000


def make(source: Source) -> Scenario:
    """The scenario of a source."""
    rng = source.rng()
    plan = plan_of(source, rng)
    most_cells = MOST_CELLS_DEEP if source.deep else MOST_CELLS
    layouts = [
        draw_layout(rng, shape, source.features, most_cells=most_cells) for shape in plan.shapes
    ]
    layouts += [layouts[0]] * (plan.switch > 0)
    return _Maker(rng, source, plan, tuple(layouts)).scenario()


@dataclass
class _Maker:
    """Draws the calls of one scenario."""

    rng: np.random.Generator
    source: Source
    plan: Plan
    layouts: tuple[TableLayout, ...]
    calls: list[Call] = field(default_factory=list)
    snapshots: dict[int, tuple[TableLayout, Ints]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)  # requests of the first steps
    deck: list[tuple[str, str]] = field(default_factory=list)
    batches: Batches = field(init=False)
    odd_ids: float = 0.0  # share of lists that have an id at the end of its range

    def scenario(self) -> Scenario:
        """All of it."""
        rng = self.rng
        self.batches = Batches(rng, self.source, self.plan)
        self.sizes = list(self.plan.batches)
        models = [
            Model(layout, np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64))
            for layout in self.layouts
        ]
        at = 0
        self.odd_ids = 0.6 if rng.random() < 0.3 else 0.05
        poison = rng.random() < 0.7
        if self.plan.prompts:
            for place, model in enumerate(models):
                self._prompts(place, model)
        for step in range(self._steps()):
            if step == 1 and self.plan.quiet:
                self._quiet_steps(models[at])
            if rng.random() < self.plan.switch:
                at = int(rng.integers(len(models)))
            self._step(at, models[at], poison)
        before = self.plan.rows_before
        return Scenario(
            self.plan.theme,
            self.layouts,
            tuple(self.calls),
            garbage=int(rng.integers(2**31)) if rng.random() < 0.8 and not before else None,
            offset=int(rng.choice([0, 1, 3, 8])),
            rows_before=before,
        )

    def _quiet_steps(self, model: Model) -> None:
        """Many steps with nothing to apply; now and then a batch."""
        for index in range(self.plan.quiet):
            if index % 16 == 15:
                self.calls.append(Run(0, STEP, self.batches.batch(model, None)))
            else:
                self.calls.append(Apply(0))

    def _steps(self) -> int:
        if self.plan.steps is not None:
            return self.plan.steps
        layout = max(self.layouts, key=lambda one: one.num_groups * one.max_num_reqs)
        most = MOST_PROGRAMS_DEEP if self.source.deep else MOST_PROGRAMS
        batch = layout.max_num_reqs if self.plan.batch is None else self.plan.batch
        programs = 2 * layout.num_groups * (batch + 1)
        return int(np.clip(most // programs, 2, 12))

    def _step(self, at: int, model: Model, poison: bool) -> None:
        rng, calls = self.rng, self.calls
        self.batches.reqs = self.sizes.pop(0) if self.sizes else None
        early = rng.random() < 0.4  # with nothing staged, mostly
        if early:
            self._refusals(at, model)
        if rng.random() < 0.03:
            calls.append(SetFlag(at, "redirect_writes_to_null_block", bool(rng.random() < 0.5)))
        if rng.random() < self.plan.validate:
            model.validates = bool(rng.random() < 0.5)
            calls.append(SetFlag(at, "validate", model.validates))
        if rng.random() < self.plan.stage:
            self._stage(at, model)
        if rng.random() < self.plan.state:
            self._state(at, model)
        if CAPTURED_STEPS in self.source.features and rng.random() < self.plan.captured:
            self._captured(at, model)
        if not early:
            self._refusals(at, model)
        fill = int(rng.integers(-(2**31), -1)) if poison else None
        ways: list[tuple[str, ...]] = [
            (STEP,),
            (STEP,),
            ("apply", BOTH),
            ("apply", GATHER, SLOTS),
            ("apply", SLOTS, GATHER),
            (GATHER, "apply"),
            ("apply", "apply", BOTH, BOTH),
            (SLOTS, STEP),
            ("apply",),
            # What was staged waits, for as long as this goes on.
            (GATHER,),
            (BOTH,),
            (),
        ]
        batch: Batch | None = None
        for name in ways[int(rng.integers(len(ways)))]:
            if name == "apply":
                calls.append(Apply(at))
                continue
            # The calls of one step usually have one batch, but need not.
            fresh = batch is None or rng.random() < 0.2
            same = fresh and model.last is not None and rng.random() < 0.3
            if fresh or batch is None:
                batch = self.batches.batch(model, model.last if same else None)
            calls.append(
                Run(
                    at,
                    name,
                    batch,
                    same_tensors=same,
                    spoil=bool(rng.random() < 0.3),
                    poison=fill,
                )
            )
            model.last = batch

    def _refusals(self, at: int, model: Model) -> None:
        if self.rng.random() < self.plan.refused:
            for _ in range(self.plan.refusals):
                self._refused(at, model)

    def _stage(self, at: int, model: Model) -> None:
        rng = self.rng
        form = Form.LIST if rng.random() < 0.7 else list(Form)[int(rng.integers(len(Form)))]
        writes = tuple(self._writes(model))
        self.calls.append(Stage(at, writes, bool(rng.random() < 0.5), form))

    def _writes(self, model: Model) -> list[Write]:
        rng = self.rng
        count = self.plan.writes
        if count is None:
            count = int(rng.integers(1, 5))
        # Mostly few rows get all writes of a step, so that some get several.
        several = max(1, count if rng.random() < 0.7 else 2)
        rows = rng.integers(model.layout.max_num_reqs, size=several)
        # As in a step that only decodes: a block at most for each row.
        most = 1 if self.plan.prompts and rng.random() < 0.4 else None
        return [self._write(model, int(rows[index % len(rows)]), most) for index in range(count)]

    def _prompts(self, at: int, model: Model) -> None:
        """Fills the first rows, as prompts do."""
        writes = []
        for row in range(min(model.layout.max_num_reqs, 8)):
            # Some rows are almost full, or about to reach a column that the code names.
            room = 9 if self.rng.random() < 0.3 else None
            counts = [
                int(self.rng.integers(max(0, width - (room or width)), width + 1))
                for width in model.layout.widths
            ]
            if self.plan.column is not None and self.rng.random() < 0.7:
                reached = self.plan.column + int(self.rng.integers(-3, 2))
                counts = [min(max(0, reached), width) for width in model.layout.widths]
            lists = [tuple(map(int, self.rng.integers(2**31, size=count))) for count in counts]
            model.owned[:, row] = counts
            writes.append(Write(row, tuple(lists), overwrite=True))
        self.calls.append(Stage(at, tuple(writes)))

    def _write(self, model: Model, row: int, each: int | None) -> Write:
        """A write of a row; with `each` an append of as many blocks to each group, if there is
        room.
        """
        rng = self.rng
        room = np.array(model.layout.widths) - model.owned[:, row]
        overwrite = bool((each is None and rng.random() < 0.2) or not room.any())
        lists = []
        for group, width in enumerate(model.layout.widths):
            most = width if overwrite else int(room[group])
            if each is not None:
                count = min(most, each)
            elif self.plan.ids is not None:
                count = min(most, max(0, self.plan.ids + self.batches.beside()))
            elif rng.random() < 0.1:
                count = most
            elif self.plan.prompts and rng.random() < 0.6:
                count = min(most, 1)
            else:
                count = int(rng.integers(min(most, 4) + 1))
            ids = rng.integers(2**31, size=count)
            if count and rng.random() < self.odd_ids:
                ids[int(rng.integers(count))] = int(rng.choice([2**31 - 1, 0, -1, -(2**31)]))
            lists.append(tuple(int(one) for one in ids))
            before = 0 if overwrite else model.owned[group, row]
            model.owned[group, row] = before + count
        return Write(row, tuple(lists), overwrite)

    def _state(self, at: int, model: Model) -> None:
        """A snapshot, a restore, or dummies."""
        rng, layout = self.rng, model.layout
        which = rng.random()
        fitting = self._fitting(model)
        if which < 0.35 or (which < 0.7 and not fitting):
            key = len(self.snapshots)
            self.calls.append(Snapshot(at, key))
            self.snapshots[key] = layout, model.owned.copy()
        elif which < 0.7:
            again = model.restored if rng.random() < 0.4 else None
            key = again if again is not None else fitting[int(rng.integers(len(fitting)))]
            self.calls.append(Restore(at, key))
            model.restored = key
            model.owned[:] = self.snapshots[key][1]
        else:
            reqs = int(rng.integers(layout.max_num_reqs + 1))
            tokens = int(rng.integers(layout.max_num_batched_tokens + 1))
            self.calls.append(Dummies(at, reqs, tokens, int(rng.integers(-(2**31), -1))))

    def _fitting(self, model: Model) -> list[int]:
        """The snapshots that a table can be restored from."""
        return [key for key, (of, _) in self.snapshots.items() if of == model.layout]

    def _captured(self, at: int, model: Model) -> None:
        if not model.captured or self.rng.random() < 0.4:
            batch = replace(self.batches.batch(model, None), out=None)
            model.captured.append(batch)
            self.calls.append(Capture(at, len(model.captured), batch))
        else:
            rounds = tuple(tuple(self._writes(model)) for _ in range(int(self.rng.integers(1, 4))))
            key = int(self.rng.integers(1, len(model.captured) + 1))
            replay, restored = None, None
            fitting = self._fitting(model)
            if self.rng.random() < 0.6:
                replay = self.batches.replayed(model, model.captured[key - 1])
            elif fitting and self.rng.random() < 0.6:
                restored = fitting[int(self.rng.integers(len(fitting)))]
                model.owned[:] = self.snapshots[restored][1]
            self.calls.append(Publish(at, key, rounds, replay, restored))
        # How many rows are dirty now is up to the variant; a gather of all rows ends that.
        batch = replace(self.batches.batch(model, None), out=None, reqs=model.layout.max_num_reqs)
        self.calls.append(Run(at, GATHER, batch))
        model.last = None

    def _refused(self, at: int, model: Model) -> None:
        """A call that has to be refused; all kinds come before one comes again."""
        rng, layout = self.rng, model.layout
        if not self.deck:
            every = refusals.every()
            self.deck = [every[index] for index in rng.permutation(len(every))]
        what, method = self.deck.pop()
        features = self.source.features
        if (
            (what in refusals.OUTPUTS and CUSTOM_OUTPUTS not in features)
            or (what.startswith("num_computed") and SLIDING_WINDOW not in features)
            or (what in refusals.CONTENTS and not model.validates)
        ):
            return
        batch: Batch | None = None
        if what in refusals.ARGUMENTS | refusals.OUTPUTS | refusals.CONTENTS:
            batch = self.batches.batch(model, None)
            if not len(batch.rows) and what in refusals.CONTENTS | {refusals.REQS_BELOW: ()}:
                return
            if len(batch.rows) < 2 and what == refusals.STARTS_FALL:
                return
        self.calls.append(
            Refused(
                at,
                what,
                batch,
                method,
                group=int(rng.integers(layout.num_groups)),
                row=int(rng.integers(layout.max_num_reqs)),
                overwrite=bool(rng.random() < 0.4),
                pick=int(rng.integers(2**16)),
            )
        )
