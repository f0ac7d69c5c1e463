"""`BlockTables` has what vLLM's own class has: every attribute, every argument in its place."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.vllm.loading import load_block_tables
from bt_bench.suites.block_tables.vllm.source import find_sources
from bt_kernels import BlockTables

RELEASE = "0.33.0"
FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]

# What vLLM's has and ours lacks, and why no runner needs it.
LACKING = {
    "block_tables[g]": {
        "stage_write": "writes are counted: append_block_ids stages them",
        "stage_write_elem": "likewise",
        "clear_staged_writes": "what is staged is counted already, and must be applied",
        "max_concurrency": "of vLLM's buffers",
        "write_contents": "a buffer of vLLM's",
        "write_cu_lens": "likewise",
        "write_indices": "likewise",
        "write_starts": "likewise",
    },
    "num_blocks": {
        "copy_to_uva": "the kernels that apply writes keep the counts on the device",
        "pool": "buffers of vLLM's",
    },
    "fused_writer": {
        "cu_lens": "buffers of vLLM's",
        "device": "of these buffers",
        "group_ids": "likewise",
        "indices": "likewise",
        "starts": "likewise",
    },
}


def theirs():
    """The class of vLLM, of an unpacked wheel."""
    if not FOLDERS:
        pytest.skip("needs an unpacked wheel of vLLM: BT_BENCH_VLLM_SOURCE=DIR (docs/vllm.md)")
    try:
        sources = find_sources(FOLDERS).found
    except UsageError as error:
        pytest.skip(str(error))
    found = [source for source in sources if source.release == RELEASE]
    if not found:
        pytest.skip(f"needs vLLM {RELEASE}; found {[source.release for source in sources]}")
    return load_block_tables(found[0])


def made(kind, num_groups):
    return kind(
        block_sizes=[16, 8][:num_groups],
        max_num_reqs=4,
        max_num_batched_tokens=32,
        max_num_blocks_per_group=[3, 5][:num_groups],
        device=torch.device("cpu"),
        sliding_window_reach=[0, 7][:num_groups],
    )


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def parameters(function):
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
    ]


def parts(tables):
    """Objects whose attributes runners may read, by name."""
    found = {"BlockTables": tables, "num_blocks": tables.num_blocks}
    if tables.block_tables:
        found["block_tables[g]"] = tables.block_tables[0]
    if tables.fused_writer is not None:
        found["fused_writer"] = tables.fused_writer
    return found


@pytest.mark.parametrize("num_groups", [0, 1, 2])
def test_every_attribute_is_there(num_groups):
    expected, found = parts(made(theirs(), num_groups)), parts(made(BlockTables, num_groups))
    for name, thing in expected.items():
        lacking = public(thing) - public(found[name])
        reasons = LACKING.get(name, {})
        assert lacking <= set(reasons), name
    assert num_groups < 2 or all(set(LACKING[n]) <= public(expected[n]) for n in LACKING)


@pytest.mark.parametrize("num_groups", [0, 1, 2])
def test_values_are_alike(num_groups):
    expected, found = made(theirs(), num_groups), made(BlockTables, num_groups)
    for name in public(expected):
        wanted, value = getattr(expected, name), getattr(found, name)
        if callable(wanted) or name in ("fused_writer", "num_blocks", "block_tables"):
            continue
        assert type(value) is type(wanted), name
        if not isinstance(wanted, torch.Tensor):
            assert name == "input_block_tables" or value == wanted, name
        elif name == "slot_mappings" or name.endswith("_ptrs"):
            assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
        else:
            assert torch.equal(value, wanted), name
            assert value.dtype == wanted.dtype, name
    for wanted, value in zip(expected.input_block_tables, found.input_block_tables, strict=True):
        assert torch.equal(value, wanted)
    for wanted, value in zip(expected.block_tables, found.block_tables, strict=True):
        assert torch.equal(value.gpu, wanted.gpu)
        assert (value.num_rows, value.dtype) == (wanted.num_rows, wanted.dtype)
    np.testing.assert_array_equal(found.num_blocks.np, expected.num_blocks.np)
    assert torch.equal(found.num_blocks.gpu, expected.num_blocks.gpu)
    assert torch.equal(found.num_blocks.cpu, expected.num_blocks.cpu)
    assert found.num_blocks.dtype == expected.num_blocks.dtype


def test_without_groups_results_are_alike():
    found = []
    for tables in (made(theirs(), 0), made(BlockTables, 0)):
        rows, starts = torch.tensor([2, 9]), torch.tensor([0, 1, 2], dtype=torch.int32)
        out = torch.zeros((0, 9), dtype=torch.int64)
        tables.append_block_ids(7, ([1],), True)
        tables.apply_staged_writes()
        slots = [
            tables.compute_slot_mappings(rows, starts, rows, 40),
            tables.compute_slot_mappings(rows, starts, rows, 4, out=out),
            tables.get_dummy_slot_mappings(99),
        ]
        gathered = [tables.gather_block_tables(rows, 1), tables.get_dummy_block_tables(3)]
        found.append((gathered, [(view.shape, view.dtype) for view in slots]))
    assert found[0] == found[1]


def test_wide_batches_have_the_same_results():
    """As prefill context parallelism gathers and maps them: two rows per request, and more."""
    found = []
    for tables in (made(theirs(), 2), made(BlockTables, 2)):
        for row in range(4):
            tables.append_block_ids(row, ([row + 1] * (row % 4), [row + 7] * (row + 1)), True)
        tables.apply_staged_writes()
        rows = torch.tensor([3, 3, 1, 0, 2, 2, 1, 3, 0], dtype=torch.int32)
        computed = torch.tensor([0, 9, 20, 16], dtype=torch.int32)
        out = tuple(torch.full((12, width), -5, dtype=torch.int32) for width in (3, 5))
        pointers = torch.tensor([table.data_ptr() for table in out], dtype=torch.uint64)
        views = tables.gather_block_tables(rows, 11, out, pointers, computed)
        slots = torch.full((2, 40), -5)
        starts = torch.arange(0, 20, 2, dtype=torch.int32)
        positions = torch.arange(18) % 8
        mapped = tables.compute_slot_mappings(rows, starts, positions, 18, out=slots)
        found.append([*views, *out, mapped, slots, *tables.input_block_tables])
    for wanted, value in zip(*found, strict=True):
        assert torch.equal(value, wanted)


def test_every_argument_is_in_its_place():
    kind = theirs()
    methods = {name for name in public(kind) if callable(getattr(kind, name))} | {"__init__"}
    for name in methods:
        wanted, given = parameters(getattr(kind, name)), parameters(getattr(BlockTables, name))
        assert given[: len(wanted)] == wanted, name
        more = given[len(wanted) :]
        assert all(kind is inspect.Parameter.KEYWORD_ONLY for _, kind, _ in more), name


def test_the_fused_writer_takes_vllms_arguments():
    writer = made(theirs(), 2).fused_writer
    assert parameters(type(writer).apply) == parameters(
        type(made(BlockTables, 2).fused_writer).apply
    )


@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("way", ["runner", "writer", "table"])
def test_a_runner_that_looks_for_the_fused_writer_applies_what_is_staged(num_groups, way):
    tables = made(BlockTables, num_groups)
    tables.append_block_ids(1, ([5, 6], [7])[:num_groups], True)
    if way == "runner":
        if tables.fused_writer is not None:
            tables.apply_staged_writes()
    elif way == "writer":
        pointers, strides = tables.block_table_ptrs, tables.block_table_strides
        tables.fused_writer.apply(tables.block_tables, pointers, strides)
    else:
        tables.block_tables[0].apply_write()
    assert tables.block_tables[0].gpu[1].tolist() == [5, 6, 0]
    assert tables.num_blocks.gpu[:, 1].tolist() == [2, 1][:num_groups]
