from __future__ import annotations

import pytest

from bt_kernels import TableLayout


def test_for_length_rounds_up():
    layout = TableLayout.for_length((16, 544, 262_144), 8192, 4, 32)
    assert layout.widths == (512, 16, 1)
    assert layout.num_groups == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_sizes": (16, 16)}, "block_sizes has 2 and widths 1 entries"),
        ({"block_sizes": (), "widths": ()}, "at least one group"),
        ({"block_sizes": (0,)}, r"block_sizes\[0\] is 0; expected 1 or more"),
        ({"widths": (-1,)}, r"widths\[0\] is -1"),
        ({"max_num_reqs": 0}, "max_num_reqs is 0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens is 0"),
    ],
)
def test_impossible_sizes_are_refused(changes, message):
    sizes = {"block_sizes": (16,), "widths": (4,), "max_num_reqs": 2, "max_num_batched_tokens": 8}
    with pytest.raises(ValueError, match=message):
        TableLayout(**(sizes | changes))
