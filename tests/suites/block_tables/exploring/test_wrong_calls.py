"""Calls that have to be refused are wrong on any layout: else a right variant would fail."""

from __future__ import annotations

import pytest
import torch
from support.variants import classes

from bt_bench.suites.block_tables.exploring import refusals
from bt_bench.suites.block_tables.exploring.arguments import Arguments
from bt_bench.suites.block_tables.exploring.calls import GATHER, Batch, Ints, Refused
from bt_bench.suites.block_tables.exploring.player import _amid
from bt_bench.suites.block_tables.exploring.wrong_calls import _overlapping, wrong_call
from bt_kernels.layout import TableLayout

pytestmark = pytest.mark.usefixtures("device")
CPU = torch.device("cpu")
LAYOUTS = [
    TableLayout((4, 8)[:groups], (3, 5)[:groups], rows, 8)
    for groups in (1, 2)
    for rows in (1, 2, 3)
]


def numbers(*values: int) -> Ints:
    return torch.tensor(values, dtype=torch.int64).numpy()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("what", [refusals.OUT_TAKEN, refusals.OUT_OVERLAPS])
@pytest.mark.parametrize("pick", range(6))
@pytest.mark.parametrize("amid", [False, True])
def test_an_out_that_overlaps(layout: TableLayout, what: str, pick: int, amid: bool) -> None:
    tables = classes(["fused"])["fused"](layout, CPU)
    if amid:
        for held in (tables.block_tables, tables.input_block_tables):
            held[:] = map(_amid, held)
        tables.init_block_table_layout_tensors()
    batch = Batch(numbers(0), numbers(0, 1), numbers(0), 1, 1)
    out = [torch.zeros((layout.max_num_reqs, width), dtype=torch.int32) for width in layout.widths]
    tensors = {
        "idx_mapping": torch.zeros(1, dtype=torch.int32),
        "query_start_loc": torch.tensor([0, 1], dtype=torch.int32),
        "positions": torch.zeros(1, dtype=torch.int64),
    }
    right = Arguments({}, tensors, 1, 1, out, None, None)
    call = Refused(0, what, batch, GATHER, group=layout.num_groups - 1, pick=pick)
    with pytest.raises(ValueError, match="overlaps another table"):
        wrong_call(call, tables, layout, right)()


def test_an_out_begins_before_a_table_at_it_and_behind() -> None:
    layout = LAYOUTS[-1]
    tables = classes(["fused"])["fused"](layout, CPU)
    for held in (tables.block_tables, tables.input_block_tables):
        held[:] = map(_amid, held)
    right = [torch.zeros((3, width), dtype=torch.int32) for width in layout.widths]
    apart = set()
    for pick in range(6):
        call = Refused(0, refusals.OUT_TAKEN, None, GATHER, group=1, pick=pick)
        taken = (tables.block_tables if pick % 2 else tables.input_block_tables)[1]
        begins = _overlapping(call, tables, right)[1].data_ptr()
        apart.add((pick % 2, (begins - taken.data_ptr()) // taken[0].nbytes))
    assert apart == {(of, by) for of in (0, 1) for by in (-1, 0, 1)}


def test_a_right_write_of_the_row_comes_behind_a_wrong_one() -> None:
    """Put it where an `append_many` may look at nothing else."""
    layout, seen = LAYOUTS[-1], []

    class Records(classes(["fused"])["fused"]):  # type: ignore[misc]
        def append_many(self, *arguments: object) -> None:
            seen.append(arguments)

    tables = Records(layout, CPU)
    for pick in range(12):
        what = refusals.TOO_WIDE
        wrong_call(Refused(0, what, None, refusals.MANY, row=2, pick=pick), tables, layout, None)()
    behind = [rows[-2:] == [2, 2] and overwrite[-1] for rows, _, overwrite in seen]
    assert 0 < sum(behind) < len(seen)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("pick", range(4))
def test_a_snapshot_of_another_layout(layout: TableLayout, pick: int) -> None:
    tables = classes(["fused"])["fused"](layout, CPU)
    call = Refused(0, refusals.ANOTHER_LAYOUT, None, refusals.RESTORE, pick=pick)
    with pytest.raises(ValueError, match="another layout"):
        wrong_call(call, tables, layout, None)()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("what", [*refusals.STAGING, refusals.LENGTHS, refusals.TOO_WIDE_TOGETHER])
def test_writes_of_one_call(layout: TableLayout, what: str) -> None:
    """Also where a right write of the same row comes behind."""
    tables = classes(["fused"])["fused"](layout, CPU)
    for pick in range(24):
        call = Refused(0, what, None, refusals.MANY, row=layout.max_num_reqs - 1, pick=pick)
        with pytest.raises(ValueError, match=r"expected|wide"):
            wrong_call(call, tables, layout, None)()
        assert not tables._staged
