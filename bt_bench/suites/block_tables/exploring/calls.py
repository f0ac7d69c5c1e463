"""The parts of a scenario of block tables. No torch here: scenarios are made without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import cast

import numpy as np
import numpy.typing as npt

from bt_kernels.layout import TableLayout

Ints = npt.NDArray[np.int64]


class Form(StrEnum):
    """The kinds of container that a caller may hold block ids in."""

    LIST = "list"
    TUPLE = "tuple"
    ARRAY = "numpy array"
    ARRAY_32 = "numpy array of int32"
    STRIDED = "strided numpy array"
    C_ARRAY = "array of int32"


class Parts(StrEnum):
    """The custom outputs that a call gets."""

    BOTH = "out and slots_out"
    TABLES = "out"
    SLOTS = "slots_out"


@dataclass(frozen=True)
class Write:
    """One row's new block ids, one list per group."""

    row: int
    block_ids: tuple[tuple[int, ...], ...]
    overwrite: bool

    def __str__(self) -> str:
        lists = ", ".join(_short(ids) for ids in self.block_ids)
        return f"{self.row}, [{lists}], overwrite={self.overwrite}"


@dataclass(frozen=True)
class Stage:
    """Writes to stage in a table.

    Args:
        table: index of the table in the scenario.
        writes: the writes, in order.
        many: whether to stage them by one call of `append_many`, where a variant has it.
        form: container of the ids of each write and group.
        shared: whether equal ids come in one and the same object.
    """

    table: int
    writes: tuple[Write, ...]
    many: bool = False
    form: Form = Form.LIST
    shared: bool = False

    def __str__(self) -> str:
        form = "" if self.form is Form.LIST else f", ids in a {self.form}"
        form += ", equal ids in one object" if self.shared else ""
        if self.many:
            return f"append_many({'; '.join(map(str, self.writes))}){form}"
        return "; ".join(f"append_block_ids({write})" for write in self.writes) + form


@dataclass(frozen=True)
class Apply:
    """`apply_staged_writes`, perhaps several times; only the first has anything to do."""

    table: int
    times: int = 1

    def __str__(self) -> str:
        return "apply_staged_writes()" + (f", {self.times} times" if self.times > 1 else "")


@dataclass(frozen=True, eq=False)
class Batch:
    """The arguments of gather, slots and both; with `more`, some tensors are longer than these.

    Args:
        rows: `idx_mapping`.
        starts: `query_start_loc`, of R + 1 elements.
        more: further elements at the end of `starts` and `computed`, which nobody may read.
        positions: one per token, then spare ones.
        reqs: `num_reqs_padded`.
        tokens: `num_tokens_padded`.
        computed: `num_computed_tokens`; `None`: not passed.
        out: number of a set of custom outputs. The tables of set 0 lie side by side, and the slots
            of set 1 have gaps. `MIXED` is the first table of set 0 with the rest of set 1.
            `OWN_SIZE` is made for the call, just as large as needed. Larger numbers are further
            sets. `None`: the persistent buffers.
        parts: the parts of the set that are passed.
        pointers: whether `out_ptrs` is passed with `out`.
        int64: whether `idx_mapping` is int64.
        numpy_sizes: whether `reqs` and `tokens` are integers of numpy.
    """

    rows: Ints
    starts: Ints
    positions: Ints
    reqs: int
    tokens: int
    computed: Ints | None = None
    out: int | None = None
    parts: Parts = Parts.BOTH
    pointers: bool = True
    int64: bool = False
    more: int = 0
    numpy_sizes: bool = False

    def __str__(self) -> str:
        parts = [
            f"rows={_short(self.rows)}",
            f"query_start_loc={_short(self.starts)}",
            f"positions={_short(self.positions)}",
            f"num_reqs_padded={self.reqs}",
            f"num_tokens_padded={self.tokens}",
        ]
        if self.computed is not None:
            parts.append(f"num_computed_tokens={_short(self.computed)}")
        if self.out is not None:
            parts.append(
                f"{self.parts} of set {self.out}, {'with' if self.pointers else 'without'} out_ptrs"
            )
        if self.int64:
            parts.append("int64 rows")
        if self.numpy_sizes:
            parts.append("sizes of numpy")
        return ", ".join(parts)

    @property
    def has_own_slots(self) -> bool:
        """Return whether its slots are made for it, perhaps for more tokens than the layout has."""
        return are_own_slots(self.out, self.parts)


MIXED, OWN_SIZE = -1, 2


def are_own_slots(out: int | None, parts: Parts) -> bool:
    """Return whether slots are made for a call, given its set of outputs and its parts."""
    return out == OWN_SIZE and parts is not Parts.TABLES


GATHER, SLOTS, BOTH, STEP = (
    "gather_block_tables",
    "compute_slot_mappings",
    "gather_and_compute_slot_mappings",
    "prepare_step",
)


@dataclass(frozen=True, eq=False)
class Run:
    """A call of `method` on a batch.

    Args:
        table: index of the table.
        method: name of the method.
        batch: the arguments.
        same_tensors: whether it reuses the tensors of the last such call, with other contents.
        spoil: whether the inputs are overwritten after it, as an engine may.
        poison: value to fill outputs with before it; `None`: they stay as they are.
    """

    table: int
    method: str
    batch: Batch
    same_tensors: bool = False
    spoil: bool = False
    poison: int | None = None

    def __str__(self) -> str:
        return f"{self.method}({self.batch})"


@dataclass(frozen=True)
class Dummies:
    """`get_dummy_block_tables(reqs)` and `get_dummy_slot_mappings(tokens)`."""

    table: int
    reqs: int
    tokens: int
    poison: int | None = None

    def __str__(self) -> str:
        return f"get_dummy_block_tables({self.reqs}), get_dummy_slot_mappings({self.tokens})"


@dataclass(frozen=True)
class Empty:
    """One of the two calls of `Dummies`, on its own.

    Args:
        table: index of the table.
        method: name of the method.
        size: its argument.
    """

    table: int
    method: str
    size: int

    def __str__(self) -> str:
        return f"{self.method}({self.size})"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot, kept under a number."""

    table: int
    key: int

    def __str__(self) -> str:
        return f"snapshot() as s{self.key}"


@dataclass(frozen=True)
class Restore:
    """A restore from a snapshot of these or of other tables of the same layout."""

    table: int
    key: int

    def __str__(self) -> str:
        return f"restore(s{self.key})"


@dataclass(frozen=True, eq=False)
class Load:
    """Contents for the source tables, in place of any others; nothing stays staged.

    Args:
        table: index of the table.
        block_tables: per group, int32 `[rows, columns]`, the upper left part; all else becomes 0.
        num_blocks: `[G, max_num_reqs]`, blocks of each row.
        inputs: likewise, the contents of the input tables; empty: all 0.
        num_dirty_rows: input rows that count as filled.
    """

    table: int
    block_tables: tuple[npt.NDArray[np.int32], ...]
    num_blocks: Ints
    inputs: tuple[npt.NDArray[np.int32], ...] = ()
    num_dirty_rows: int = 0

    def __str__(self) -> str:
        return f"source tables with {int(self.num_blocks.sum())} blocks"


@dataclass(frozen=True)
class Mark:
    """The beginning of a numbered step of a recording. It is no call, and nothing is seen of it."""

    table: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step}"


@dataclass(frozen=True)
class SetFlag:
    """An assignment to `redirect_writes_to_null_block`, `validate` or `num_dirty_rows`."""

    table: int
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Other:
    """A call of one of `OTHERS`: without arguments, it must change nothing observable."""

    table: int
    method: str

    def __str__(self) -> str:
        return f"{self.method}()"


@dataclass(frozen=True)
class Replace:
    """New tensors in place of all tables, then a call of `init_block_table_layout_tensors`.

    Source tables keep their contents; the others hold `poison`.
    """

    table: int
    poison: int

    def __str__(self) -> str:
        return f"all tables replaced; {REPLACES}()"


@dataclass(frozen=True)
class Renew:
    """The end of some tables; the next call gets new ones, perhaps at the same addresses."""

    table: int

    def __str__(self) -> str:
        return "dropped, and made anew"


@dataclass(frozen=True)
class Refused:
    """A call that must be refused with a `ValueError`, and change nothing.

    Args:
        table: index of the table.
        what: name of the fault, from `refusals`.
        batch: arguments that are valid except for the fault; `None`: the method takes no batch.
        method: name of the method.
        group: group of a fault in a single group.
        row: row of a fault in staging.
        overwrite: flag of a fault in staging.
        pick: chooses among several forms of the fault.
    """

    table: int
    what: str
    batch: Batch | None
    method: str
    group: int = 0
    row: int = 0
    overwrite: bool = True
    pick: int = 0

    def __str__(self) -> str:
        return f"{self.method}, which has to be refused: {self.what}"


@dataclass(frozen=True, eq=False)
class Capture:
    """A call of `capture_step`, which runs the step; its handle is kept under a number.

    No other call gets its tensors.
    """

    table: int
    key: int
    batch: Batch

    def __str__(self) -> str:
        return f"capture_step({self.batch}) as c{self.key}"


@dataclass(frozen=True, eq=False)
class Publish:
    """Publications for a captured step, each after staged writes; then its replay, or an apply.

    Writes that were published and never replayed must be applied before any later ones.

    Args:
        table: index of the table.
        key: number of the captured step.
        rounds: the writes before each publication.
        replay: contents of the step's tensors for a replay after the last publication; `None`: it
            is not replayed.
        restored: number of a snapshot to restore in place of a replay; the published writes must
            then never be applied. `None`: no restore.
        step: batch of a plain step to make in place of a replay; `None`: no such step.
        meanwhile: publications for other tables, made and settled after the last one here; `None`:
            there are none.
        later: writes staged after these, before the replay or its substitute.
    """

    table: int
    key: int
    rounds: tuple[tuple[Write, ...], ...]
    replay: Batch | None = None
    restored: int | None = None
    step: Batch | None = None
    meanwhile: Publish | None = None
    later: tuple[Write, ...] = ()

    def __str__(self) -> str:
        rounds = [
            f"{'; '.join(f'append_block_ids({write})' for write in writes)}; c{self.key}.publish()"
            for writes in self.rounds
        ]
        then = "apply_staged_writes()" if self.replay is None else f"a replay on {self.replay}"
        if self.restored is not None:
            then = f"restore(s{self.restored})"
        if self.step is not None:
            then = f"prepare_step({self.step}); apply_staged_writes()"
        later = "".join(f"append_block_ids({write}); " for write in self.later)
        if self.meanwhile is not None:
            later = f"(meanwhile tables {self.meanwhile.table}: {self.meanwhile}); {later}"
        return f"{'; '.join(rounds)}; {later}{then}"


Call = (
    Stage
    | Apply
    | Run
    | Dummies
    | Empty
    | Snapshot
    | Restore
    | Load
    | Mark
    | SetFlag
    | Other
    | Replace
    | Renew
    | Refused
    | Capture
    | Publish
)


def flat(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield all calls; a publication made meanwhile comes just before the call that contains it."""
    for call in calls:
        if isinstance(call, Publish) and call.meanwhile is not None:
            yield call.meanwhile
        yield call


def each(call: Call, change: Callable[[Call], Call]) -> Call:
    """Apply a change to a call, and to the publication made meanwhile if it has one."""
    if isinstance(call, Publish) and call.meanwhile is not None:
        call = replace(call, meanwhile=cast(Publish, change(call.meanwhile)))
    return change(call)


CAPTURED_STEPS = "captured_steps"
"""The feature of a variant that has `capture_step`."""

STEPS_IN_FLIGHT = "steps_in_flight"
"""The feature of tables that take an argument of that name."""

REPLACES = "init_block_table_layout_tensors"
OTHERS = ("warmup", REPLACES)
"""The features, and optional methods, of these names: they change nothing observable."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Tables and calls.

    Args:
        theme: name of the theme that it was made for.
        layouts: layouts of the tables, which are made when first called.
        calls: the calls, in order.
        garbage: seed of the contents of fresh memory, and of table entries that no row owns;
            `None`: whatever the variant leaves there.
        offset: elements before each input in its storage; the same number follow it.
        without: differences of an opponent that the scenario avoids.
        rows_before: rows without requests in front of all others, in tables on a GPU. They change
            no result, but place the rows behind them beyond 2**31 elements.
        kept: whether each input comes in one buffer, as in an engine; it is refilled past torch,
            and viewed with any dtype and size.
        in_flight: the `steps_in_flight` to make tables with; `None`: the argument is not passed.
    """

    theme: str
    layouts: tuple[TableLayout, ...]
    calls: tuple[Call, ...]
    garbage: int | None = None
    offset: int = 0
    without: frozenset[str] = frozenset()
    rows_before: int = 0
    in_flight: int | None = None
    kept: bool = False


def _short(values: Sequence[int] | Ints, most: int = 8) -> str:
    shown = [str(int(value)) for value in values[:most]]
    if len(values) > most:
        shown.append(f"… {len(values)} in all")
    return f"[{', '.join(shown)}]"
