"""Random sequences of calls on block tables, on random layouts; hypothesis draws and shrinks them.

Nothing in an action depends on the state that those before it led to, so that hypothesis can
leave any of them out. `playing` plays sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hypothesis import strategies as st

from bt_bench.base.names import Operation
from bt_bench.suites.block_tables import operations as ops
from bt_kernels.interface import COMPILED, DIRECT, JIT
from bt_kernels.layout import TableLayout

CALLED = (ops.GATHER, ops.SLOTS, ops.GATHER_SLOTS, ops.STEP)

# Whether a caller has buffers of its own, and how it gives their addresses.
OUTPUTS = ("persistent", "persistent", "own", "own_int64_addresses", "own_uint64_addresses")
DUMMY = -1
EIGHTHS = 8


@dataclass(frozen=True)
class Append:
    """Stages block ids: per group so many eighths of the room that the row has, rounded up.

    With `redirected` the tables redirect writes to the null block meanwhile.
    """

    row: int
    eighths: tuple[int, ...]
    overwrite: bool
    redirected: bool


@dataclass(frozen=True)
class Grow:
    """A block more for some rows in some groups, where there is room: what decoding appends.

    With `together` by one call of `append_many`, where the tables have that.
    """

    rows: tuple[int, ...]  # one may occur twice
    groups: tuple[bool, ...]
    together: bool


@dataclass(frozen=True)
class Finish:
    """A request ends: its row owns no blocks."""

    row: int


@dataclass(frozen=True)
class RefusedAppend:
    """An append of one block to each group, spoilt in one group, or by its row."""

    REASONS: ClassVar = ("overflow", "id_too_large", "id_too_small", "no_such_row", "too_few_lists")

    why: str  # one of `REASONS`
    row: int
    group: int
    overwrite: bool


@dataclass(frozen=True)
class Request:
    """One request of a batch: the tokens `[first, first + tokens)` of the sequence in a row."""

    row: int
    first: int
    tokens: int


@dataclass(frozen=True)
class Batch:
    """What one call is given.

    Args:
        requests: in batch order; tokens past the room of a step are left out.
        spare_rows: rows that the caller reads beyond those of the batch, as far as there are any.
        spare_tokens: slots likewise.
        spare_elements: of garbage behind `query_start_loc` and `positions`.
        computed: tokens that row 0 has computed; `None`: not passed.
        outputs: one of `OUTPUTS`.
    """

    requests: tuple[Request, ...]
    spare_rows: int
    spare_tokens: int
    spare_elements: int
    computed: int | None
    outputs: str


@dataclass(frozen=True)
class Call:
    """A call that is given a batch; `operation` is one of `CALLED`."""

    operation: Operation
    batch: Batch


@dataclass(frozen=True)
class Apply:
    """Writes what has been staged."""


@dataclass(frozen=True)
class DummyTables:
    """Zeroes input rows."""

    num_reqs: int


@dataclass(frozen=True)
class DummySlots:
    """Fills the slots with PAD."""

    num_tokens: int


@dataclass(frozen=True)
class Snapshot:
    """Keeps a copy of the state."""


@dataclass(frozen=True)
class Restore:
    """Puts the last copy back, or the state before the first action."""


Action = (
    Append
    | Grow
    | Finish
    | RefusedAppend
    | Call
    | Apply
    | DummyTables
    | DummySlots
    | Snapshot
    | Restore
)


@dataclass(frozen=True)
class CallSequence:
    """Calls, and the tables that they are made on.

    Args:
        layout: sizes and options.
        dtype: of `idx_mapping`.
        seed: of block ids, garbage and poison.
        validate: whether the tables look at what lies in device memory.
        launch_path: how they launch, where they can.
        native: whether they use helpers in C, where there are any.
        setup: an append for each row before the first action, applied.
        actions: the calls.
    """

    layout: TableLayout
    dtype: Literal["int32", "int64"]
    seed: int
    validate: bool
    launch_path: str
    native: bool
    setup: tuple[Append, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Sizes:
    """How large sequences are; each field of numbers has those to choose from, likely ones often.

    Args:
        actions: at most, and mostly nearly so many.
        groups: G.
        widths: columns of a row.
        max_num_reqs: rows of a table.
        max_num_batched_tokens: slots of a group.
    """

    actions: int
    groups: tuple[int, ...]
    widths: tuple[int, ...]
    max_num_reqs: tuple[int, ...]
    max_num_batched_tokens: tuple[int, ...]


@st.composite
def sequences(draw: st.DrawFn, sizes: Sizes) -> CallSequence:
    """Sequences of some sizes."""
    layout = draw(layouts(sizes))
    action = _actions(layout)
    one = action.map(lambda drawn: [drawn])
    some = st.integers(0, 5).flatmap(lambda kind: one if kind else _decoding(layout))
    actions: list[Action] = draw(some)
    # Both are hardly ever 0, so that sequences are long, but can be when one is shrunk.
    while len(actions) < sizes.actions and (draw(st.integers(0, 60)) or draw(st.integers(0, 60))):
        actions += draw(some)
    return CallSequence(
        layout,
        draw(st.sampled_from(["int64", "int32"])),
        draw(st.integers(0, 2**32)),
        draw(st.booleans()),
        draw(st.sampled_from([JIT, COMPILED, DIRECT])),
        draw(st.booleans()),
        draw(st.tuples(*[_appends(layout, st.just(row)) for row in range(layout.max_num_reqs)])),
        tuple(actions),
    )


@st.composite
def layouts(draw: st.DrawFn, sizes: Sizes) -> TableLayout:
    """Layouts of some sizes; half of them have no option."""
    groups = draw(st.sampled_from(sizes.groups))

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return draw(st.tuples(*[values] * groups))

    block_sizes = each(st.sampled_from([4, 1, 2, 3, 16, 544, 262_144]))
    plain = {
        "block_sizes": block_sizes,
        "widths": each(st.sampled_from(sizes.widths)),
        "max_num_reqs": draw(st.sampled_from(sizes.max_num_reqs)),
        "max_num_batched_tokens": draw(st.sampled_from(sizes.max_num_batched_tokens)),
    }
    if draw(st.booleans()):
        return TableLayout(**plain)
    ranks = draw(st.sampled_from([1, 2, 1, 3, 1]))
    interleave = draw(st.sampled_from([1, 2, 4]))
    return TableLayout(
        **plain,
        slot_mapping_enabled=each(st.sampled_from([True, True, True, False])),
        sliding_window_reach=each(st.sampled_from([0, 1, 3, 7])),
        cp_size=ranks,
        cp_rank=draw(st.integers(0, ranks - 1)),
        cp_interleave=interleave,
        # The interleave must divide the block size of a group that is sharded.
        dcp_sharded=tuple(
            shared and size % interleave == 0
            for shared, size in zip(
                each(st.sampled_from([True, True, False])), block_sizes, strict=True
            )
        ),
    )


def _appends(layout: TableLayout, rows: st.SearchStrategy[int]) -> st.SearchStrategy[Append]:
    # A whole row often, since its end is where things go wrong.
    eighths = st.sampled_from([0, 1, 4, 6, EIGHTHS])
    return st.builds(
        Append,
        rows,
        st.tuples(*[eighths] * layout.num_groups),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
    )


def _grows(layout: TableLayout) -> st.SearchStrategy[Grow]:
    # All rows often, which may be more than a launch carries writes for.
    every = tuple(range(layout.max_num_reqs))
    rows = st.lists(_rows(layout), min_size=1, max_size=3).map(tuple)
    return st.builds(
        Grow,
        rows | rows | st.just(every),
        st.tuples(*[st.sampled_from([True, True, True, False])] * layout.num_groups),
        st.booleans(),
    )


@st.composite
def _decoding(draw: st.DrawFn, layout: TableLayout) -> list[Action]:
    """What an engine does all the time: a few blocks, or many at times, and a plain step."""
    batch = replace(draw(_batches(layout)), computed=None, outputs="persistent")
    rows = range(layout.max_num_reqs) if draw(st.sampled_from([False, False, True])) else ()
    appends = [draw(_appends(layout, st.just(row))) for row in rows]
    return [*appends, draw(_grows(layout)), Call(ops.STEP, batch)]


def _actions(layout: TableLayout) -> st.SearchStrategy[Action]:
    """Half of the actions are calls, and a quarter appends."""
    kinds: dict[str, st.SearchStrategy[Action]] = {
        "apply": st.just(Apply()),
        "append": _appends(layout, _rows(layout)),
        "grow": _grows(layout),
        "call": st.builds(Call, st.sampled_from(CALLED), _batches(layout)),
        "finish": st.builds(Finish, _rows(layout)),
        "refused": st.builds(
            RefusedAppend,
            st.sampled_from(RefusedAppend.REASONS),
            _rows(layout),
            st.integers(0, layout.num_groups - 1),
            st.booleans(),
        ),
        "dummy_tables": st.builds(DummyTables, st.integers(0, layout.max_num_reqs)),
        "dummy_slots": st.builds(DummySlots, st.integers(0, layout.max_num_batched_tokens)),
        "snapshot": st.just(Snapshot()),
        "restore": st.just(Restore()),
    }
    # `one_of` would take a strategy that is listed twice for one.
    weighted = [*["restore", "refused"] * 2, *["append"] * 5, *["call"] * 11, *kinds]
    return st.sampled_from(weighted).flatmap(kinds.__getitem__)


@st.composite
def _batches(draw: st.DrawFn, layout: TableLayout) -> Batch:
    tokens = layout.max_num_batched_tokens
    request = st.builds(
        Request,
        # One request of four is a dummy.
        st.integers(0, 3).flatmap(lambda one: _rows(layout) if one else st.just(DUMMY)),
        _positions(layout),
        st.integers(0, 1 + 2 * tokens // layout.max_num_reqs),
    )
    num_reqs = draw(st.sampled_from([*range(layout.max_num_reqs + 1), layout.max_num_reqs]))
    return Batch(
        draw(st.tuples(*[request] * num_reqs)),
        draw(st.sampled_from([0, 1, layout.max_num_reqs])),
        draw(st.sampled_from([0, 1, tokens])),
        draw(st.sampled_from([0, 3])),
        draw(st.none() | st.integers(0, 24) | _positions(layout)),
        draw(st.sampled_from(OUTPUTS)),
    )


def _positions(layout: TableLayout) -> st.SearchStrategy[int]:
    """First positions of a request: around the ends of blocks and rows, and anywhere."""
    ends = {
        end
        for width, tokens in zip(layout.widths, layout.tokens_per_block, strict=True)
        for end in (tokens, width * tokens)
    }
    near = sorted({end + offset for end in ends for offset in (-3, -1, 0)})
    return st.integers(-2, 40) | st.sampled_from(near) | st.integers(0, max(ends))


def _rows(layout: TableLayout) -> st.SearchStrategy[int]:
    return st.integers(0, layout.max_num_reqs - 1)
