"""Sizes and options of tables: what they come to, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bt_kernels.layout import (
    CONTEXT_PARALLELISM,
    DISABLED_GROUPS,
    MAX_NUM_BATCHED_TOKENS,
    MAX_NUM_REQS,
    MAX_WIDTH,
    SLIDING_WINDOW,
    TableLayout,
)

PLAIN = TableLayout((16, 4), (4, 9), max_num_reqs=2, max_num_batched_tokens=8)


def test_for_length_rounds_up():
    layout = TableLayout.for_length((16, 544, 262_144), 8192, 4, 32)
    assert layout.widths == (512, 16, 1)
    assert layout.num_groups == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_sizes": (16, 16)}, "block_sizes has 2 and widths 1 entries"),
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


def test_options_have_defaults_in_all_groups():
    assert PLAIN.slot_mapping_enabled == PLAIN.dcp_sharded == (True, True)
    assert PLAIN.sliding_window_reach == PLAIN.reaches == (0, 0)
    assert PLAIN.cp_sizes == (1, 1)
    assert PLAIN.tokens_per_block == (16, 4)
    assert PLAIN.features == frozenset()
    assert replace(PLAIN, dcp_sharded=(True, False)) != PLAIN  # but without effect


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({"slot_mapping_enabled": (True, False)}, {DISABLED_GROUPS}),
        ({"slot_mapping_enabled": (True, True)}, set()),
        ({"sliding_window_reach": (0, 5)}, {SLIDING_WINDOW}),
        ({"cp_size": 2}, {CONTEXT_PARALLELISM}),
        ({"cp_size": 2, "sliding_window_reach": (0, 5)}, {CONTEXT_PARALLELISM}),
        ({"cp_interleave": 4, "dcp_sharded": (False, False)}, set()),
    ],
)
def test_features_are_those_that_have_an_effect(options, features):
    assert replace(PLAIN, **options).features == features


def test_ranks_share_the_groups_that_are_sharded():
    layout = replace(PLAIN, cp_size=4, cp_rank=3, dcp_sharded=(True, False))
    assert layout.cp_sizes == (4, 1)
    assert layout.tokens_per_block == (64, 4)


def test_context_parallelism_turns_the_window_off():
    layout = replace(PLAIN, sliding_window_reach=(5, 6))
    assert layout.reaches == (5, 6)
    assert replace(layout, cp_size=2).reaches == (0, 0)


def test_rows_of_sharded_groups_hold_a_length_together():
    layout = TableLayout.for_length(
        (16, 16, 4),
        100,
        2,
        8,
        cp_size=2,
        cp_rank=1,
        cp_interleave=2,
        dcp_sharded=(True, False, True),
        sliding_window_reach=(1, 2, 3),
        slot_mapping_enabled=(True, False, True),
    )
    assert layout.widths == (4, 7, 13)
    assert (layout.cp_size, layout.cp_rank, layout.cp_interleave) == (2, 1, 2)
    assert layout.sliding_window_reach == (1, 2, 3)
    assert layout.slot_mapping_enabled == (True, False, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot_mapping_enabled": (True,)}, "slot_mapping_enabled has 1 entries; expected 2, one"),
        ({"sliding_window_reach": (1, 2, 3)}, "sliding_window_reach has 3 entries; expected 2"),
        ({"sliding_window_reach": (0, -1)}, r"sliding_window_reach\[1\] is -1; expected 0 or more"),
        ({"dcp_sharded": (True,) * 3}, "dcp_sharded has 3 entries; expected 2"),
        ({"cp_size": 0}, "cp_size is 0; expected 1 or more"),
        ({"cp_interleave": 0}, "cp_interleave is 0; expected 1 or more"),
        ({"cp_rank": 1}, r"cp_rank is 1; expected 0 to 0 \(cp_size - 1\)"),
        ({"cp_size": 2, "cp_rank": 2}, "cp_rank is 2; expected 0 to 1"),
        ({"cp_size": 2, "cp_rank": -1}, "cp_rank is -1; expected 0 to 1"),
        (
            {"cp_size": 2, "cp_interleave": 8},
            r"cp_interleave is 8; expected a divisor of block_sizes\[1\], which is 4",
        ),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **options)


@pytest.mark.parametrize("options", [{}, {"cp_size": 2, "dcp_sharded": (True, False)}])
def test_an_interleave_need_only_divide_what_is_shared(options):
    assert replace(PLAIN, cp_interleave=8, **options).cp_interleave == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_sizes": (16.0, 16)}, r"block_sizes\[0\] is 16.0; expected an integer"),
        ({"block_sizes": (16, 2**32)}, r"block_sizes\[1\] is 4294967296; expected 2147483647 or"),
        ({"max_num_reqs": 32_768}, "max_num_reqs is 32768; expected 32767 or less"),
        ({"widths": (3, 2**30 + 1)}, r"widths\[1\] is 1073741825; expected 1073741824 or less"),
        (
            {"max_num_batched_tokens": 2**30 + 1},
            "max_num_batched_tokens is 1073741825; expected 1073741824 or less",
        ),
        ({"cp_interleave": 1.0}, "cp_interleave is 1.0; expected an integer"),
        ({"sliding_window_reach": (1.5, 0)}, "sliding_window_reach.0. is 1.5; expected an integer"),
    ],
)
def test_sizes_are_integers_that_kernels_can_take(changes, message):
    sizes = {"block_sizes": (16, 16), "widths": (4, 4), "max_num_reqs": 4}
    with pytest.raises(ValueError, match=message):
        TableLayout(**({**sizes, "max_num_batched_tokens": 8} | changes))


def test_the_largest_sizes_are_taken():
    layout = TableLayout((16,), (MAX_WIDTH,), MAX_NUM_REQS, MAX_NUM_BATCHED_TOKENS)
    assert layout.max_num_batched_tokens == 2**30


def test_rows_hold_as_many_tokens_as_int64_counts():
    """More would make the descriptors overflow, with an error that names nothing."""
    fits = replace(PLAIN, block_sizes=(2**31 - 1, 4), widths=(2**30, 9), cp_size=4)
    with pytest.raises(
        ValueError,
        match=r"widths.0. is 1073741824, of 8589934592 tokens each; .* 9223372036854775807 tok",
    ):
        replace(fits, block_sizes=(2**30, 4), cp_size=8)


def test_flags_are_true_or_false():
    layout = TableLayout((16,), (4,), 4, 8, slot_mapping_enabled=(2,))
    assert layout.slot_mapping_enabled == (True,)
