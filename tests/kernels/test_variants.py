"""Every variant equals the reference, bit for bit, in whole buffers.

Tests of the GPU and of the interpreter are the same; those of the interpreter are smaller, since
it needs about 1 ms per program.
"""

from __future__ import annotations

import pytest
import torch
from support.variants import SHIPPED, classes, failures

from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import TraceParameters, UniformParameters, Window
from bt_bench.suites.block_tables.workloads.conformance.plain import (
    CORNERS,
    LONG,
    conformance_workloads,
)
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_kernels.layout import TableLayout

BOTH = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
ALL = list(ops.OPERATIONS)
MOST_PROGRAMS = 16
"""Of a gather: what the interpreter needs more for runs in `make test-slow`, and on a GPU."""


def on_both(groups, requests, *arguments, name):
    """A test on the CPU and on a GPU; slow on the CPU where there are many programs."""
    marks = [pytest.mark.slow] if groups * requests > MOST_PROGRAMS else []
    return [
        pytest.param(*arguments, "cpu", marks=marks, id=f"{name}-cpu"),
        pytest.param(*arguments, "cuda", marks=pytest.mark.gpu, id=f"{name}-cuda"),
    ]


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        param
        for case in load_config("origin").cases
        for param in on_both(
            case.parameters.groups, case.parameters.requests, case.parameters, name=case.name
        )
    ],
)
def test_origin_cases(parameters, where, device):
    workload = build_workload(parameters)
    operations = [ops.STEP] if where == "cpu" else ALL
    assert failures(classes(SHIPPED), workload, operations, device) == {}


# The origin's tests: groups × requests × mappings; on the CPU the largest is of 4 × 64, and slow.
@pytest.mark.parametrize("mapping", ["identity", "shuffled"])
@pytest.mark.parametrize(
    ("groups", "requests", "where"),
    [
        param
        for groups in (1, 2, 4)
        for requests in (1, 16, 64)
        for param in on_both(groups, requests, groups, requests, name=f"{groups}-{requests}")
    ],
)
def test_groups_requests_and_mappings(groups, requests, mapping, where, device):
    workload = build_workload(
        UniformParameters(
            groups=groups,
            requests=requests,
            tokens=2 * requests,
            mapping=mapping,
            # What is done for all rows takes the interpreter a millisecond for each.
            max_num_reqs=80 if where == "cuda" else requests + 3,
            max_num_batched_tokens=256,
            max_model_len=1024,
            seed=groups * 100 + requests,
        )
    )
    operations = [ops.STEP] if where == "cpu" else ALL
    assert failures(classes(SHIPPED), workload, operations, device) == {}


@pytest.mark.parametrize("where", [pytest.param("cpu", marks=pytest.mark.slow), BOTH[1]])
def test_corners_through_every_operation(where, device):
    for title, workload in conformance_workloads(seed=7).items():
        # Separate launches, and so the kernels of options, are in a step of the baseline, too.
        operations = [ops.STEP] if where == "cpu" and workload.features else ALL
        if workload.large and where == "cpu":
            continue  # takes the interpreter minutes; on a GPU it is checked
        found = failures(classes(SHIPPED), workload, operations, device, title=title)
        assert found == {}


def test_corners_through_a_step(device):
    """A part of the above that takes seconds under the interpreter."""
    workload = conformance_workloads(seed=7)["corners"]
    assert failures(classes(SHIPPED), workload, [ops.STEP], device) == {}


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(60))
def test_random_workloads_on_gpu(seed, device):
    layout = (CORNERS, LONG)[seed % 2]
    workload = random_workload(seed, layout, num_steps=20, dtype=("int32", "int64")[seed % 2])
    assert failures(classes(SHIPPED), workload, ALL, device) == {}


@pytest.mark.gpu
@pytest.mark.parametrize("trace", ["azure_conv", "azure_code"])
@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-next-80b", "gemma-3-27b"])
def test_consecutive_trace_steps_on_gpu(trace, model, device):
    parameters = TraceParameters(
        workload="trace",
        trace=trace,
        model=model,
        max_num_reqs=256,
        max_model_len=16_384,
        rate=8.0,
        window=Window(at=40, steps=120),
    )
    operations = [ops.STEP, ops.GATHER_SLOTS, ops.APPLY]
    assert failures(classes(SHIPPED), build_workload(parameters), operations, device) == {}


@pytest.mark.parametrize("where", BOTH)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", [*SHIPPED, "reference"])
def test_a_row_that_does_not_exist_counts_as_a_dummy_request(name, dtype, where, device):
    layout = TableLayout(
        (4, 4), (5, 8), max_num_reqs=6, max_num_batched_tokens=9, sliding_window_reach=(3, 0)
    )
    outputs = []
    for rows in ([1, 6, 2**20, 0], [1, -1, -1, 0]):
        tables = classes([name])[name](layout, device)
        for row in range(6):
            tables.append_block_ids(row, [[row + 1, row + 7], [row + 9]], True)
        tables.apply_staged_writes()
        tables.append_block_ids(0, [[5], [6]], False)
        for buffer in (*tables.input_block_tables, tables.slot_mappings):
            buffer.fill_(-99)
        batch = (
            torch.tensor(rows, dtype=dtype, device=device),
            torch.tensor([0, 2, 4, 5, 7], dtype=torch.int32, device=device),
            torch.arange(7, device=device),
        )
        computed = torch.full((6,), 9, dtype=torch.int32, device=device)
        tables.prepare_step(*batch, 5, 8, num_computed_tokens=computed)
        found = [*tables.input_block_tables, tables.slot_mappings]
        tables.gather_block_tables(batch[0], 5)
        tables.compute_slot_mappings(*batch, 8)
        outputs.append([buffer.tolist() for buffer in (*found, *tables.input_block_tables)])
    assert outputs[0] == outputs[1]
    assert -99 not in outputs[0][2][0]
