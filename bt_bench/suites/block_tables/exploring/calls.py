"""What a scenario of block tables consists of. No torch here: scenarios are made without it."""

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
    """What a caller holds block ids in."""

    LIST = "list"
    TUPLE = "tuple"
    ARRAY = "numpy array"
    ARRAY_32 = "numpy array of int32"
    STRIDED = "strided numpy array"
    C_ARRAY = "array of int32"


class Parts(StrEnum):
    """Which custom outputs a call gets."""

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
    """Stages writes of a table.

    Args:
        table: which of the scenario's tables.
        writes: in order.
        many: by one call of `append_many`, where a variant has that.
        form: what holds the ids of a write and a group.
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
    """`apply_staged_writes`, perhaps several times; after the first there is nothing to do."""

    table: int
    times: int = 1

    def __str__(self) -> str:
        return "apply_staged_writes()" + (f", {self.times} times" if self.times > 1 else "")


@dataclass(frozen=True, eq=False)
class Batch:
    """The arguments of gather, slots and both; in tensors they may be longer than shown.

    Args:
        rows: `idx_mapping`.
        starts: `query_start_loc`, of R + 1 elements.
        more: elements behind those of `starts` and `computed`, which nobody may look at.
        positions: one per token, then spare ones.
        reqs: `num_reqs_padded`.
        tokens: `num_tokens_padded`.
        computed: `num_computed_tokens`; `None`: not passed.
        out: which set of custom outputs: 0, whose tables lie side by side, 1, whose slots have
            gaps, `MIXED`, the first table of 0 with all else of 1, `OWN_SIZE` for one that is made
            for the call and is as large as it has to be, or more of them; `None`: the persistent
            ones.
        parts: which of them are passed.
        pointers: whether `out_ptrs` is passed with it.
        int64: whether `idx_mapping` is int64.
        numpy_sizes: whether `reqs` and `tokens` come as integers of numpy.
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
        """Tell whether its slots are made for it, perhaps for more tokens than the layout has."""
        return are_own_slots(self.out, self.parts)


MIXED, OWN_SIZE = -1, 2


def are_own_slots(out: int | None, parts: Parts) -> bool:
    """Tell whether slots are made for a call, by its set of outputs and what it gets of it."""
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
        table: which table.
        method: its name.
        batch: the arguments.
        same_tensors: whether it gets the tensors of the last such call, with other contents.
        spoil: whether the inputs are overwritten after it, as an engine may.
        poison: what outputs are filled with before it; `None`: they stay as they are.
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
class Snapshot:
    """Takes a snapshot, and keeps it under a number."""

    table: int
    key: int

    def __str__(self) -> str:
        return f"snapshot() as s{self.key}"


@dataclass(frozen=True)
class Restore:
    """Puts back a snapshot of this or of other tables of the same layout."""

    table: int
    key: int

    def __str__(self) -> str:
        return f"restore(s{self.key})"


@dataclass(frozen=True)
class SetFlag:
    """Sets `redirect_writes_to_null_block`, `validate` or `num_dirty_rows`."""

    table: int
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Other:
    """A method without arguments that must change nothing that can be seen: one of `OTHERS`."""

    table: int
    method: str

    def __str__(self) -> str:
        return f"{self.method}()"


@dataclass(frozen=True)
class Replace:
    """Puts other tensors in place of all tables, and calls `init_block_table_layout_tensors`.

    Source tables keep their contents; the others hold `poison`.
    """

    table: int
    poison: int

    def __str__(self) -> str:
        return f"all tables replaced; {REPLACES}()"


@dataclass(frozen=True)
class Renew:
    """Drops the tables; the next call is one of new ones, which may lie where these were."""

    table: int

    def __str__(self) -> str:
        return "dropped, and made anew"


@dataclass(frozen=True)
class Refused:
    """A call that has to be refused with a `ValueError`, and to change nothing.

    Args:
        table: which table.
        what: a name from `refusals.REFUSALS`.
        batch: arguments that would be right but for `what`; `None` where there are none.
        method: what is called.
        group: for faults of one group.
        row: for faults of staging.
        overwrite: likewise.
        pick: chooses among several ways to be wrong.
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
    """`capture_step`, which runs the step, and keeps its handle under a number.

    Its tensors belong to it alone.
    """

    table: int
    key: int
    batch: Batch

    def __str__(self) -> str:
        return f"capture_step({self.batch}) as c{self.key}"


@dataclass(frozen=True, eq=False)
class Publish:
    """Stages and publishes for a captured step, several times; then replays it, or applies.

    What was published and never replayed has to be applied before what came later.

    Args:
        table: which table.
        key: of the captured step.
        rounds: the writes before each publication.
        replay: the contents of the step's tensors when it is replayed after the last of them;
            `None`: it is not replayed.
        restored: the snapshot that is put back in place of a replay, so that what was published
            must never be applied; `None`: none is.
        step: the batch of a plain step that is made in place of a replay; `None`: none is.
        meanwhile: what is published for other tables, and settled, after the last publication;
            `None`: nothing is.
        later: writes that are staged after that, before what comes then.
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
    | Snapshot
    | Restore
    | SetFlag
    | Other
    | Replace
    | Renew
    | Refused
    | Capture
    | Publish
)


def flat(calls: Sequence[Call]) -> Iterator[Call]:
    """All calls; what is published meanwhile comes just before the call that contains it."""
    for call in calls:
        if isinstance(call, Publish) and call.meanwhile is not None:
            yield call.meanwhile
        yield call


def each(call: Call, change: Callable[[Call], Call]) -> Call:
    """The call changed, and what is published meanwhile likewise."""
    if isinstance(call, Publish) and call.meanwhile is not None:
        call = replace(call, meanwhile=cast(Publish, change(call.meanwhile)))
    return change(call)


CAPTURED_STEPS = "captured_steps"
"""Stands among the features of a variant that has `capture_step`."""

STEPS_IN_FLIGHT = "steps_in_flight"
"""The same for tables that take an argument of that name."""

REPLACES = "init_block_table_layout_tensors"
OTHERS = ("warmup", REPLACES)
"""The same for methods that a variant may have, and that change nothing which can be seen."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Tables and calls.

    Args:
        theme: what it was made for.
        layouts: of the tables, which are made when first called.
        calls: in order.
        garbage: seed of what fresh memory and the tables hold beyond what is owned; `None`: what
            the variant leaves there.
        offset: elements before each input in its storage; the same number follow it.
        without: what an opponent leaves undefined, and its scenario has to do without.
        rows_before: rows without requests before all others, in tables on a GPU. Their results
            are those of tables without them, but what lies behind them is beyond 2**31 elements.
        kept: whether each input comes in one buffer, as an engine has it, which is refilled past
            torch and seen with any dtype and size.
        in_flight: the `steps_in_flight` that tables are made with; `None`: they get no such
            argument.
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
