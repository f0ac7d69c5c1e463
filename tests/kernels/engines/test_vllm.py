"""Which variant does the work of `BlockTables`."""

from __future__ import annotations

import pytest
import torch

from bt_kernels import BlockTables, native
from bt_kernels.engines import vllm
from bt_kernels.variants import fused, one_launch


def without(monkeypatch, reason):
    monkeypatch.setattr(native, "why_not_direct", lambda: reason)


@pytest.mark.parametrize(
    ("device", "reason", "wanted"),
    [
        ("cuda", None, one_launch.Variant),
        ("cuda", "there is no C compiler", fused.Variant),
        ("cuda:1", "there is no C compiler", fused.Variant),
        ("cpu", "there is no C compiler", one_launch.Variant),
    ],
)
def test_one_launch_wherever_more_than_triton_can_launch(device, reason, wanted, monkeypatch):
    without(monkeypatch, reason)
    assert vllm._cheapest(torch.device(device)) is wanted


def test_both_do_the_same(device, monkeypatch):
    results = []
    for variant in (one_launch.Variant, fused.Variant):
        monkeypatch.setattr(vllm, "_cheapest", lambda _device, of=variant: of)
        tables = BlockTables([4, 2], 4, 8, [3, 5], device, sliding_window_reach=[3, 0])
        assert type(tables._variant) is variant
        tables.append_block_ids(2, [[7, 9], [1, 2, 3]], overwrite=True)
        tables.append_many([0, 2], [[[4], []], [[6], []]], [True, False])
        mapping = torch.tensor([2, 0], device=device)
        starts = torch.tensor([0, 3, 3], dtype=torch.int32, device=device)
        computed = torch.tensor([0, 0, 8, 0], dtype=torch.int32, device=device)
        views, slots = tables.prepare_step(
            *(mapping, starts, torch.tensor([8, 9, 10], device=device), 3, 4),
            num_computed_tokens=computed,
        )
        tables.apply_staged_writes()
        owned = tables.num_blocks
        results.append(
            (
                [view.tolist() for view in views],
                slots.tolist(),
                [table.gpu.tolist() for table in tables.block_tables],
                (owned.np.tolist(), owned.gpu.tolist()),
            )
        )
    assert results[0] == results[1]
    # Of the row with 8 computed tokens the first block, of 4, is outside the window of 3.
    assert results[0][0] == [
        [[0, 9, 6], [4, 0, 0], [0, 0, 0]],
        [[1, 2, 3, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    ]
