"""A step that is checked, packed and launched in one call in C: as by Python, or left to Python."""

from __future__ import annotations

import gc
import mmap
import random
import weakref
from dataclasses import replace
from itertools import product
from types import BuiltinMethodType, SimpleNamespace

import pytest
import torch
from support.variants import classes

from bt_kernels import native, one_launch
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import tables as one_launch_tables
from bt_kernels.one_launch.native_step import make_step

CPU_IN_DLPACK = 1
NO_RESERVE = 0x4000  # of Linux; `mmap` has a name for it only in Python 3.13
LAYOUT = TableLayout(
    (4, 3), (5, 3000), max_num_reqs=700, max_num_batched_tokens=9000, sliding_window_reach=(9, 0)
)
KINDS = range(len(one_launch.KINDS))
PARTS = (one_launch.GATHER, one_launch.SLOTS, one_launch.GATHER_SLOTS)


def places_of(kinds):
    return list(product(range(len(one_launch.SHAPES)), kinds, (False, True), (False, True)))


PLACES = places_of(KINDS)
OPERATIONS = (
    "apply_staged_writes",
    "gather_block_tables",
    "compute_slot_mappings",
    "gather_and_compute_slot_mappings",
    "prepare_step",
)

pytestmark = pytest.mark.skipif(
    native.load("launcher") is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="no compiler, or this torch does not show tensors to C",
)


class Noted:
    """Tables that launch nothing; `quick` and Python code both say what they would launch."""

    def __init__(self, monkeypatch, layout=LAYOUT):
        self.tables = tables = classes(["one_launch"])["one_launch"](layout, "cpu")
        self.by_python = []
        self.by_c = []
        self.carrying = carrying = tables._carrying
        self.memory = tables._ring

        def launch(binary, grid, arguments):
            *arguments, staging = [a if isinstance(a, int) else a.data_ptr() for a in arguments]
            place = one_launch.SHAPES.index(binary.shape), *binary[1:]
            self.by_python.append((place, grid, *arguments, *self.carried(staging, binary.kind)))

        monkeypatch.setattr(carrying, "_launch", launch)
        launcher = native.load("launcher")
        self.quick = make_step(tables, carrying, launcher, CPU_IN_DLPACK, None)
        for place in (*PLACES, *places_of(PARTS)):
            self.quick.add(*place, self.launcher(place))
        self.alone = CAlone(self)
        self.calls = launcher.Calls(self.alone)

    def carried(self, staging, kind):
        """What a kernel would find: words, and pinned memory if it reads that."""
        words = self.carrying.words[slice(*self.carrying._words_of(kind))]
        memory = self.memory.current
        if one_launch.MANY_IDS < kind <= one_launch.IN_MEMORY:
            assert staging == memory.data_ptr()
            return tuple(words), memory.tolist()
        assert staging == self.tables.descriptors.data_ptr()
        return tuple(words), None

    def launcher(self, place):
        def launch(num_programs, leading):
            *leading, staging = leading
            self.by_c.append(
                (place, (num_programs, 1, 1), *leading, *self.carried(staging, place[1]))
            )

        return launch

    def by_both(self):
        """Make operations of the tables in C, as on a GPU."""
        self.tables._quick = self.quick
        self.tables._call_in_c(native.load("launcher"))
        return self.tables


class CAlone:
    """Stands in for tables: what C leaves to Python returns `None`, and all else is the tables'."""

    validate = False
    _captured_writes = None

    def __init__(self, noted):
        self._noted, self._quick = noted, noted.quick

    def __getattr__(self, name):
        return getattr(self._noted.tables, name)

    def __setattr__(self, name, value):
        if name != "num_dirty_rows":  # set by the Python code that is compared
            super().__setattr__(name, value)


for _name in OPERATIONS:
    setattr(CAlone, _name, lambda *_args, **_names: None)


@pytest.fixture
def noted(monkeypatch):
    return Noted(monkeypatch)


def batch_of(num_reqs, num_tokens, dtype=torch.int64):
    return (
        torch.zeros(num_reqs, dtype=dtype),
        torch.zeros(num_reqs + 1, dtype=torch.int32),
        torch.zeros(num_tokens, dtype=torch.int64),
    )


def options_of(rng, num_reqs_padded):
    """Options of a step, each of them or none; caller's tables that are aligned, or not."""
    options = {}
    if rng.random() < 0.3:
        options["num_computed_tokens"] = torch.zeros(700, dtype=torch.int32)
    if rng.random() < 0.3:
        first = rng.choice((0, 0, 1))
        rows = num_reqs_padded + rng.choice((1, 2))
        options["out"] = [
            torch.zeros(rows * width + 4, dtype=torch.int32)[first : first + rows * width].view(
                rows, width
            )
            for width in LAYOUT.widths
        ]
        if rng.random() < 0.5:
            addresses = [table.data_ptr() for table in options["out"]]
            options["out_ptrs"] = torch.tensor(addresses, dtype=torch.int64)
    if rng.random() < 0.3:
        options["slots_out"] = torch.zeros(2, 9100, dtype=torch.int64)[
            :, : rng.choice((9000, 9100))
        ]
    return options


def stage(rng, staged):
    for row in rng.sample(range(700), rng.choice((0, 0, 1, 2, 3, 9))):
        ids = [rng.randrange(-9, 9) for _ in range(rng.choice((0, 1, 1, 1, 2, 7, 30)))]
        staged.append(row, [[7], ids], rng.random() < 0.8, False)


@pytest.mark.parametrize("is_sharded", [False, True])
def test_it_launches_what_python_does(monkeypatch, is_sharded):
    layout = replace(LAYOUT, cp_size=2) if is_sharded else LAYOUT
    noted = Noted(monkeypatch, layout)
    rng = random.Random(0)
    tables = noted.tables
    for _ in range(600):
        # 512 of two groups are as many rows as a program each is made for, and 513 are more.
        num_reqs = rng.choice((0, 1, 2, 17, 512, 513, 700))
        exact = one_launch.FEW.tokens * num_reqs
        num_tokens = rng.choice((0, 1, num_reqs, min(exact, 9000), 8000, 8001, 9000))
        batch = batch_of(num_reqs, num_tokens, rng.choice((torch.int32, torch.int64)))
        padded = rng.choice((num_reqs, num_reqs, rng.randint(num_reqs, 700)))
        options = options_of(rng, padded)
        tables.num_dirty_rows = rng.choice((0, 0, 3, 512, 700))
        longest = rng.choice((0, 5, 255, 1024, 1025, 2048, 3000))
        num_blocks, seed = tables.num_blocks.copy(), rng.random()
        for call in (noted.calls.prepare_step, tables.prepare_step):
            tables.num_blocks[:] = num_blocks
            stage(random.Random(seed), tables._staged)
            tables._staged.longest = longest
            noted.memory.current.zero_()
            noted.memory._current = 0  # so that both fill the same buffer
            views, slots = call(*batch, padded, 9000, **options)
            assert [view.shape[0] for view in views] == [padded] * 2
            assert slots.shape == (2, 9000)
            assert not tables._staged
        assert noted.by_c == noted.by_python[-1:]
        noted.by_c.clear()
    reached = {place for place, *_ in noted.by_python}
    assert {place[:2] for place in reached} == {place[:2] for place in PLACES}
    assert {place[2] for place in reached} == {True} if is_sharded else {False, True}


@pytest.mark.parametrize("is_sharded", [False, True])
def test_it_launches_parts_of_a_step_as_python_does(monkeypatch, is_sharded):
    noted = Noted(monkeypatch, replace(LAYOUT, cp_size=2) if is_sharded else LAYOUT)
    rng = random.Random(1)
    tables, calls = noted.tables, noted.calls
    for _ in range(300):
        num_reqs = rng.choice((0, 1, 2, 17, 512, 513, 700))
        num_tokens = rng.choice((0, 1, num_reqs, min(one_launch.FEW.tokens * num_reqs, 9000), 9000))
        batch = batch_of(num_reqs, num_tokens, rng.choice((torch.int32, torch.int64)))
        padded = max(1, rng.choice((num_reqs, num_reqs, rng.randint(num_reqs, 700))))
        given = options_of(rng, padded)
        slots_out = given.pop("slots_out", None)
        options = [given.get(name) for name in ("out", "out_ptrs", "num_computed_tokens")]
        dirty = tables.num_dirty_rows = rng.choice((0, 0, 3, 512, 700))
        tables._staged.longest = rng.choice((0, 5, 255, 1024, 1025, 2048, 3000))
        stage(rng, tables._staged)  # which no part sees
        num_staged = tables._staged.num_records
        step = (*batch, padded, 9000)
        for each in (calls, tables):
            tables.num_dirty_rows = dirty
            views = each.gather_block_tables(batch[0], padded, *options)
            assert [view.shape[0] for view in views] == [padded] * 2
            slots = each.compute_slot_mappings(*batch, 9000, slots_out)
            assert slots.shape == (2, 9000)
            tables.num_dirty_rows = dirty
            each.gather_and_compute_slot_mappings(*step, **given, slots_out=slots_out)
        assert tables._staged.num_records == num_staged
        tables._staged.clear()
        # A mapping of no tokens may launch nothing that maps; both still pad.
        assert unread_left_out(noted.by_c) == unread_left_out(noted.by_python)
        assert [place[1] for place, *_ in noted.by_c] == list(PARTS)
        noted.by_c.clear()
        noted.by_python.clear()


def unread_left_out(launched):
    """Launches without what their part does not read: tensors of a batch, words of slots."""
    found = []
    for place, grid, descriptors, mapping, starts, positions, *numbers, words, memory in launched:
        part = place[1]
        batch = (mapping, *((starts, positions) if part != one_launch.GATHER else ()))
        kept = () if part == one_launch.SLOTS else words
        found.append((place, grid, descriptors, batch, numbers, kept, memory))
    return found


@pytest.mark.parametrize("is_sharded", [False, True])
def test_it_applies_as_python_does(monkeypatch, is_sharded):
    noted = Noted(monkeypatch, replace(LAYOUT, cp_size=2) if is_sharded else LAYOUT)
    rng = random.Random(2)
    tables = noted.tables
    for _ in range(300):
        num_blocks, seed = tables.num_blocks.copy(), rng.random()
        for apply in (noted.calls.apply_staged_writes, tables.apply_staged_writes):
            tables.num_blocks[:] = num_blocks
            stage(random.Random(seed), tables._staged)
            noted.memory.current.zero_()
            noted.memory._current = 0
            apply()
            assert not tables._staged
        launched = [
            [(place, grid, kept[9:]) for place, grid, *kept in by]  # no batch is read
            for by in (noted.by_c, noted.by_python)
        ]
        assert launched[0] == launched[1]
        noted.by_c.clear()
        noted.by_python.clear()


def test_rows_are_aligned_only_in_tables_that_all_are(monkeypatch):
    layout = replace(LAYOUT, widths=(4, 8))
    noted = Noted(monkeypatch, layout)
    aligned = [torch.zeros(5, width, dtype=torch.int32) for width in layout.widths]
    odd = [torch.zeros(21, dtype=torch.int32)[1:].view(5, 4), aligned[1]]
    for out, expected in ((None, True), (aligned, True), (odd, False)):
        assert noted.calls.prepare_step(*batch_of(4, 4), 4, 4, out=out)
        noted.tables.prepare_step(*batch_of(4, 4), 4, 4, out=out)
        for launched in (noted.by_c, noted.by_python):
            assert launched[-1][0][3] is expected


def test_tables_that_are_replaced_are_looked_at_again(monkeypatch):
    noted = Noted(monkeypatch, replace(LAYOUT, widths=(4, 8)))
    tables = noted.tables
    assert tables.rows_are_aligned
    shape = tables.block_tables[0].shape
    tables.block_tables[0] = torch.zeros(shape.numel() + 1, dtype=torch.int32)[1:].view(shape)
    tables.init_block_table_layout_tensors()
    assert not tables.rows_are_aligned


UNUSUAL = {
    "more requests than are read": {"num_reqs_padded": 3},
    "more rows than there are": {"num_reqs_padded": 701},
    "more slots than there are": {"num_tokens_padded": 9001},
    "a size below 0": {"num_tokens_padded": -1},
    "a huge size": {"num_tokens_padded": 2**80},
    "a size of another type": {"num_reqs_padded": 4.0},
    "no size": {"num_reqs_padded": True},
    "no tensor": {"idx_mapping": [1, 2, 3, 4]},
    "another dtype": {"idx_mapping": torch.zeros(4, dtype=torch.int16)},
    "floats": {"idx_mapping": torch.zeros(4)},
    "unsigned": {"positions": torch.zeros(4, dtype=torch.uint64)},
    "a matrix": {"idx_mapping": torch.zeros(4, 1, dtype=torch.int64)},
    "another device": {"positions": torch.zeros(4, dtype=torch.int64, device="meta")},
    "gaps": {"positions": torch.zeros(8, dtype=torch.int64)[::2]},
    "a start too few": {"query_start_loc": torch.zeros(4, dtype=torch.int32)},
    "int64 starts": {"query_start_loc": torch.zeros(5, dtype=torch.int64)},
    "int32 positions": {"positions": torch.zeros(4, dtype=torch.int32)},
}


def slots_of(*shape, dtype=torch.int64):
    return torch.zeros(shape, dtype=dtype)


def tables_of(num_rows, *, dtype=torch.int32):
    return [torch.zeros(num_rows, width, dtype=dtype) for width in LAYOUT.widths]


SHARED = torch.zeros(20_000, dtype=torch.int32)
UNUSUAL |= {
    "few computed tokens": {"num_computed_tokens": torch.zeros(699, dtype=torch.int32)},
    "int64 computed tokens": {"num_computed_tokens": torch.zeros(700, dtype=torch.int64)},
    "another sequence of tables": {"out": dict(enumerate(tables_of(4)))},
    "a table too few": {"out": tables_of(4)[:1]},
    "tables with too few rows": {"out": tables_of(3)},
    "tables of another width": {"out": [slots_of(4, 6, dtype=torch.int32), tables_of(4)[1]]},
    "tables of another dtype": {"out": tables_of(4, dtype=torch.int64)},
    "tables that are no matrices": {"out": [table.view(-1) for table in tables_of(4)]},
    "tables with gaps": {"out": [slots_of(4, 6, dtype=torch.int32)[:, :5], tables_of(4)[1]]},
    "tables that overlap": {"out": [SHARED[:20].view(4, 5), SHARED[8:12008].view(4, 3000)]},
    "addresses without tables": {"out_ptrs": torch.zeros(2, dtype=torch.int64)},
    "addresses too few": {"out": tables_of(4), "out_ptrs": torch.zeros(1, dtype=torch.int64)},
    "int32 addresses": {"out": tables_of(4), "out_ptrs": torch.zeros(2, dtype=torch.int32)},
    "slots of another dtype": {"slots_out": slots_of(2, 9, dtype=torch.int32)},
    "slots of too few groups": {"slots_out": slots_of(1, 9)},
    "slots too short": {"slots_out": slots_of(2, 3)},
    "slots that overlap": {
        "slots_out": torch.zeros(9, dtype=torch.int64).as_strided((2, 5), (4, 1))
    },
    "slots in columns": {"slots_out": slots_of(9, 2).t()},
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_python(noted, name):
    names = ("idx_mapping", "query_start_loc", "positions")
    usual = dict(zip(names, batch_of(4, 4), strict=True))
    usual |= {"num_reqs_padded": 4, "num_tokens_padded": 4}
    assert noted.calls.prepare_step(**usual)
    assert len(noted.by_c) == 1
    assert noted.calls.prepare_step(**usual | UNUSUAL[name]) is None
    assert len(noted.by_c) == 1


OPTIONS = ("out", "out_ptrs", "num_computed_tokens", "slots_out")
BATCH = ("idx_mapping", "query_start_loc", "positions")
PARTS_TAKE = {  # `slots_out` is named `out` where there are slots alone
    "gather_block_tables": ("idx_mapping", "num_reqs_padded", *OPTIONS[:3]),
    "compute_slot_mappings": (*BATCH, "num_tokens_padded", "slots_out"),
    "gather_and_compute_slot_mappings": (*BATCH, "num_reqs_padded", "num_tokens_padded", *OPTIONS),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_python_by_parts(noted, name):
    given = dict(zip(BATCH, batch_of(4, 4), strict=True))
    given |= {"num_reqs_padded": 4, "num_tokens_padded": 4, **dict.fromkeys(OPTIONS)}
    unusual = given | UNUSUAL[name]
    for part, taken in PARTS_TAKE.items():
        names = {argument: argument for argument in taken}
        if part == "compute_slot_mappings":
            names["slots_out"] = "out"
        call = getattr(noted.calls, part)
        assert call(**{own: given[argument] for argument, own in names.items()}) is not None
        if set(UNUSUAL[name]) <= set(taken):
            found = call(**{own: unusual[argument] for argument, own in names.items()})
            assert found is None, part
    assert len(noted.by_c) == len(PARTS_TAKE)


def test_own_tables_are_unusual_ones_of_a_caller(noted):
    out = [noted.tables.input_block_tables[0], tables_of(700)[1]]
    assert noted.calls.prepare_step(*batch_of(4, 4), 4, 4, out=out) is None
    assert noted.by_c == []


def test_writes_that_words_cannot_tell_are_left_to_python(noted, monkeypatch):
    noted.tables._staged.longest = 0
    noted.tables._staged.append(1, [[], []], True, False)
    assert noted.calls.prepare_step(*batch_of(1, 1), 1, 1)
    layout = replace(LAYOUT, widths=(70_000, 3))
    tables = Noted(monkeypatch, layout)
    tables.tables._staged.append(1, [list(range(65_536)), []], True, False)
    assert tables.calls.prepare_step(*batch_of(1, 1), 1, 1) is None
    assert tables.by_c == []


def test_more_slots_than_int32_counts_past_are_left_to_python(noted):
    """Of memory that is never touched, so that it takes none."""
    for columns, accepted in ((2**30, True), (2**30 + 1, False)):
        pages = mmap.mmap(-1, 16 * columns, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        slots = torch.frombuffer(pages, dtype=torch.int64).view(2, columns)
        assert (
            noted.calls.prepare_step(*batch_of(1, 1), 1, 1, slots_out=slots) is not None
        ) is accepted


def test_an_error_of_the_launch_is_passed_on_and_the_writes_are_kept(noted):
    def fail(*_arguments):
        raise RuntimeError("the device is lost")

    noted.quick.add(0, one_launch.SINGLE_IDS, False, False, fail)
    tables = noted.by_both()
    tables._staged.append(1, [[1], [2]], True, False)
    with pytest.raises(RuntimeError, match="the device is lost"):
        tables.prepare_step(*batch_of(1, 1), 1, 1)
    assert len(tables._staged.intervals()) == 2


def test_a_step_by_c_has_the_effects_of_one_by_python(noted):
    tables = noted.by_both()
    tables.num_dirty_rows = 5
    tables._staged.append(1, [[1], [2]], True, False)
    views, slots = tables.prepare_step(*batch_of(2, 2), 3, 4)
    assert len(noted.by_c) == 1
    assert not tables._staged
    assert tables.num_dirty_rows == 2
    assert [tuple(view.shape) for view in views] == [(3, 5), (3, 3000)]
    assert tuple(slots.shape) == (2, 4)


def test_dirty_rows_that_there_cannot_be_are_left_to_python_which_refuses_them(noted):
    batch = batch_of(4, 4)
    noted.tables.num_dirty_rows = LAYOUT.max_num_reqs + 1
    assert noted.calls.prepare_step(*batch, 4, 4) is None
    with pytest.raises(ValueError, match="num_dirty_rows is 701; expected 0 to 700"):
        noted.tables.prepare_step(*batch, 4, 4)
    assert not noted.by_python


def num_rows_of(launched):
    _place, _grid, *leading = launched
    return leading[10]


@pytest.mark.parametrize("maps", [False, True])
def test_a_gather_counts_the_rows_of_a_replay_that_may_follow(monkeypatch, maps):
    """Without writes, too: nothing is pending then, but the replay fills its rows all the same."""
    noted = Noted(monkeypatch, TableLayout((4, 3), (5, 8), 7, max_num_batched_tokens=9))
    tables = noted.by_both()

    def gather():
        if maps:
            tables.gather_and_compute_slot_mappings(*batch_of(1, 1), 1, 1)
        else:
            tables.gather_block_tables(batch_of(1, 1)[0], 1)

    step = tables.capture_step(*batch_of(3, 3), 3, 3)
    step.publish()
    gather()
    assert num_rows_of(noted.by_python[-1]) == 3
    tables._captured_writes.launch_step(tables, False)  # the replay, of which the host sees nothing
    gather()
    assert num_rows_of(noted.by_python[-1]) == 3
    assert noted.by_c == []
    gather()
    assert num_rows_of(noted.by_c[-1]) == 1


def test_a_vector_of_one_element_may_have_any_stride(noted):
    batch = (
        torch.zeros(4, dtype=torch.int64)[::4],
        torch.zeros(2, dtype=torch.int32),
        torch.zeros(4, dtype=torch.int64)[::4],
    )
    assert noted.calls.prepare_step(*batch, 1, 1)


def cut_of(noted, num_reqs, num_rows):
    return noted.tables.cut_of(one_launch.Batch(*batch_of(num_reqs, num_rows), num_reqs, num_rows))


@pytest.mark.parametrize("num_rows", [2, 40, 341, 342, 512, 700])
def test_rows_that_are_zeroed_in_wide_tables_bring_few_programs(noted, num_rows):
    cut = cut_of(noted, num_rows - 1, num_rows)
    assert cut.num_wide == 1
    assert cut.num_chunks == -(-(3000 - one_launch.OWN_COLUMNS) // one_launch.WIDE_COLUMNS)


@pytest.mark.parametrize("num_rows", [1, 2, 40, 341, 342, 700])
def test_long_rows_bring_few_programs(noted, num_rows):
    noted.tables._staged.longest = 3000
    cut = cut_of(noted, num_rows, num_rows)
    assert cut.num_wide == num_rows
    assert cut.num_chunks >= 1
    rows = LAYOUT.num_groups * num_rows
    assert rows * cut.num_chunks <= max(one_launch.MAX_WIDE_PROGRAMS, rows)


@pytest.mark.parametrize("shape", one_launch.SHAPES)
def test_there_is_a_program_for_each_span_of_tokens(shape):
    for num_tokens in (shape.tokens + 1, one_launch.SPAN, one_launch.SPAN + 1, 9_999):
        assert (shape.spans(num_tokens) - 1) * one_launch.SPAN < num_tokens
        assert num_tokens <= shape.spans(num_tokens) * one_launch.SPAN
    assert shape.spans(shape.tokens) == 0  # its tile maps them, whoever has them
    assert shape.spans(10**6) == one_launch.MAX_SPANS


def test_staged_writes_that_are_replaced_are_those_of_the_step_in_c(monkeypatch):
    tables = classes(["one_launch"])["one_launch"](LAYOUT, "cpu")
    made = []
    monkeypatch.setattr(one_launch_tables, "native_step", lambda tables, _: made.append(tables))
    staged = type(tables._staged)(LAYOUT.widths, tables.num_blocks)
    tables._stage_in(staged)
    assert made == [tables]
    assert tables._staged is staged
    tables.redirect_writes_to_null_block = True
    assert made == [tables]


@pytest.mark.parametrize(
    ("num_groups", "max_num_reqs", "possible"),
    [(8, 4096, True), (8, 4609, False), (384, 48, True), (385, 48, False), (1, 32_767, True)],
)
def test_bitmaps_that_parameters_do_not_hold_are_not_carried(num_groups, max_num_reqs, possible):
    sizes = (16,) * num_groups
    layout = TableLayout(sizes, sizes, max_num_reqs, max_num_batched_tokens=8)
    tables = SimpleNamespace(layout=layout, place=SimpleNamespace(launcher=object()), _on_gpu=True)
    assert one_launch.CarryingLaunch.is_possible(tables) is possible


def test_what_is_staged_while_a_buffer_is_taken_is_not_lost(monkeypatch):
    """By a finaliser, as the garbage collector may run one there."""
    tables = classes(["one_launch"])["one_launch"](LAYOUT, "cpu")
    ids = list(range(99))
    tables.append_block_ids(3, [[], ids], True)
    advance = tables._ring.advance
    staged = tables._staged

    def advance_and_stage(size):
        staged.append(1, [[5], []], True, False)
        return advance(size)

    monkeypatch.setattr(tables._ring, "advance", advance_and_stage)
    with pytest.raises(RuntimeError, match="what is staged has changed during the step"):
        tables.prepare_step(*batch_of(1, 1), 1, 1)
    assert len(staged.intervals()) == 4


def test_a_step_that_a_variant_launches_itself_is_not_made_in_c(monkeypatch):
    class Own(classes(["one_launch"])["one_launch"]):
        def _launch_step(self, batch, options):
            super()._launch_step(batch, options)

    made = []
    monkeypatch.setattr(one_launch_tables, "native_step", lambda *given: made.append(given))
    Own(LAYOUT, "cpu")
    assert made == []
    classes(["one_launch"])["one_launch"](LAYOUT, "cpu")
    assert made


@pytest.mark.parametrize("name", ["_launch_apply", "_launch_gather", "_launch_slots"])
def test_a_launch_that_a_variant_overrides_is_made(name):
    """As in all classes that derive from `DeviceBlockTables`."""
    launched = []
    kind = classes(["one_launch"])["one_launch"]
    own = type("Own", (kind,), {name: lambda _tables, *given: launched.append(given)})
    tables = own(LAYOUT, "cpu")
    tables.append_block_ids(1, [[1], [2]], True)
    tables.apply_staged_writes()
    tables.gather_block_tables(torch.tensor([1]), 1)
    tables.compute_slot_mappings(*batch_of(1, 1), 1)
    assert len(launched) == 1


def test_c_makes_no_launch_that_a_variant_overrides(monkeypatch):
    made = []
    monkeypatch.setattr(one_launch_tables, "native_step", lambda *tables: made.append(tables))
    kind = classes(["one_launch"])["one_launch"]
    type("Own", (kind,), {"_launch_gather": lambda *_: None})(LAYOUT, "cpu")
    assert made == []
    type("Own", (kind,), {"_note_launches": lambda *_: None})(LAYOUT, "cpu")
    assert len(made) == 1


def test_a_captured_gather_relies_on_no_alignment(monkeypatch):
    """Tables may be replaced before a replay, by ones that begin anywhere."""
    noted = Noted(monkeypatch, replace(LAYOUT, widths=(4, 8)))
    tables = noted.tables
    step = (*batch_of(1, 1), 1, 1)

    def gather():
        noted.by_python.clear()
        tables.gather_block_tables(step[0], 1)
        tables.gather_and_compute_slot_mappings(*step)
        return [is_aligned for (*_, is_aligned), *_ in noted.by_python]

    assert gather() == [True, True]
    tables.place.is_capturing = lambda: True
    assert gather() == [False, False]


def test_kernels_of_a_capture_are_loaded_before_it(monkeypatch):
    noted = Noted(monkeypatch, replace(LAYOUT, widths=(4, 8)))
    tables, carrying, loaded = noted.tables, noted.carrying, []
    tables.place.launcher = object()
    monkeypatch.setattr(carrying, "_load", lambda binary: loaded.append(binary) or object())
    step = (*batch_of(1, 1), 1, 1)

    def run_parts():
        tables.gather_block_tables(step[0], 1)
        tables.compute_slot_mappings(*step[:3], 1)
        tables.gather_and_compute_slot_mappings(*step)

    for _ in range(2):
        run_parts()
    once = list(loaded)
    assert len(once) == len(set(once)) == 5
    tables.place.is_capturing = lambda: True
    run_parts()
    assert loaded == once
    assert set(loaded) <= set(carrying.binaries(aligned=True))


def test_methods_in_c_end_with_their_tables(monkeypatch):
    noted = Noted(monkeypatch)
    step = noted.by_both().prepare_step
    assert step(*batch_of(1, 1), 1, 1)
    tables = weakref.ref(noted.tables)
    monkeypatch.undo()
    noted.alone = noted.tables = noted.carrying = None
    del noted
    gc.collect()  # the stand-ins of this file refer to each other
    assert tables() is None
    with pytest.raises(ReferenceError, match="the tables of this method are gone; keep them"):
        step(*batch_of(1, 1), 1, 1)


def test_operations_that_a_subclass_has_are_not_made_in_c(monkeypatch):
    class Own(classes(["one_launch"])["one_launch"]):
        def gather_block_tables(self, *_):
            return "own"

    tables = Own(LAYOUT, "cpu")
    tables._call_in_c(native.load("launcher"))
    assert tables.gather_block_tables() == "own"
    in_c = {name for name in OPERATIONS if isinstance(getattr(tables, name), BuiltinMethodType)}
    assert in_c == {*OPERATIONS} - {"gather_block_tables"}


SIGNATURES = {
    "gather_block_tables": ((*BATCH[:1], "num_reqs_padded", *OPTIONS[:3]), 5, 2),
    "compute_slot_mappings": ((*BATCH, "num_tokens_padded", "out"), 5, 4),
    "gather_and_compute_slot_mappings": (
        (*BATCH, "num_reqs_padded", "num_tokens_padded", *OPTIONS),
        5,
        5,
    ),
    "prepare_step": ((*BATCH, "num_reqs_padded", "num_tokens_padded", *OPTIONS), 5, 5),
}


@pytest.mark.parametrize("operation", SIGNATURES)
def test_c_takes_arguments_by_place_and_by_name_as_python_does(noted, operation):
    """All ways to give them; what Python would refuse is left to it."""
    names, most_by_place, required = SIGNATURES[operation]
    usual = dict(zip(BATCH, batch_of(4, 4), strict=True)) | dict.fromkeys(OPTIONS)
    usual |= {"num_reqs_padded": 4, "num_tokens_padded": 4}
    call, rng = getattr(noted.calls, operation), random.Random(3)
    for _ in range(300):
        by_place = rng.randint(0, len(names))
        given = [name for name in names[by_place:] if rng.random() < 0.8]
        rng.shuffle(given)
        unknown = {"other": 1} if rng.random() < 0.1 else {}
        twice = {names[0]: usual[names[0]]} if by_place and rng.random() < 0.1 else {}
        found = call(
            *[usual[name] for name in names[:by_place]],
            **{name: usual[name] for name in given} | unknown | twice,
        )
        is_legal = by_place <= most_by_place and not unknown and not twice
        is_legal &= {*names[:required]} <= {*names[:by_place], *given}
        assert (found is not None) is is_legal
