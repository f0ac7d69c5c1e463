"""The generator of scenarios: for each number a theme, its layouts, and legal calls on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bt_bench.protocol import Source
from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.batches import MANY, Batches, Model
from bt_bench.suites.block_tables.exploring.calls import (
    BOTH,
    CAPTURED_STEPS,
    GATHER,
    OTHERS,
    REPLACES,
    SLOTS,
    STEP,
    STEPS_IN_FLIGHT,
    Apply,
    Batch,
    Call,
    Capture,
    Dummies,
    Form,
    Ints,
    Other,
    Parts,
    Publish,
    Refused,
    Renew,
    Replace,
    Restore,
    Run,
    Scenario,
    SetFlag,
    Snapshot,
    Stage,
    Write,
)
from bt_bench.suites.block_tables.exploring.layouts import draw_layout
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS, plans_of
from bt_bench.suites.block_tables.exploring.themes import CAPTURE, FixedStep, ScenarioPlan
from bt_kernels.layout import TableLayout

MOST_CELLS, MOST_CELLS_DEEP = 400_000, 4_000_000
# Programs of launches; the interpreter takes some 0.5 to 1 ms for each.
MOST_PROGRAMS, MOST_PROGRAMS_DEEP = 400, 12_000


_WAYS: tuple[tuple[str, ...], ...] = (
    (STEP,),
    (STEP,),
    ("apply", BOTH),
    ("apply", GATHER, SLOTS),
    ("apply", SLOTS, GATHER),
    (GATHER, "apply"),
    ("apply", "apply", BOTH, BOTH),
    (SLOTS, STEP),
    ("apply",),
    # Staged writes wait until a step takes another way.
    (GATHER,),
    (BOTH,),
    (),
)
_CALLS: Final = (GATHER, SLOTS, BOTH, STEP)
_ENDS: Final = (
    *[("replay", False)] * 4,
    *[(end, more) for end in ("restore", "step", "none") for more in (False, True)],
)
"""Ends of a publication, each with whether more is staged before it; dealt as from a deck."""
MOST_OWNING, MOST_RECORDS = 32, 120  # rows, and rows of all groups, that are filled at first


def make(source: Source) -> Scenario:
    """Make the scenario of a source."""
    if source.number < SCENARIOS:  # the same with `--deep`
        source = replace(source, deep=False)
    rng = source.rng()
    plans = plans_of(source, rng)
    most_cells = MOST_CELLS_DEEP if source.deep else MOST_CELLS
    layouts: list[TableLayout] = []
    calls: list[Call] = []
    snapshots: dict[int, tuple[TableLayout, Ints]] = {}
    for plan in plans:
        drawn = [
            draw_layout(rng, shape, source.features, most_cells=most_cells) for shape in plan.shapes
        ]
        drawn += [drawn[0]] * (plan.switch > 0)
        maker = _Maker(rng, source, plan, tuple(drawn), len(layouts), calls, snapshots)
        maker.draw()
        layouts += drawn
    before = plans[0].rows_before
    counted = STEPS_IN_FLIGHT in source.features and rng.random() < 0.25
    return Scenario(
        "; ".join(dict.fromkeys(plan.theme for plan in plans)),
        tuple(layouts),
        tuple(calls),
        garbage=int(rng.integers(2**31)) if rng.random() < 0.8 and not before else None,
        offset=int(rng.choice([0, 1, 3, 8])),
        rows_before=before,
        in_flight=int(rng.choice([1, 2, 5])) if counted else None,
        kept=bool(rng.random() < max(plan.kept for plan in plans)),
    )


@dataclass
class _Maker:
    """The maker of the calls of one plan."""

    rng: np.random.Generator
    source: Source
    plan: ScenarioPlan
    layouts: tuple[TableLayout, ...]
    first: int  # index of its first table in the scenario
    calls: list[Call]
    snapshots: dict[int, tuple[TableLayout, Ints]]
    deck: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[str, bool]] = field(default_factory=list)
    batches: Batches = field(init=False)
    models: list[Model] = field(default_factory=list)
    is_last: bool = False  # whether no calls follow this step's
    alike: bool = False  # whether writes have the same ids in all groups
    odd_ids: float = 0.0  # share of lists that have an id at the end of its range

    def draw(self) -> None:
        """Draw all calls."""
        rng = self.rng
        self.batches = Batches(rng, self.source, self.plan)
        given = list(self.plan.given)
        self.models = models = [
            Model(layout, np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64))
            for layout in self.layouts
        ]
        at = 0
        self.odd_ids = 0.6 if rng.random() < 0.3 else 0.05
        poison = rng.random() < self.plan.poison
        if self.plan.prompts:
            for place, model in enumerate(models):
                self._prompts(self.first + place, model)
        steps = self._steps()
        for step in range(steps):
            self.is_last = step == steps - 1
            if rng.random() < self.plan.switch:
                at = int(rng.integers(len(models)))
                last = models[at].before()
                if last is not None and rng.random() < self.plan.repeat:
                    self._again(self.first + at, models[at], last, None)
            self.batches.given = given.pop(0) if given else FixedStep()
            self._step(self.first + at, models[at], poison)

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
        given = self.batches.given
        if given.quiet:
            calls += [Apply(at), Apply(at, given.quiet)]
            model.pending.clear()
        early = rng.random() < 0.4  # with nothing staged, mostly
        if early:
            self._refusals(at, model)
        if rng.random() < self.plan.redirect:
            calls.append(SetFlag(at, "redirect_writes_to_null_block", bool(rng.random() < 0.5)))
        if rng.random() < self.plan.validate:
            model.validates = bool(rng.random() < 0.5)
            calls.append(SetFlag(at, "validate", model.validates))
        if given.writes is not None or rng.random() < self.plan.stage:
            self._stage(at, model)
        if given.state:
            self._keep(at, model, put_back=given.state == "restore")
        elif rng.random() < self.plan.state:
            self._state(at, model)
        plain = self.plan.decoding and given.writes is not None
        captures = CAPTURED_STEPS in self.source.features and not plain
        if captures and rng.random() < self.plan.captured:
            self._captured(at, model)
        if not early:
            self._refusals(at, model)
        large = model.layout.max_num_reqs > MANY
        fill = int(rng.integers(-(2**31), -1)) if poison or large else None
        batch: Batch | None = None
        way = self._way()
        for place, name in enumerate(way):
            if name == "apply":
                calls.append(Apply(at))
                model.pending.clear()
                continue
            if name == CAPTURE:
                self._capture(at, model, is_last=self.is_last and place == len(way) - 1)
                continue
            # The calls of one step usually have one batch, but need not.
            fresh = batch is None or (rng.random() < 0.2 and not large)
            same = fresh and model.last is not None and rng.random() < 0.3 and given.reqs is None
            last = model.before()
            changed = fresh and rng.random() < self.plan.again
            if changed and last is not None and given.reqs is None:
                batch, same = self.batches.changed(model, last), bool(rng.random() < 0.6)
            elif fresh or batch is None:
                batch = self.batches.batch(model, model.last if same else None, wide=True)
            batch = self._for(model, name, batch)
            spoil = bool(rng.random() < 0.3)
            calls.append(Run(at, name, batch, same_tensors=same, spoil=spoil, poison=fill))
            model.last, model.method = batch, name
        self._repeat(at, model)

    def _for(self, model: Model, method: str, batch: Batch) -> Batch:
        """Return the batch as a method may get it; a step also applies what is staged."""
        if method != STEP:
            return batch
        batch = self.batches.apart(model, batch)
        model.pending.clear()
        return batch

    def _dummies(self, at: int, model: Model) -> None:
        rng, layout = self.rng, model.layout
        reqs = int(rng.integers(layout.max_num_reqs + 1))
        tokens = int(rng.integers(layout.max_num_batched_tokens + 1))
        self.calls.append(Dummies(at, reqs, tokens, int(rng.integers(-(2**31), -1))))

    def _dirty(self, at: int, model: Model) -> None:
        dirty = int(self.rng.integers(model.layout.max_num_reqs + 1))
        self.calls.append(SetFlag(at, "num_dirty_rows", dirty))

    def _repeat(self, at: int, model: Model) -> None:
        """Repeat the last call with the very same arguments, mostly after something else."""
        rng = self.rng
        batch = model.before()
        if batch is None or rng.random() >= self.plan.repeat:
            return
        way = rng.random()
        if way < 0.25:
            self._dummies(at, model)
        elif way < 0.45:
            self._keep(at, model, put_back=bool(self._fitting(model)))
        elif way < 0.6 and REPLACES in self.source.features:
            self.calls.append(Replace(at, int(rng.integers(-(2**31), -1))))
        elif way < 0.7:
            self._dirty(at, model)
        elif way < 0.9:
            self.calls.append(Stage(at, tuple(self._writes(model))))
            if rng.random() < 0.5:
                self.calls.append(Apply(at))
                model.pending.clear()
        fill = int(rng.integers(-(2**31), -1)) if rng.random() < 0.5 else None
        self._again(at, model, batch, fill)

    def _way(self) -> tuple[str, ...]:
        """Choose the calls of a step."""
        rng = self.rng
        if self.batches.given.ways:
            captures = CAPTURED_STEPS in self.source.features
            return tuple(
                STEP if name == CAPTURE and not captures else name
                for name in self.batches.given.ways
            )
        if self.plan.ways:
            return self.plan.ways[int(rng.integers(len(self.plan.ways)))]
        return _WAYS[int(rng.integers(len(_WAYS)))]

    def _refusals(self, at: int, model: Model) -> None:
        if self.rng.random() < self.plan.refused:
            for _ in range(self.plan.refusals):
                self._refused(at, model)

    def _stage(self, at: int, model: Model) -> None:
        rng = self.rng
        form = Form.LIST if rng.random() < 0.7 else list(Form)[int(rng.integers(len(Form)))]
        self.alike = self.batches.given.writes is None and bool(rng.random() < 0.2)
        writes = tuple(self._writes(model))
        self.calls.append(Stage(at, writes, bool(rng.random() < 0.5), form, self.alike))
        self.alike = False

    def _writes(self, model: Model) -> list[Write]:
        rng = self.rng
        given = self.batches.given
        count = given.writes if given.writes is not None else self.plan.writes
        if count is None:
            count = int(rng.integers(1, 5))
        # Sometimes two rows share all writes of a step, and so get several.
        several = max(1, count if rng.random() < 0.7 or given.writes is not None else 2)
        # Distinct rows where there are enough: each is a record to apply.
        used = self.plan.rows_of(model.layout.max_num_reqs)
        rows = rng.permutation(used)[:several]
        if rng.random() < 0.3 and given.writes is None:
            rows = used[rng.integers(len(used), size=several)]
        if self.plan.busy is not None and given.writes is None:
            rows = rng.integers(self.plan.busy, size=several)
        # As in a step that only decodes: at most one block for each row.
        most = 1 if self.plan.prompts and given.ids is None and rng.random() < 0.4 else None
        return [self._write(model, int(rows[index % len(rows)]), most) for index in range(count)]

    def _prompts(self, at: int, model: Model) -> None:
        """Fill rows, as prompts do; of many rows, the first, the last, and some in between."""
        layout, rng = model.layout, self.rng
        rows = self.plan.rows_of(layout.max_num_reqs).tolist()
        most = 8
        if len(rows) > MANY:
            most = max(8, min(MOST_OWNING, MOST_RECORDS // layout.num_groups))
            some = rng.choice(len(rows), size=min(most, len(rows)) - 4, replace=False)
            chosen = {0, 1, len(rows) // 2, len(rows) - 1, *map(int, some)}
            writes = [self._prompt(layout, row, few=True) for row in sorted(chosen)]
        else:
            writes = [self._prompt(layout, row, few=False) for row in rows[:most]]
        for write in writes:
            counts = [len(ids) for ids in write.block_ids]
            model.owned[:, write.row] = counts
            model.pending[write.row] = max(counts)
        self.calls.append(Stage(at, tuple(writes)))

    def _prompt(self, layout: TableLayout, row: int, *, few: bool) -> Write:
        """Draw a write that fills a row."""
        rng, column = self.rng, self.plan.column
        # Some rows are almost full, or about to reach the plan's column.
        room = 9 if rng.random() < 0.3 else None
        counts = [
            int(rng.integers(max(0, width - (room or width)), width + 1)) for width in layout.widths
        ]
        if self.plan.short or (few and rng.random() < 0.8):
            counts = [int(rng.integers(1, min(width, 5) + 1)) for width in layout.widths]
        if not isinstance(column, int | None) or (column is not None and rng.random() < 0.8):
            wanted = column if isinstance(column, int) else column[row % len(column)]
            reached = wanted + int(rng.integers(-3, 2))
            counts = [min(max(0, reached), width) for width in layout.widths]
        lists = tuple(tuple(rng.integers(2**31, size=count).tolist()) for count in counts)
        return Write(row, lists, overwrite=True)

    def _write(self, model: Model, row: int, each: int | None) -> Write:
        """Draw a write to a row; with `each`, append that many blocks per group, if they fit."""
        rng, given = self.rng, self.batches.given
        wanted = given.ids if given.ids is not None else self.plan.ids
        room = np.array(model.layout.widths) - model.owned[:, row]
        overwrite = bool((each is None and rng.random() < self.plan.overwrite) or not room.any())
        if given.ids is not None and room.max() < given.ids:
            overwrite = True
        if given.overwrite is not None and room.any():
            overwrite = given.overwrite
        lists = []
        for group, width in enumerate(model.layout.widths):
            most = width if overwrite else int(room[group])
            if each is not None:
                count = min(most, each)
            elif wanted is not None:
                count = min(most, wanted)
            elif rng.random() < self.plan.full:
                count = most
            elif self.plan.prompts and rng.random() < 0.6:
                count = min(most, 1)
            else:
                count = int(rng.integers(min(most, 4) + 1))
            if given.writes is not None or self.plan.busy is not None:
                # No list is empty: each is a record to apply.
                count = max(count, min(most, 1))
            ids = rng.integers(2**31, size=count)
            if count and rng.random() < self.odd_ids:
                ids[int(rng.integers(count))] = int(rng.choice([2**31 - 1, 0, -1, -(2**31)]))
            lists.append(tuple(ids.tolist()))
            before = 0 if overwrite else model.owned[group, row]
            model.owned[group, row] = before + count
        if self.alike:
            shortest = min(lists, key=len)
            for group, each_ids in enumerate(lists):
                model.owned[group, row] -= len(each_ids) - len(shortest)
            lists = [shortest] * len(lists)
        kept = 0 if overwrite else model.pending.get(row, 0)
        model.pending[row] = kept + max(map(len, lists))
        return Write(row, tuple(lists), overwrite)

    def _renew(self, at: int, model: Model) -> None:
        """Replace the tables by new ones, and repeat the last call on them."""
        batch = model.before()
        self.calls.append(Renew(at))
        model.renew()
        if batch is not None:
            self.calls.append(Stage(at, tuple(self._writes(model))))
            self.calls.append(Run(at, model.method, self._for(model, model.method, batch)))

    def _state(self, at: int, model: Model) -> None:
        """Add a snapshot, a restore, dummies, or another change of state."""
        rng = self.rng
        which = rng.random()
        fitting = self._fitting(model)
        others = [name for name in OTHERS if name in self.source.features]
        if rng.random() < 0.25 and fitting:  # take one, restore another, then restore the first
            newest = len(self.snapshots)
            for put_back in (False, True):
                self._keep(at, model, put_back=put_back)
            if rng.random() < 0.5:  # or a second one, taken right after the restore
                newest += 1
                self._keep(at, model, put_back=False)
                if batch := model.before():
                    self._again(at, model, batch, None)
            self._put_back(at, model, newest)
        elif rng.random() < 0.1:  # take one and restore it at once, whatever is staged
            newest = len(self.snapshots)
            self._keep(at, model, put_back=False)
            self._put_back(at, model, newest)
        elif rng.random() < 0.15:
            self._renew(at, model)
        elif rng.random() < 0.1:
            self._dirty(at, model)
        elif others and rng.random() < 0.25:
            self._other(at, model, others[int(rng.integers(len(others)))])
        elif which < 0.7:
            self._keep(at, model, put_back=which >= 0.35 and bool(fitting))
        else:
            self._dummies(at, model)

    def _keep(self, at: int, model: Model, *, put_back: bool) -> None:
        """Add a snapshot, or a restore of one that fits."""
        if not put_back:
            key = len(self.snapshots)
            self.calls.append(Snapshot(at, key))
            self.snapshots[key] = model.layout, model.owned.copy()
            return
        self._put_back(at, model, self._chosen(model, self._fitting(model)))

    def _chosen(self, model: Model, fitting: list[int]) -> int:
        """Choose a snapshot to restore: mostly the one that was restored last."""
        again = model.restored if self.rng.random() < 0.6 else None
        return again if again is not None else fitting[int(self.rng.integers(len(fitting)))]

    def _put_back(self, at: int, model: Model, key: int) -> None:
        self.calls.append(Restore(at, key))
        model.restored = key
        model.pending.clear()
        model.owned[:] = self.snapshots[key][1]

    def _other(self, at: int, model: Model, method: str) -> None:
        """Add a method that changes nothing; often replace the tables, and repeat the last call."""
        rng = self.rng
        if method != REPLACES or rng.random() < 0.3:
            self.calls.append(Other(at, method))
            return
        poison = int(rng.integers(-(2**31), -1))
        self.calls.append(Replace(at, poison))
        batch = model.before()
        if batch is not None:
            self._again(at, model, batch, None)

    def _again(self, at: int, model: Model, batch: Batch, fill: int | None) -> None:
        """Repeat the last call."""
        batch = self._for(model, model.method, batch)
        self.calls.append(Run(at, model.method, batch, same_tensors=True, poison=fill))

    def _fitting(self, model: Model) -> list[int]:
        """Return the snapshots from whose state a table can be restored."""
        return [key for key, (of, _) in self.snapshots.items() if of == model.layout]

    def _captured(self, at: int, model: Model) -> None:
        """Add a capture, or a publication for one of the captured steps."""
        rng = self.rng
        if not model.captured or rng.random() < 0.25:
            self._capture(at, model)
            return
        if self.plan.decoding:
            for _ in range(int(rng.integers(1, 6))):
                self.calls.append(self._decoded(model, at))
            if rng.random() < 0.4:  # a prompt comes before the replay
                self.calls.append(self._decoded(model, at, replayed=False))
            self._settle(at, model)
            return
        made = self._publication(model, at)
        for other, place in self._others(model):
            if other.captured and rng.random() < 0.7:  # settled before the first publication is
                meanwhile = self._publication(other, place)
                self.calls.append(replace(made, meanwhile=meanwhile))
                self._after(other, meanwhile)
                break
        else:
            self.calls.append(made)
        self._after(model, made)

    def _others(self, model: Model) -> list[tuple[Model, int]]:
        """Return the other tables of the plan, in random order, with their places."""
        found = [(one, self.first + at) for at, one in enumerate(self.models) if one is not model]
        return [found[index] for index in self.rng.permutation(len(found))]

    def _publication(self, model: Model, at: int) -> Publish:
        """Draw a publication for one of the captured steps of tables, and its end."""
        rng = self.rng
        rounds = tuple(self._published(model) for _ in range(int(rng.choice([1, 1, 2, 3]))))
        key = int(rng.integers(1, len(model.captured) + 1))
        replay: Batch | None = None
        restored, step = None, None
        fitting = self._fitting(model)
        if not self.ends:
            self.ends = [_ENDS[index] for index in rng.permutation(len(_ENDS))]
        end, writes_more = self.ends.pop()
        later = tuple(self._writes(model)) if writes_more else ()
        if end == "replay":
            replay = self.batches.replayed(model, model.captured[key - 1])
            replay = self.batches.apart(model, replay)
        elif end == "restore" and fitting:
            restored = self._chosen(model, fitting)
            model.owned[:] = self.snapshots[restored][1]
        elif end != "none":
            step = self.batches.apart(model, self.batches.whole(model))
        model.pending.clear()
        return Publish(at, key, rounds, replay, restored, step, later=later)

    def _decoded(self, model: Model, at: int, *, replayed: bool = True) -> Publish:
        """Draw a publication that gives up to two rows a block, and its replay.

        Args:
            model: the model of the tables.
            at: their number.
            replayed: whether it is replayed; otherwise, a plain step takes the replay's place.
        """
        rng = self.rng
        used = self.plan.rows_of(model.layout.max_num_reqs)
        rows = rng.permutation(used)[: int(rng.choice([0, 0, 1, 1, 2]))]
        writes = tuple(self._write(model, int(row), 1) for row in rows)
        key = int(rng.integers(1, len(model.captured) + 1))
        draw = self.batches
        drawn = draw.replayed(model, model.captured[key - 1]) if replayed else draw.whole(model)
        batch = self._for(model, STEP, drawn)
        made = Publish(at, key, (writes,))
        return replace(made, replay=batch) if replayed else replace(made, step=batch)

    def _after(self, model: Model, made: Publish) -> None:
        """Add a gather that zeroes the rows that a replay has filled, or one of all rows."""
        if made.replay is not None and self.rng.random() < 0.5:
            batch = replace(self.batches.batch(model, None), out=None)
            self.calls.append(Run(made.table, GATHER, batch))
            model.last = None
        else:
            self._settle(made.table, model)

    def _published(self, model: Model) -> tuple[Write, ...]:
        """Draw the writes before a publication: often one block of a row, which fits any buffer."""
        given = self.batches.given
        way = self.rng.random()
        if way < 0.35:
            return ()
        if way < 0.6:
            self.batches.given = FixedStep(writes=1, ids=1)
        writes = tuple(self._writes(model))
        self.batches.given = given
        return writes

    def _capture(self, at: int, model: Model, *, is_last: bool = False) -> None:
        batch = self._for(model, STEP, replace(self.batches.batch(model, None), out=None))
        model.captured.append(batch)
        self.calls.append(Capture(at, len(model.captured), batch))
        if model.restored is not None and self.rng.random() < 0.4:  # undo the step
            self._put_back(at, model, model.restored)
        if not is_last:
            self._settle(at, model)

    def _settle(self, at: int, model: Model) -> None:
        """Gather all rows: until then, the number of dirty rows is up to the variant."""
        self.calls.append(Run(at, GATHER, self.batches.whole(model)))
        model.last = None

    def _right_one(self, at: int, model: Model, method: str, batch: Batch, *, custom: bool) -> None:
        """Add the valid form of a call, just before the call that must be refused."""
        batch = self._for(model, method, batch)
        if custom or batch.out is not None:
            batch = replace(batch, out=0, parts=Parts.BOTH)
        self.calls.append(Run(at, method, batch))
        model.last, model.method = batch, method

    def _refused(self, at: int, model: Model) -> None:
        """Add a call that must be refused; every kind comes once before any comes again."""
        rng, layout = self.rng, model.layout
        features = self.source.features
        if not self.deck:
            every = refusals.every(features)
            self.deck = [every[index] for index in rng.permutation(len(every))]
        what, method = self.deck.pop()
        if what in refusals.VALIDATED and not model.validates:
            if self.plan.refused < 1.0:
                return
            model.validates = True
            self.calls.append(SetFlag(at, "validate", model.validates))
        batch: Batch | None = None
        if what in refusals.ARGUMENTS | refusals.OUTPUTS | refusals.CONTENTS:
            batch = model.last if rng.random() < 0.5 else None  # which was valid a moment ago
            if batch is None or batch.tokens > layout.max_num_batched_tokens:
                batch = self.batches.batch(model, None)
            if method == refusals.CAPTURE:
                batch = replace(batch, out=None)
            if not len(batch.rows) and what in refusals.CONTENTS | {refusals.REQS_BELOW: ()}:
                return
            if len(batch.rows) < 2 and what == refusals.STARTS_FALL:
                return
            if not batch.starts[-1] and what == refusals.STARTS_PADDED:
                return
        beyond = batch is not None and (batch.rows >= layout.max_num_reqs).any()
        right = method in _CALLS and not (beyond and model.validates)
        share = 0.5 if layout.num_groups * layout.max_num_reqs <= 20 else 0.1  # by what it costs
        if batch is not None and right and rng.random() < share:
            batch = replace(batch, more=0)  # as in the wrong call, which has no surplus elements
            self._right_one(at, model, method, batch, custom=what in refusals.OUTPUTS)
        if what == refusals.OUT_TAKEN and REPLACES in features and rng.random() < 0.7:
            self.calls.append(Replace(at, int(rng.integers(-(2**31), -1))))
        group, row = int(rng.integers(layout.num_groups)), int(rng.integers(layout.max_num_reqs))
        overwrite, pick = bool(rng.random() < 0.4), int(rng.integers(2**16))
        self.calls.append(Refused(at, what, batch, method, group, row, overwrite, pick))
