"""Our tables as vLLM's runner calls them: three calls of a step become one launch.

Within `execute_model`, `apply_staged_writes` only notes that it is due. Within `prepare_attn`, the
gather waits for the slots, and then `prepare_step` does all three. Anything else that reads source
tables in between settles first: it has the apply, and a gather that waits, done. At the end of
either method nothing waits. Outside of them every call is done at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

import torch

from bt_kernels import native
from bt_kernels.engines.plugin.counting import COUNTS, count_in_c
from bt_kernels.engines.plugin.messages import describe, warn_once
from bt_kernels.engines.plugin.noting import BATCHES
from bt_kernels.engines.vllm import BlockTables, SourceTable

_Ids = Sequence[Sequence[int]]
_Gather = tuple[torch.Tensor, int, torch.Tensor | None]


class Waiting:
    """Operations that wait, or may; in C `launcher.Waiting`, which also has the calls of an engine.

    Attributes:
        in_step: whether an apply may wait.
        in_batch: whether a gather may.
        applies: whether an apply waits.
        gather: the arguments of a gather that waits.
        is_short: whether calls are made in C.
        noting: what notes them there, if they are recorded.
        has_applied: whether there was an apply in this step, where calls are measured.
        spent_ns: the time of the calls of this step, likewise.
    """

    in_step = in_batch = applies = is_short = has_applied = False
    spent_ns = 0
    gather: _Gather | None = None
    noting: object = None

    @property
    def waits(self) -> bool:
        """Return whether an apply or a gather waits."""
        return self.applies or self.gather is not None


class _Settling:
    """An attribute that settles the waiting work when it is read, since tables are read with it."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name, self._kept = name, f"_{name}_"

    def __get__(self, tables: Any, owner: type[Any]) -> Any:
        if tables is None:
            return self
        if tables.waits:
            tables.settle(self._name)
            if not isinstance(tables, DeferringTables):  # that failed
                return getattr(tables, self._name)
        return getattr(tables, self._kept)

    def __set__(self, tables: Any, value: Any) -> None:
        setattr(tables, self._kept, value)


class _SettlingTable(SourceTable):
    """A source table; reading `gpu` settles the waiting work, also for tables taken before."""

    def __init__(self, table: torch.Tensor, tables: DeferringTables) -> None:
        self._gpu, self._tables = table, ref(tables)

    def belong_to(self, tables: DeferringTables) -> None:
        """Settle these tables from now on."""
        self._tables = ref(tables)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(gpu={self._gpu!r})"

    @property
    def gpu(self) -> torch.Tensor:
        """The table, with all writes that were applied."""
        tables = self._tables()
        if tables is not None and _waits(tables):
            tables.settle("block_tables[g].gpu")
        return self._gpu

    @gpu.setter
    def gpu(self, table: torch.Tensor) -> None:
        self._gpu = table

    def apply_write(self) -> None:
        """Write all staged ids, of this group and the others."""
        tables: Any = self._tables()
        if tables is not None:
            # They may be vLLM's by now.
            getattr(tables, "apply_now", tables.apply_staged_writes)()


class DeferringTables(BlockTables):
    """`BlockTables` for vLLM's runner; see the module, and `BlockTables` for the arguments.

    After `take_over`, they use the tensors of an object of vLLM's class, which captured graphs and
    other parts of the engine may know by address. If an operation of ours fails, this object
    becomes one of vLLM's class, with all contents and staged writes, and does the operation anew.
    """

    _theirs: Any = None
    _inputs: Any = None
    """Prepares whole batches for the runner; see `preparing`."""

    block_tables: Any = _Settling()
    num_blocks: Any = _Settling()
    block_table_ptrs: Any = _Settling()
    input_block_tables: Any = _Settling()
    input_block_table_ptrs: Any = _Settling()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._waiting: Any = Waiting()
        super().__init__(*args, **kwargs)
        self.block_tables = [_SettlingTable(table.gpu, self) for table in self.block_tables]
        launcher = native.load("launcher")
        if launcher is not None:
            self._waiting = launcher.Waiting(self._variant, self._variant.append_block_ids, self)
            count_in_c(launcher)
        self.find_short_ways()

    def take_over(self, tables: Any, theirs: type[Any]) -> None:
        """Use the tensors of tables of vLLM's class, and keep these for the case of a failure.

        Source tables and numbers of blocks must have the same contents in both.
        """
        for own, table in zip(self.block_tables, tables.block_tables, strict=True):
            own.gpu = table.gpu
        self.input_block_tables = tables.input_block_tables
        self.slot_mappings = tables.slot_mappings
        super().init_block_table_layout_tensors()
        self.num_dirty_rows = dirty_rows(tables)
        self._theirs = tables, theirs

    @property
    def waits(self) -> bool:
        """Return whether an apply or a gather waits."""
        found: bool = self._waiting.waits
        return found

    @property
    def gather_waits(self) -> bool:
        """Return whether a gather waits."""
        return self._waiting.gather is not None

    def belong_to(self, tables: DeferringTables) -> None:
        """Settle for tables that have all attributes of these."""
        for table in tables.block_tables:
            table.belong_to(tables)
        if not isinstance(self._waiting, Waiting):
            self._waiting.belong_to(tables)

    def kernel_ids(self, new_block_ids: _Ids) -> _Ids:
        """Return the ids of kernels' blocks, which tables have: the same, but in older releases."""
        return new_block_ids

    def find_short_ways(self) -> None:
        """Have an engine's calls made in C if the object's class adds nothing to them but notes.

        To be called whenever it has become one of another class.
        """
        waiting = self._waiting
        if isinstance(waiting, Waiting):  # no compiler
            return
        kind: type[Any] = type(self)
        launcher = native.load("launcher")
        waiting.noting, waiting.times = None, False
        if "_bt_kernels_records" in vars(kind) and launcher is not None:
            notes, end_frame, fail = kind._bt_kernels_records
            frame = notes.frame
            waiting.noting = launcher.Noting(
                *(notes, frame, BATCHES, *frame.lists, end_frame, fail, notes.frame_steps)
            )
            kind = kind.__bases__[0]
        if "_bt_kernels_measures" in vars(kind):
            waiting.times = True
            kind = vars(kind)["_bt_kernels_measures"]
        is_short = all(getattr(kind, name) is method for name, method in _WRAPPED.items())
        waiting.is_short = is_short
        for name in _IN_C:
            if is_short:
                setattr(self, name, getattr(waiting, name))
            else:
                vars(self).pop(name, None)

    # Where apply and gather may wait

    def begin_step(self, *_: Any) -> None:
        """Let an apply wait from now on."""
        self._waiting.in_step = True

    def end_step(self) -> None:
        """Let no apply wait any more."""
        self._waiting.in_step = False
        if self.waits:
            self.settle("end of execute_model")

    def begin_batch(self, *_: Any) -> None:
        """Let a gather wait for the slots from now on."""
        self._waiting.in_batch = True

    def end_batch(self) -> None:
        """Let no gather wait any more."""
        self._waiting.in_batch = False
        if self.gather_waits:
            self.settle("end of prepare_attn")

    def settle(self, reader: str) -> None:
        """Do the waiting work for a reader; if that fails, let vLLM's class do it."""
        try:
            self._settle(reader)
        except Exception as error:
            self._fail(reader, error)

    def apply_now(self) -> None:
        """Apply all that is staged, without waiting."""
        self._call("apply_staged_writes", "apply_write")

    def give_back(self) -> None:
        """Become an object of vLLM's class, with the same contents, and do the waiting work."""
        assert self._theirs is not None
        tables, theirs = self._theirs
        waits, gather = self._waiting.applies, self._waiting.gather
        variant, dirty = self._variant, self.num_dirty_rows
        tables.num_blocks.np[:] = variant.num_blocks
        if hasattr(variant, "_staged"):
            for group, row, start, ids in variant._staged.intervals():
                tables.block_tables[group].stage_write(row, start, ids)
        tables._num_dirty_rows = dirty
        tables.redirect_writes_to_null_block = variant.redirect_writes_to_null_block
        # Captured graphs have the addresses of our descriptors.
        tables._bt_kernels_keeps = self.__dict__
        become(self, theirs, tables.__dict__)
        # By their class: a call that is recorded was noted before.
        if waits:
            theirs.apply_staged_writes(self)
        else:
            tables.num_blocks.gpu = variant.num_blocks_on_device  # without staged blocks
        if gather is not None:
            mapping, num_reqs_padded, computed = gather
            theirs.gather_block_tables(self, mapping, num_reqs_padded, *given(None, None, computed))

    # Called by the runner

    def append_block_ids(self, req_index: int, new_block_ids: _Ids, overwrite: bool) -> None:
        """Stage, after an apply that waits."""
        if not isinstance(self, DeferringTables):  # vLLM's by now, and called by a bound method
            self.append_block_ids(req_index, new_block_ids, overwrite)
            return
        try:
            if self.waits:
                self._settle("append_block_ids")
            self._variant.append_block_ids(req_index, new_block_ids, overwrite)
        except Exception as error:
            theirs = self._fail("append_block_ids", error)
            theirs.append_block_ids(self, req_index, new_block_ids, overwrite)

    def apply_staged_writes(self) -> None:
        """Write the staged ids into the source tables, within `execute_model` later."""
        if not isinstance(self, DeferringTables):
            self.apply_staged_writes()
            return
        COUNTS.steps += 1
        # After a gather that waits, it must not come first.
        if not self._waiting.in_step or self.waits:
            self._call("apply_staged_writes", "apply_staged_writes")
            return
        COUNTS.deferred += 1
        self._waiting.applies = True

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Copy source rows into batch order, within `prepare_attn` later."""
        if not isinstance(self, DeferringTables):
            options = given(out, out_ptrs, num_computed_tokens)
            return self.gather_block_tables(idx_mapping, num_reqs_padded, *options)
        waiting = self._waiting
        if waiting.in_batch and out is None and out_ptrs is None and waiting.gather is None:
            waiting.gather = idx_mapping, num_reqs_padded, num_computed_tokens
            variant: Any = self._variant
            views: tuple[torch.Tensor, ...] = variant._views_of_tables(num_reqs_padded)
            return views
        options = (out, out_ptrs, num_computed_tokens)
        found: tuple[torch.Tensor, ...] = self._call(
            *("gather_block_tables", "gather_block_tables"), idx_mapping, num_reqs_padded, *options
        )
        return found

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Turn positions into cache slots, together with the gather that waits for them."""
        tokens = (query_start_loc, positions, num_tokens_padded)
        if not isinstance(self, DeferringTables):
            found: torch.Tensor = self.compute_slot_mappings(idx_mapping, *tokens, *given(out))
            return found  # by a method that was taken before
        waiting = self._waiting
        gather = waiting.gather
        if gather is None or out is not None or gather[0] is not idx_mapping:
            done: torch.Tensor = self._call(
                "compute_slot_mappings", "compute_slot_mappings", idx_mapping, *tokens, out
            )
            return done
        # What was staged after an apply that is done already belongs to the next one.
        name = "prepare_step" if waiting.applies else "gather_and_compute_slot_mappings"
        mapped: torch.Tensor
        try:
            _, mapped = getattr(self._variant, name)(
                *(idx_mapping, query_start_loc, positions, gather[1], num_tokens_padded),
                num_computed_tokens=gather[2],
            )
        except Exception as error:
            theirs = self._fail(name, error)
            slots: torch.Tensor = theirs.compute_slot_mappings(self, idx_mapping, *tokens)
            return slots
        COUNTS.calls[name] += 1
        COUNTS.fused += waiting.applies
        waiting.gather, waiting.applies = None, False
        return mapped

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        """Zero input rows, after a gather that waits."""
        if not isinstance(self, DeferringTables):
            return self.get_dummy_block_tables(num_reqs)
        found: tuple[torch.Tensor, ...] = self._call(
            "get_dummy_block_tables", "get_dummy_block_tables", num_reqs
        )
        return found

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        """Fill all slots with PAD."""
        if not isinstance(self, DeferringTables):
            return self.get_dummy_slot_mappings(num_tokens)
        found: torch.Tensor = self._call(
            "get_dummy_slot_mappings", "get_dummy_slot_mappings", num_tokens
        )
        return found

    def init_block_table_layout_tensors(self) -> None:
        """Update the addresses after tables were replaced, here and in vLLM's object."""
        if isinstance(self, DeferringTables) and self.waits:
            self.settle("init_block_table_layout_tensors")
        if not isinstance(self, DeferringTables):
            self.init_block_table_layout_tensors()
            return
        if self._theirs is None:
            super().init_block_table_layout_tensors()
            return
        tables, theirs = self._theirs
        for own, table in zip(self.block_tables, tables.block_tables, strict=True):
            table.gpu = own.gpu
        tables.input_block_tables = self.input_block_tables
        tables.slot_mappings = self.slot_mappings
        try:
            super().init_block_table_layout_tensors()
        except Exception as error:  # such as a table of another shape, which vLLM's class takes
            self._fail("init_block_table_layout_tensors", error)
        theirs.init_block_table_layout_tensors(tables)

    # Not called by the runner, and missing in vLLM's class

    def append_many(self, *args: Any, **kwargs: Any) -> None:
        """Stage for many requests, as `BlockTables` does."""
        self._only_ours("append_many", args, kwargs)

    def gather_and_compute_slot_mappings(self, *args: Any, **kwargs: Any) -> Any:
        """Gather and compute slots in one launch, as `BlockTables` does."""
        return self._only_ours("gather_and_compute_slot_mappings", args, kwargs)

    def prepare_step(self, *args: Any, **kwargs: Any) -> Any:
        """Do a whole step in one launch, as `BlockTables` does."""
        return self._only_ours("prepare_step", args, kwargs)

    def capture_step(self, *args: Any, **kwargs: Any) -> Any:
        """Capture a whole step, as `BlockTables` does."""
        return self._only_ours("capture_step", args, kwargs)

    def _only_ours(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.waits:
            self._settle(name)
        return getattr(self._variant, name)(*args, **kwargs)

    def _call(self, name: str, reader: str, *args: Any) -> Any:
        """Settle, and call the variant; if either fails, call vLLM's class."""
        try:
            if self.waits:
                self._settle(reader)
            found = getattr(self._variant, name)(*args)
        except Exception as error:
            return getattr(self._fail(name, error), name)(self, *given(*args))
        COUNTS.calls[name] += 1
        return found

    def _settle(self, reader: str) -> None:
        """Do the waiting work; a part that fails still waits afterwards."""
        COUNTS.settled[reader] += 1
        waiting = self._waiting
        if waiting.applies:
            self._variant.apply_staged_writes()
            COUNTS.calls["apply_staged_writes"] += 1
            waiting.applies = False
        if waiting.gather is not None:
            mapping, num_reqs_padded, computed = waiting.gather
            self._variant.gather_block_tables(mapping, num_reqs_padded, None, None, computed)
            COUNTS.calls["gather_block_tables"] += 1
            waiting.gather = None

    def _fail(self, name: str, error: Exception) -> Any:
        """Go on as an object of vLLM's class, with a warning; return that class.

        Raises:
            Exception: `error`, where there are no tables of vLLM's class: in shadow mode.
        """
        if self._theirs is None:
            raise error
        COUNTS.failures += 1
        warn_once(
            f"{name} failed ({describe(error)}). The engine goes on with its own block tables"
        )
        theirs = self._theirs[1]
        self.give_back()
        return theirs


def become(tables: Any, kind: type[Any], state: dict[str, Any]) -> None:
    """Turn an object into another one in place, since the engine has references to it."""
    recorder = vars(tables).get("_recorder")
    if isinstance(tables, DeferringTables):
        waiting = tables._waiting
        waiting.is_short = False  # for methods that were taken before
        waiting.noting = None  # its notes go on in Python
    tables.__class__ = kind
    tables.__dict__ = state
    if isinstance(tables, DeferringTables):
        tables.find_short_ways()
    if recorder is not None:
        recorder.follow(tables)


def given(*options: Any) -> tuple[Any, ...]:
    """Return options without trailing `None`, since older releases have fewer of them."""
    while options and options[-1] is None:
        options = options[:-1]
    return options


def dirty_rows(tables: Any) -> int:
    """Return the rows that a gather of vLLM's clears; older releases clear none."""
    found: int = getattr(tables, "_num_dirty_rows", 0)
    return found


def _waits(tables: Any) -> bool:
    return getattr(tables, "waits", False)


_IN_C = (
    "append_block_ids",
    "apply_staged_writes",
    "gather_block_tables",
    "compute_slot_mappings",
)
_WRAPPED = {
    name: getattr(DeferringTables, name)
    for name in (*_IN_C, "begin_step", "end_step", "begin_batch", "end_batch", "settle")
}
"""Methods of `DeferringTables` that C makes, or that it calls only where something waits."""
