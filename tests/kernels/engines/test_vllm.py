"""Which variant does the work of `BlockTables`."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import weakref

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


def of_another_shape(tables):
    tables.block_tables[1].gpu = tables.block_tables[1].gpu[:, :4].clone()


def of_another_dtype(tables):
    tables.input_block_tables[1] = tables.input_block_tables[1].long()


def too_few(tables):
    tables.input_block_tables = tables.input_block_tables[:1]


def slots_too_short(tables):
    tables.slot_mappings = tables.slot_mappings[:, :4].clone()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (of_another_shape, r"block_tables\[1\] has shape \(4, 4\); expected \(4, 5\)"),
        (of_another_dtype, r"input_block_tables\[1\] has dtype torch.int64"),
        (too_few, "input_block_tables has 1 tensors; expected 2, one per group"),
        (slots_too_short, r"slot_mappings has shape \(2, 4\); expected \(2, 8\)"),
    ],
)
def test_refused_tables_change_nothing(spoil, message, device):
    tables = BlockTables([4, 2], 4, 8, [3, 5], device)
    variant = tables._variant
    tables.append_block_ids(2, [[7, 9], [1, 2]], overwrite=True)
    tables.apply_staged_writes()
    used = [*variant.block_tables, *variant.input_block_tables, variant.slot_mappings]
    told = [tables.block_table_ptrs, tables.input_block_table_ptrs, variant.descriptors.clone()]
    # One that would do is not taken either.
    tables.block_tables[0].gpu = tables.block_tables[0].gpu.clone()
    tables.input_block_tables[0] = tables.input_block_tables[0].clone()
    spoil(tables)
    with pytest.raises(ValueError, match=message):
        tables.init_block_table_layout_tensors()
    found = [*variant.block_tables, *variant.input_block_tables, variant.slot_mappings]
    assert all(one is other for one, other in zip(found, used, strict=True))
    assert torch.equal(variant.descriptors, told[2])
    assert (tables.block_table_ptrs, tables.input_block_table_ptrs) == (told[0], told[1])
    mapping = torch.tensor([2], device=device)
    (first, second) = tables.gather_block_tables(mapping, 1)
    assert (first.tolist(), second.tolist()) == ([[7, 9, 0]], [[1, 2, 0, 0, 0]])
    assert [first.data_ptr(), second.data_ptr()] == [table.data_ptr() for table in used[2:4]]
    slots = tables.get_dummy_slot_mappings(3)
    assert slots.data_ptr() == used[4].data_ptr()


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


PASSED_ON = (
    "append_block_ids",
    "append_many",
    "apply_staged_writes",
    "gather_block_tables",
    "compute_slot_mappings",
    "gather_and_compute_slot_mappings",
    "prepare_step",
)


def arguments_of(name, device):
    mapping = torch.tensor([2], device=device)
    starts = torch.tensor([0, 2], dtype=torch.int32, device=device)
    tokens = (starts, torch.tensor([0, 1], device=device))
    return {
        "append_block_ids": (2, [[7], [1]], True),
        "append_many": ([2], [[[7], [1]]], [True]),
        "apply_staged_writes": (),
        "gather_block_tables": (mapping, 1),
        "compute_slot_mappings": (mapping, *tokens, 2),
        "gather_and_compute_slot_mappings": (mapping, *tokens, 1, 2),
        "prepare_step": (mapping, *tokens, 1, 2),
    }[name]


def build(kind, device):
    return kind([4, 2], 4, 8, [3, 5], device)


def noting(method, called):
    """A wrapper of a method that appends the tables it is called with."""

    @functools.wraps(method)
    def wrapper(self, *given, **named):
        called.append(self)
        return method(self, *given, **named)

    return wrapper


@pytest.mark.parametrize("name", PASSED_ON)
def test_a_call_has_no_frame_of_the_class(name, device, monkeypatch):
    tables = build(BlockTables, device)
    monkeypatch.setattr(BlockTables, name, None)
    getattr(tables, name)(*arguments_of(name, device))
    assert getattr(tables, name) == getattr(tables._variant, name)


@pytest.mark.parametrize("name", PASSED_ON)
def test_what_a_subclass_overrides_is_called(name, device):
    called = []
    kind = type("Kind", (BlockTables,), {name: noting(getattr(BlockTables, name), called)})
    tables = build(kind, device)
    getattr(tables, name)(*arguments_of(name, device))
    assert called == [tables]
    assert name not in vars(tables)


@pytest.mark.parametrize("name", PASSED_ON)
def test_what_is_replaced_in_the_class_before_is_called(name, device, monkeypatch):
    called = []
    monkeypatch.setattr(BlockTables, name, noting(getattr(BlockTables, name), called))
    tables = build(BlockTables, device)
    getattr(tables, name)(*arguments_of(name, device))
    assert called == [tables]


@pytest.mark.parametrize("name", PASSED_ON)
@pytest.mark.parametrize("variant", [one_launch.Variant, fused.Variant])
def test_methods_take_the_same_arguments_as_the_variants(name, variant):
    wanted = inspect.signature(getattr(BlockTables, name)).parameters.values()
    found = inspect.signature(getattr(variant, name)).parameters.values()
    assert [(each.name, each.kind, each.default) for each in found] == [
        (each.name, each.kind, each.default) for each in wanted
    ]


@pytest.mark.parametrize("variant", [one_launch.Variant, fused.Variant])
def test_tables_do_not_outlive_their_last_user(variant, device, monkeypatch):
    monkeypatch.setattr(vllm, "_cheapest", lambda _device: variant)
    tables = build(BlockTables, device)
    for name in PASSED_ON:
        getattr(tables, name)(*arguments_of(name, device))
    known = [weakref.ref(tables), weakref.ref(tables._variant)]
    gc.disable()
    try:
        del tables
        assert [each() for each in known] == [None, None]
    finally:
        gc.enable()


def test_a_copy_is_of_the_same_tables(device):
    tables = build(BlockTables, device)
    copied = copy.copy(tables)
    copied.append_block_ids(2, [[7], [1]], overwrite=True)
    copied.apply_staged_writes()
    assert tables.block_tables[0].gpu[2].tolist() == [7, 0, 0]
    (first, _) = tables.gather_block_tables(torch.tensor([2], device=device), 1)
    assert first.tolist() == [[7, 0, 0]]
