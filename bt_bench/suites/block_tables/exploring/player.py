"""The player of scenarios: it makes every call, and yields the observable state after it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Guard, MismatchError, Player, Seen
from bt_bench.suites.block_tables.checking.buffers import fill_tables, poison
from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.arguments import (
    Arguments,
    Outputs,
    Vectors,
    lists_of,
    shifted,
)
from bt_bench.suites.block_tables.exploring.buffers import Buffers, Facts, rows_before
from bt_bench.suites.block_tables.exploring.calls import (
    MIXED,
    OWN_SIZE,
    REPLACES,
    SLOTS,
    STEP,
    Apply,
    Batch,
    Call,
    Capture,
    Dummies,
    Empty,
    Form,
    Load,
    Mark,
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
from bt_bench.suites.block_tables.exploring.wrong_calls import wrong_call
from bt_bench.suites.block_tables.inputs import append_many_of
from bt_bench.worker.checking.interpreted_graph import InterpretedGraph
from bt_bench.worker.measuring.device_kernels import launch_spin
from bt_kernels.layout import TableLayout

FILLED = 5
SPOILED = -7  # no block id of a scenario
_M_PERTURB = -6  # of mallopt, in glibc
# Device work ahead of each call: longer than most calls take the host, also a slow one.
_AHEAD_NS = 500_000


class TablePlayer(Player):
    """See the base class."""

    def play(
        self, variant: type[Any], scenario: Any, device: torch.device, guard: Guard | None
    ) -> Iterator[Seen]:
        """See the base class: after each call, all buffers of all tables, and the call's result."""
        if guard is not None:
            _fill_fresh_memory(scenario.garbage, device)
        self.not_tried: list[str] = []
        make_table = partial(_Table, variant, scenario, device, guard, self.not_tried.append)
        try:
            yield from _play(scenario, make_table)
        finally:
            if scenario.rows_before and device.type == "cuda":
                gc.collect()
                torch.cuda.empty_cache()  # of gigabytes, which another process needs next


def _play(scenario: Any, make_table: Callable[[TableLayout], _Table]) -> Iterator[Seen]:
    tables: dict[int, _Table] = {}
    snapshots: dict[int, Any] = {}
    for call in scenario.calls:
        if isinstance(call, Mark):
            continue
        if call.table not in tables:
            tables[call.table] = make_table(scenario.layouts[call.table])
        table = tables[call.table]
        facts: Facts = {}
        if isinstance(call, Renew):
            del tables[call.table], table
            yield facts
            continue
        if isinstance(call, Snapshot):
            with table.guarded():
                snapshots[call.key] = table.tables.snapshot()
        elif isinstance(call, Restore):
            table.restore(snapshots[call.key])
        elif isinstance(call, Publish):
            facts |= _publish(call, tables, snapshots)
        else:
            facts |= table.make(call)
        for one, each in tables.items():
            prefix = f"tables {one}: " if len(scenario.layouts) > 1 else ""
            for name, buffer in each.buffers().items():
                facts[prefix + name] = buffer
        yield facts


def _publish(call: Publish, tables: Mapping[int, _Table], snapshots: Mapping[int, Any]) -> Facts:
    """Make a publication, another meanwhile, and their ends; return their facts."""
    table = tables[call.table]
    table.publish(call)
    facts: Facts = {}
    if call.meanwhile is not None:
        told = _publish(call.meanwhile, tables, snapshots)
        facts |= {f"meanwhile: {name}": fact for name, fact in told.items()}
    facts |= table.settle(call)
    if call.restored is not None:
        table.restore(snapshots[call.restored])
    return facts


def _fill_fresh_memory(garbage: int | None, device: torch.device) -> None:
    """Fill unwritten memory with garbage, in place of the zeros of fresh pages."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_PERTURB, 0 if garbage is None else garbage % 255 + 1)
    if device.type == "cuda" and garbage is not None:
        del_me = [
            torch.full((size,), garbage, dtype=torch.int32, device=device)
            for size in (2**8, 2**12, 2**16, 2**20, 2**23)
        ]
        del del_me  # torch hands these blocks to whoever asks next


def _amid(table: torch.Tensor) -> torch.Tensor:
    """Return an equally shaped table in a longer tensor, between a row before and one behind."""
    rows, width = table.shape
    return table.new_full((rows + 2, width), FILLED)[1:-1]


def _keep_busy() -> None:
    """Enqueue work that keeps the device busy for a while."""
    launch_spin(_AHEAD_NS)


@dataclass(frozen=True)
class _CapturedStep:
    """A captured step, the inputs that it reads, and its graph if it can be replayed."""

    step: Any
    vectors: Vectors
    graph: Any


class _Table:
    """One set of tables of a scenario, and the state that its caller keeps."""

    def __init__(
        self,
        variant: type[Any],
        scenario: Scenario,
        device: torch.device,
        guard: Guard | None,
        leave_out: Callable[[str], None],
        layout: TableLayout,
    ) -> None:
        self._layout = layout
        self._device = device
        self._guard = guard
        self._is_reference = guard is None
        self._before = 0 if guard is None else rows_before(scenario, layout, device, leave_out)
        larger = replace(layout, max_num_reqs=layout.max_num_reqs + self._before)
        options = {}
        if guard is not None and scenario.in_flight is not None:
            options["steps_in_flight"] = scenario.in_flight
        self.tables: Any = variant(larger, device, **options)
        self._vectors = Vectors(device, scenario.offset, kept=scenario.kept)
        groups = layout.num_groups
        self._pointers = torch.zeros(groups, dtype=torch.uint64, device=device)
        self._kept = scenario.kept
        self._outputs: dict[int, Outputs] = {}
        self._out_list: list[torch.Tensor] = []
        self._containers: dict[tuple[Any, ...], Any] = {}
        self._rows: list[int] = []
        self._overwrites: list[bool] = []
        self._offset = scenario.offset
        self._captured: dict[int, _CapturedStep] = {}
        self._captured_reqs: dict[int, int] = {}
        self._published_rows = 0  # dirty rows once a replay has filled them
        self._unsettled = False  # whether the number of dirty rows is up to the variant
        if scenario.garbage is not None:  # as in an engine after some hours
            fill_tables(self.tables, [scenario.garbage + 31 * group for group in range(groups)])
        self._buffers = Buffers(self.tables, layout, self._before)

    @contextmanager
    def guarded(self, *others: object) -> Iterator[None]:
        """Guard calls of the variant; on a GPU, they come behind other work in the stream.

        The next work in the stream must find their results, without waiting for anything else.
        Copies are therefore enqueued as soon as the calls have returned, and then compared.
        """
        if self._guard is None:
            yield
            return
        if self._device.type == "cuda":
            _keep_busy()
        with self._guard(self.tables, *others):
            yield
        if self._device.type == "cuda":
            self._buffers.hold(self._outputs)
            torch.cuda.synchronize(self._device)

    def buffers(self) -> Facts:
        """Return all buffers as arrays, including the caller's."""
        found = self._buffers.seen(self._outputs)
        if not self._unsettled:
            found["num_dirty_rows"] = np.array(self.tables.num_dirty_rows, dtype=np.int64)
        return found

    def restore(self, state: Any) -> None:
        """Restore a snapshot."""
        with self.guarded(state):
            self.tables.restore(state)

    def make(self, call: Call) -> Facts:
        """Make a call; return its facts."""
        match call:
            case Stage():
                return self._stage(call)
            case Apply():
                with self.guarded():
                    for _ in range(call.times):
                        self.tables.apply_staged_writes()
            case Other():
                if not self._is_reference:
                    with self.guarded():
                        getattr(self.tables, call.method)()
            case Replace():
                self._replace(call)
            case Run():
                return self._run(call)
            case Dummies():
                return self._dummies(call)
            case Empty():
                with self.guarded():
                    getattr(self.tables, call.method)(call.size)
            case Load():
                self._load(call)
            case SetFlag():
                setattr(self.tables, call.name, call.value)
            case Refused():
                return self._refuse(call)
            case Capture():
                return self._capture(call)
        return {}

    def _stage(self, call: Stage) -> Facts:
        # In the containers of earlier calls, like a scheduler that reuses its own.
        lists = [
            [self._known(place, *of_group) for of_group in enumerate(lists_of(write, call.form))]
            for place, write in enumerate(call.writes)
        ]
        row: Any = np.int64 if call.form in (Form.ARRAY, Form.STRIDED) else int
        if call.shared:
            known: dict[tuple[int, ...], Any] = {}
            lists = [[known.setdefault(tuple(ids), ids) for ids in each] for each in lists]
        with self.guarded():
            if call.many and append_many_of(self.tables) is not None:
                self._rows[:] = [row(self._before + write.row) for write in call.writes]
                self._overwrites[:] = [write.overwrite for write in call.writes]
                self.tables.append_many(self._rows, lists, self._overwrites)
            else:
                for write, ids in zip(call.writes, lists, strict=True):
                    at = row(self._before + write.row)
                    self.tables.append_block_ids(at, ids, write.overwrite)
        kept = all(
            [list(map(int, each)) for each in ids] == lists_of(write, Form.LIST)
            for ids, write in zip(lists, call.writes, strict=True)
        )
        self._rows[:] = [SPOILED] * len(self._rows)
        self._overwrites[:] = [not one for one in self._overwrites]
        for each in chain.from_iterable(lists):
            if not isinstance(each, tuple):
                for at in range(len(each)):
                    each[at] = SPOILED
        return {"lists of block ids": "kept" if kept else "changed"}

    def _known(self, place: int, group: int, ids: Any) -> Any:
        """Return the container of a write's place in its call and of a group, with these ids.

        An array is reused if there was one of its length.
        """
        if isinstance(ids, tuple):
            return ids
        key = place, group, type(ids), getattr(ids, "dtype", None), getattr(ids, "strides", None)
        length = 0 if isinstance(ids, list) else len(ids)
        known = self._containers.setdefault((*key, length), ids)
        known[:] = ids
        return known

    def _run(self, call: Run) -> Facts:
        outputs = self._outputs_of(call.batch)
        if call.poison is not None:
            self._poison(call.poison)
            if outputs is not None:
                outputs.fill(call.poison)
        batch = shifted(call.batch, self._before)
        arguments = Arguments.of(
            batch, self._vectors, outputs, self._out_list, same=call.same_tensors
        )
        with self.guarded(arguments):
            if self._guard is not None and self._device.type == "cuda":
                arguments.arrive_late(_keep_busy)
            result = arguments.call(self.tables, call.method)
        facts: Facts = {
            "arguments": arguments.changed() or "kept",
            "result": self._buffers.told(call.method, result, outputs),
        }
        if call.spoil:
            arguments.spoil()
        if call.method != SLOTS and arguments.out is None:
            self._unsettled = False
        return facts

    def _capture(self, call: Capture) -> Facts:
        self._unsettled = True
        self._captured_reqs[call.key] = call.batch.reqs
        vectors = Vectors(self._device, self._offset)
        arguments = Arguments.of(call.batch, vectors, None, [], same=False)
        if self._is_reference:
            arguments.call(self.tables, STEP)
        else:
            with self.guarded(arguments):
                # Once before, as its docstring asks: loads kernels, applies what is staged.
                arguments.call(self.tables, "capture_step")
                step, graph = self._captured_call(arguments)
            self._captured[call.key] = _CapturedStep(step, vectors, graph)
        return {"arguments": arguments.changed() or "kept"}

    def _captured_call(self, arguments: Arguments) -> tuple[Any, Any]:
        """Call `capture_step` under capture; return the captured step and the graph.

        Without a GPU, there is a graph only if it consists of kernels alone.
        """
        if self._device.type != "cuda":
            interpreted = InterpretedGraph()
            with interpreted.capture():
                step = arguments.call(self.tables, "capture_step")
            return step, interpreted if interpreted.is_whole else None
        torch.cuda.synchronize(self._device)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph):
                step = arguments.call(self.tables, "capture_step")
        finally:  # torch leaves its own stream current if a capture fails
            torch.cuda.set_stream(stream)
        return step, graph

    def publish(self, call: Publish) -> None:
        """Make the publications of a call, which are then pending."""
        self._unsettled = True
        padded = self._captured_reqs[call.key]
        for writes in call.rounds:
            self._append(writes)
            if self._is_reference:
                # Published writes are applied before later ones, replayed or not; and rows that
                # a replay does not fill are zeroed.
                self.tables.apply_staged_writes()
                for table in self.tables.input_block_tables:
                    table[padded : self.tables.num_dirty_rows] = 0
                self.tables.num_dirty_rows = padded
            else:
                captured = self._captured[call.key]
                with self.guarded(captured.vectors, captured.step):
                    captured.step.publish()

    def settle(self, call: Publish) -> Facts:
        """Replay the published step of a call, or make its substitute; return the facts."""
        if call.replay is not None:
            self._published_rows = self.tables.num_dirty_rows
            return self._replay(call.key, call.replay)
        self._append(call.later)
        if call.step is not None:
            facts = self._run(Run(call.table, STEP, call.step))
            # Until this apply, tables must expect a late replay, which fills rows.
            with self.guarded():
                self.tables.apply_staged_writes()
            return facts
        if call.restored is None:
            with self.guarded():
                self.tables.apply_staged_writes()
        return {}

    def _append(self, writes: Sequence[Write]) -> None:
        for write in writes:
            with self.guarded():
                ids = lists_of(write, Form.LIST)
                self.tables.append_block_ids(write.row, ids, write.overwrite)

    def _replay(self, key: int, batch: Batch) -> Facts:
        """Replay a captured step on other contents of its tensors.

        Without a graph, make the step itself instead.
        """
        captured = self._captured.get(key)
        vectors = self._vectors if captured is None else captured.vectors
        arguments = Arguments.of(batch, vectors, None, [], same=True)
        with self.guarded(arguments):
            if captured is not None and captured.graph is not None:
                captured.graph.replay()
            else:
                self.tables.apply_staged_writes()
                arguments.call(self.tables, STEP)
                # The host does not see the rows that a replay fills, but counted them before.
                self.tables.num_dirty_rows = self._published_rows
        return {"arguments": arguments.changed() or "kept"}

    def _load(self, call: Load) -> None:
        state = self.tables.snapshot()
        tables = [*state.block_tables, *state.input_block_tables]
        for table, contents in zip_longest(tables, (*call.block_tables, *call.inputs)):
            table.zero_()
            if contents is not None:
                rows, columns = contents.shape
                table[:rows, :columns] = torch.from_numpy(contents).to(table)
        state.num_blocks[:] = call.num_blocks
        state.num_dirty_rows = call.num_dirty_rows
        self.restore(state)

    def _replace(self, call: Replace) -> None:
        """Put other tensors in place of all tables, like an engine that moves its caches."""
        tables = self.tables
        self._buffers.filled_with = call.poison
        with self.guarded():
            for at, table in enumerate(tables.block_tables):
                tables.block_tables[at] = _amid(table)
                tables.block_tables[at].copy_(table)
            for at, table in enumerate(tables.input_block_tables):
                tables.input_block_tables[at] = _amid(table).fill_(call.poison)
            tables.slot_mappings = torch.full_like(tables.slot_mappings, call.poison)
            if not self._is_reference:
                getattr(tables, REPLACES)()
        self._buffers.find_anew()

    def _outputs_of(self, batch: Batch) -> Outputs | None:
        key, layout = batch.out, self._layout
        if key is None:
            return None
        if key == OWN_SIZE:
            made = Outputs(layout, batch.reqs, batch.tokens, self._device, gaps=False)
            self._outputs[key] = made
        elif key == MIXED and key not in self._outputs:
            for out in (0, 1):
                self._outputs_of(replace(batch, out=out))
            self._outputs[key] = self._outputs[1].with_first_of(self._outputs[0])
        elif key not in self._outputs:
            rows, tokens = layout.max_num_reqs + 2, layout.max_num_batched_tokens + 3
            self._outputs[key] = Outputs(
                *(layout, rows, tokens, self._device), gaps=key == 1, side_by_side=key == 0
            )
        if self._kept:
            self._outputs[key].point(self._pointers)
        return self._outputs[key]

    def _poison(self, value: int) -> None:
        self._buffers.filled_with = value
        poison(self.tables, value)

    def _dummies(self, call: Dummies) -> Facts:
        if call.poison is not None:
            self._poison(call.poison)
        with self.guarded():
            views = self.tables.get_dummy_block_tables(call.reqs)
            slots = self.tables.get_dummy_slot_mappings(call.tokens)
        told = f"{self._buffers.views(views, None)}; {self._buffers.view(slots, None)}"
        empty = all(not view.any() for view in views) and bool((slots == -1).all())
        self._buffers.release()
        for view in views:
            view.fill_(FILLED)  # as a run without requests may: these rows are dirty now
        return {"result": told, "contents": "empty" if empty else "not empty"}

    def _refuse(self, call: Refused) -> Facts:
        """Return the outcome of a wrong call; the reference checks little, and is not asked."""
        outputs = None
        if call.batch is not None:
            custom = call.what in refusals.OUTPUTS or call.batch.out is not None
            outputs = self._outputs_of(replace(call.batch, out=0)) if custom else None
        lacks_it = call.method == refusals.MANY and append_many_of(self.tables) is None
        if self._is_reference or lacks_it:
            return {"outcome": "refused"}
        arguments = None
        if call.batch is not None:
            batch = replace(call.batch, parts=Parts.BOTH) if outputs is not None else call.batch
            arguments = Arguments.of(batch, self._vectors, outputs, self._out_list, same=False)
        attempt = wrong_call(call, self.tables, self._layout, arguments)
        try:
            with self.guarded():
                attempt()
        except ValueError:
            return {"outcome": "refused"}
        except MismatchError:
            raise
        except Exception as error:
            return {"outcome": f"{type(error).__name__} in place of ValueError: {error}"}
        return {"outcome": f"accepted: {call.what}"}
