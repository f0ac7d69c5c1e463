"""A step that is checked, packed and launched in one call in C: as by Python, or left to Python."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from support.variants import classes

from bt_kernels import native, one_launch
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import tables as host_code

CPU_IN_DLPACK = 1
LAYOUT = TableLayout((4, 3), (5, 3000), max_num_reqs=700, max_num_batched_tokens=9000)

pytestmark = pytest.mark.skipif(
    native.load("launcher") is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="no compiler, or this torch does not show tensors to C",
)


class Noted:
    """Tables that launch nothing; `quick` and Python code both say what they would launch."""

    def __init__(self, monkeypatch):
        self.tables = tables = classes(["one_launch"])["one_launch"](LAYOUT, "cpu")
        self.by_python = []
        self.by_c = []
        carrying = tables._carrying

        def launch(grid, arguments, shape, dtype, *, has_ids):
            addresses = [a if isinstance(a, int) else a.data_ptr() for a in arguments]
            place = one_launch.SHAPES.index(shape), dtype is torch.int64, has_ids
            self.by_python.append((place, grid, *addresses, tuple(carrying.words)))
            return True

        monkeypatch.setattr(carrying, "launch", launch)
        monkeypatch.setattr(host_code, "DLPACK_CUDA", CPU_IN_DLPACK)
        device, tables.device = tables.device, torch.device("cpu", 0)
        tables._launcher = native.load("launcher")
        self.quick = tables._make_quick(carrying)
        tables.device = device
        for shape in range(len(one_launch.SHAPES)):
            for wide, has_ids in product((False, True), repeat=2):
                self.quick.add(shape, wide, has_ids, self.launcher((shape, wide, has_ids)))

    def launcher(self, place):
        def launch(num_programs, leading):
            words = tuple(self.tables._carrying.words)
            self.by_c.append((place, (num_programs, 1, 1), *leading, words))

        return launch

    def call(self, idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded):
        batch = idx_mapping, query_start_loc, positions
        sizes = num_reqs_padded, num_tokens_padded
        tables = self.tables
        return self.quick(*batch, *sizes, tables.num_dirty_rows, tables._staged.longest)


@pytest.fixture
def noted(monkeypatch):
    return Noted(monkeypatch)


def batch_of(num_reqs, num_tokens, dtype=torch.int64):
    return (
        torch.zeros(num_reqs, dtype=dtype),
        torch.zeros(num_reqs + 1, dtype=torch.int32),
        torch.zeros(num_tokens, dtype=torch.int64),
    )


def test_it_launches_what_python_does(noted):
    rng = random.Random(0)
    tables = noted.tables
    for _ in range(300):
        # 512 of two groups are as many rows as a program each is made for, and 513 are more.
        num_reqs = rng.choice((0, 1, 2, 17, 512, 513, 700))
        exact = one_launch.FEW.tokens * num_reqs
        num_tokens = rng.choice((0, 1, num_reqs, min(exact, 9000), 8000, 8001, 9000))
        batch = batch_of(num_reqs, num_tokens, rng.choice((torch.int32, torch.int64)))
        padded = rng.choice((num_reqs, num_reqs, rng.randint(num_reqs, 700)))
        tables.num_dirty_rows = rng.choice((0, 0, 3, 512, 700))
        tables._staged.longest = rng.choice((0, 5, 255, 1024, 1025, 2048, 3000))
        for row in rng.sample(range(700), rng.randrange(4)):
            ids = [rng.randrange(-9, 9) for _ in range(rng.choice((1, 1, 2)))]
            tables._staged.append(row, [[7], ids], True, False)
        sizes = {"num_reqs_padded": padded, "num_tokens_padded": 9000}
        longest = tables._staged.longest
        assert noted.call(*batch, **sizes) == num_reqs
        tables._quick = None
        tables._staged.longest = longest
        tables.prepare_step(*batch, padded, 9000)
        assert noted.by_c == noted.by_python[-1:]
        noted.by_c.clear()
    assert {place for place, *_ in noted.by_python} == {
        *product(range(len(one_launch.SHAPES)), (False, True), (False, True)),
    }


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


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_python(noted, name):
    names = ("idx_mapping", "query_start_loc", "positions")
    usual = dict(zip(names, batch_of(4, 4), strict=True))
    usual |= {"num_reqs_padded": 4, "num_tokens_padded": 4}
    assert noted.call(**usual) == 4
    assert len(noted.by_c) == 1
    assert noted.call(**usual | UNUSUAL[name]) is None
    assert len(noted.by_c) == 1


def test_writes_that_do_not_fit_are_left_to_python(noted):
    noted.tables._staged.append(1, [[1], []], True, False)
    sizes = {"num_reqs_padded": 1, "num_tokens_padded": 1}
    assert noted.call(*batch_of(1, 1), **sizes) is None
    assert noted.by_c == []


def test_an_error_of_the_launch_is_passed_on_and_the_writes_are_kept(noted):
    def fail(*_arguments):
        raise RuntimeError("the device is lost")

    noted.quick.add(one_launch.SHAPES.index(one_launch.FEW), True, False, fail)
    tables = noted.tables
    tables._quick = noted.quick
    tables._staged.append(1, [[1], [2]], True, False)
    with pytest.raises(RuntimeError, match="the device is lost"):
        tables.prepare_step(*batch_of(1, 1), 1, 1)
    assert len(tables._staged.intervals()) == 2


def test_a_step_by_c_has_the_effects_of_one_by_python(noted):
    tables = noted.tables
    tables._quick = noted.quick
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
    assert noted.call(*batch, 4, 4) is None
    noted.tables._quick = None
    with pytest.raises(ValueError, match="num_dirty_rows is 701; expected 0 to 700"):
        noted.tables.prepare_step(*batch, 4, 4)
    assert not noted.by_python


def test_a_vector_of_one_element_may_have_any_stride(noted):
    batch = (
        torch.zeros(4, dtype=torch.int64)[::4],
        torch.zeros(2, dtype=torch.int32),
        torch.zeros(4, dtype=torch.int64)[::4],
    )
    assert noted.call(*batch, 1, 1) == 1


@pytest.mark.parametrize("num_rows", [2, 40, 341, 342, 512, 700])
def test_rows_that_are_zeroed_in_wide_tables_bring_few_programs(noted, num_rows):
    cut = noted.tables._cut(num_rows - 1, num_rows, num_rows)
    assert cut.num_wide == 1
    assert cut.num_chunks == -(-(3000 - one_launch.OWN_COLUMNS) // one_launch.WIDE_COLUMNS)


@pytest.mark.parametrize("num_rows", [1, 2, 40, 341, 342, 700])
def test_long_rows_bring_few_programs(noted, num_rows):
    noted.tables._staged.longest = 3000
    cut = noted.tables._cut(num_rows, num_rows, num_rows)
    assert cut.num_wide == num_rows
    assert cut.num_chunks >= 1
    rows = LAYOUT.num_groups * num_rows
    assert rows * cut.num_chunks <= max(one_launch.MAX_WIDE_PROGRAMS, rows)


@pytest.mark.parametrize("shape", one_launch.SHAPES)
def test_there_are_programs_for_all_spans_of_tokens(shape):
    rng = random.Random(0)
    for _ in range(300):
        lengths = [
            rng.choice((0, 1, shape.tokens, shape.tokens + 1, rng.randrange(900)))
            for _ in range(rng.randrange(1, 40))
        ]
        spans = 0
        for first in range(0, len(lengths), shape.requests):
            longer = max(0, sum(lengths[first : first + shape.requests]) - shape.tokens)
            spans += -(-longer // one_launch.SPAN)
        assert spans <= shape.spans(len(lengths), sum(lengths))
    assert shape.spans(3, shape.tokens) == 0  # one more token could be in one tile
    assert shape.spans(3, shape.tokens + 1) == 1
