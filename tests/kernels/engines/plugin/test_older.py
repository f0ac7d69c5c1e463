"""Results that only older releases have; `test_releases.py` compares with each of them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bt_kernels.engines.plugin import counting
from bt_kernels.engines.plugin.older import OlderTables
from bt_kernels.engines.plugin.releases import RELEASES


def older(version, **options):
    given = {
        "block_sizes": [16, 8],
        "max_num_reqs": 4,
        "max_num_batched_tokens": 16,
        "max_num_blocks_per_group": [2, 3],
        "device": torch.device("cpu"),
    }
    if RELEASES[version].splits_blocks:
        given["kernel_block_sizes"] = [4, 8]
    return OlderTables(RELEASES[version], **(given | options))


@pytest.fixture(autouse=True)
def counts(device):
    """Forget what these tests count; `device` has Triton interpret kernels."""
    yield
    counting.reset()


@pytest.mark.parametrize("append", ["append_block_ids", "append_many"])
def test_blocks_are_split(append):
    tables = older("0.31.0")
    if append == "append_many":
        tables.append_many([1, 1], [([3], [9, 5]), ([7], [])], [True, False])
    else:
        tables.append_block_ids(1, ([3], [9, 5]), overwrite=True)
        tables.append_block_ids(1, ([7], []), overwrite=False)
    tables.apply_staged_writes()
    assert tables.block_tables[0].gpu[1].tolist() == [12, 13, 14, 15, 28, 29, 30, 31]
    assert tables.block_tables[1].gpu[1].tolist() == [9, 5, 0]
    assert tables.num_blocks.np[:, 1].tolist() == [8, 2]


@pytest.mark.parametrize("version", RELEASES)
def test_rows_of_a_larger_batch_are_kept_before_0_33(version):
    tables = older(version)
    ids = ([3], [9])
    for row in range(3):
        tables.append_block_ids(row, ids, overwrite=True)
    tables.apply_staged_writes()
    tables.gather_block_tables(torch.arange(3), 3)
    tables.gather_block_tables(torch.arange(1), 2)
    kept = tables.input_block_tables[1][:, 0].tolist()
    assert kept == ([9, 0, 0, 0] if version == "0.33.0" else [9, 0, 9, 0])


@pytest.mark.parametrize("version", RELEASES)
def test_dummy_tables_are_kept_before_0_27(version):
    tables = older(version)
    tables.append_block_ids(0, ([3], [9]), overwrite=True)
    tables.apply_staged_writes()
    tables.gather_block_tables(torch.arange(1), 1)
    (_, dummies) = tables.get_dummy_block_tables(2)
    assert dummies.data_ptr() == tables.input_block_tables[1].data_ptr()
    assert dummies[:, 0].tolist() == ([9, 0] if version < "0.27" else [0, 0])


@pytest.mark.parametrize("cp_size", [2, 3])
@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_have_the_slots_of_the_scheduler_s_blocks(cp_size, rank):
    """From 0.29.0 on vLLM shares tokens by its blocks, and looks up those of kernels."""
    sizes, interleave, positions = (16, 8), 2, torch.arange(16)
    tables = older("0.31.0", cp_size=cp_size, cp_rank=rank, cp_interleave=interleave)
    ids = ([3, 7], [9, 5])
    tables.append_block_ids(1, ids, overwrite=True)
    tables.apply_staged_writes()
    starts = torch.tensor([0, 16], dtype=torch.int32)
    slots = tables.compute_slot_mappings(torch.tensor([1]), starts, positions, 16).tolist()
    for group, size in enumerate(sizes):
        for position in positions.tolist():
            block, offset = divmod(position, size * cp_size)
            turn, place = divmod(offset, interleave)
            rounds, owner = divmod(turn, cp_size)
            own = ids[group][block] * size + rounds * interleave + place
            assert slots[group][position] == (own if owner == rank else -1)


def test_blocks_that_kernels_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"block_sizes\[0\] is 16; expected a multiple of .* 6"):
        older("0.31.0", kernel_block_sizes=[6, 8])
    with pytest.raises(ValueError, match="cp_interleave is 8; expected a divisor"):
        older("0.31.0", cp_size=2, cp_interleave=8)


def test_a_release_is_as_ours_only_without_differences():
    assert [version for version in RELEASES if RELEASES[version].is_as_ours] == ["0.33.0"]
    for name in ("clears_rows", "zeroes_dummies"):
        assert not dataclasses.replace(RELEASES["0.33.0"], **{name: False}).is_as_ours
