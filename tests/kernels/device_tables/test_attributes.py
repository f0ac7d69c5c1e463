"""Objects whose methods are called in every step find them as quickly as Python can.

CPython keeps an object's attributes in the object itself, and finds its methods by a cache, as long
as there are at most 29 attributes and nothing has asked for `__dict__`. A step of `fused` took
0.5 µs longer without it. From Python 3.13 on, asking does no harm.
"""

from __future__ import annotations

import gc
import sys

import pytest
import torch
from support.variants import classes

from bt_kernels import BlockTables
from bt_kernels.layout import TableLayout

LAYOUT = TableLayout((4, 4), (40_000, 3), max_num_reqs=4, max_num_batched_tokens=8)
MOST_ATTRIBUTES = 29
BATCH = (
    torch.tensor([1], dtype=torch.int32),
    torch.tensor([0, 2], dtype=torch.int32),
    torch.tensor([0, 1], dtype=torch.int64),
)
VARIANTS = ("baseline", "fused", "one_launch", "one_launch_graph")


def variant(name):
    """Tables that have got all attributes that use can give them."""
    # Of a class of its own: Python counts the names that any object of a class has had, and other
    # tests set more.
    tables = type("Fresh", (classes([name])[name],), {})(LAYOUT, "cpu")
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(1, ([1], [2]), True)
    tables.prepare_step(*BATCH, 1, 2)
    tables.capture_step(*BATCH, 1, 2)
    # More than launches carry: `one_launch` makes the step from pinned memory.
    carrying = getattr(tables, "_carrying", None)
    if carrying is not None:
        carrying.run = lambda *_: False
        tables.append_block_ids(2, ([1], [2]), True)
        tables.prepare_step(*BATCH, 1, 2)
        assert tables._pinned is not None
    tables.launch_path = tables.launch_paths[-1]
    tables._stage_in(type(tables._staged)(LAYOUT.widths, tables.num_blocks))
    tables.restore(tables.snapshot())
    return tables


def engine():
    return type("Fresh", (BlockTables,), {})([4, 4], 4, 8, [3, 3], device="cpu")


MADE = {**{name: lambda name=name: variant(name) for name in VARIANTS}, "BlockTables": engine}


@pytest.mark.parametrize("name", MADE)
def test_attributes_lie_in_the_object(name):
    tables = MADE[name]()
    referents = gc.get_referents(tables)
    attributes = vars(tables)
    assert len(attributes) <= MOST_ATTRIBUTES, sorted(attributes)
    if sys.version_info < (3, 13):
        assert not any(each is attributes for each in referents)


def test_that_is_as_many_as_python_takes():
    """Else the number above is another one."""

    def lie_in_the_object(number):
        made = type("Made", (), {})()
        for index in range(number):
            setattr(made, f"attribute_{index}", None)
        referents = gc.get_referents(made)
        attributes = vars(made)
        return not any(each is attributes for each in referents)

    if sys.version_info < (3, 13):
        assert lie_in_the_object(MOST_ATTRIBUTES)
        assert not lie_in_the_object(MOST_ATTRIBUTES + 1)
