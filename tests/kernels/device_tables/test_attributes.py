"""Objects that are asked for their methods in every step find them as quickly as they can.

CPython looks methods up in a cache as long as an object's attributes lie in the object itself. That
they do up to 30 of them, and until something asks for `__dict__`. A step of `fused` took 0.5 us
longer without it.
"""

from __future__ import annotations

import gc
import sys

import pytest
from support.variants import classes

from bt_kernels import BlockTables
from bt_kernels.layout import TableLayout

LAYOUT = TableLayout((4, 4), (3, 3), max_num_reqs=4, max_num_batched_tokens=8)
MOST_ATTRIBUTES = 30
MADE = {
    **{
        name: lambda name=name: classes([name])[name](LAYOUT, "cpu")
        for name in ("baseline", "fused", "one_launch", "one_launch_graph")
    },
    "BlockTables": lambda: BlockTables([4, 4], 4, 8, [3, 3], device="cpu"),
}


@pytest.mark.parametrize("name", MADE)
def test_attributes_lie_in_the_object(name):
    tables = MADE[name]()
    referents = gc.get_referents(tables)
    attributes = vars(tables)
    assert len(attributes) <= MOST_ATTRIBUTES, sorted(attributes)
    if sys.version_info < (3, 13):  # since then asking for them does no harm
        assert not any(each is attributes for each in referents)
