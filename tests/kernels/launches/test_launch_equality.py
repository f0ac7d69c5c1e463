"""Results are equal by every launch path, on a GPU: features, alignments, graphs and threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from support.variants import SHIPPED, assert_equal, classes, failures, variant_of

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind, stage
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads.conformance.plain import CORNERS, conformance_workloads
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout

pytestmark = pytest.mark.gpu

ONES = TableLayout((1,), (1,), max_num_reqs=1, max_num_batched_tokens=1)
CAPTURED = {
    "gather_block_tables": ops.GATHER,
    "compute_slot_mappings": ops.SLOTS,
    "gather_and_compute_slot_mappings": ops.GATHER_SLOTS,
}
# A step of this variant is a replay of its own graph, whatever else is launched.
NAMES = [name for name in SHIPPED if name != "one_launch_graph"]
paths = pytest.mark.parametrize("path", ["compiled", "direct"])
all_paths = pytest.mark.parametrize("path", ["jit", "compiled", "direct"])


def shipped(name):
    return classes([name])[name]


def variant_by(name, path):
    """A variant that is launched by a path."""

    class Launched(shipped(name)):
        def __init__(self, layout, device):
            super().__init__(layout, device)
            self.launch_path = path

    return Launched


@paths
@pytest.mark.parametrize("name", NAMES)
def test_conformance(name, path, device):
    variants = {name: variant_by(name, path)}
    for title, workload in conformance_workloads(seed=3).items():
        found = failures(variants, workload, list(ops.OPERATIONS), device, title=title, rounds=2)
        assert found == {}


@pytest.mark.parametrize("name", SHIPPED)
def test_conformance_without_helpers_in_c(name, device):
    variants = {name: variant_of(name, native=False)}
    for title, workload in conformance_workloads(seed=4).items():
        found = failures(variants, workload, list(ops.OPERATIONS), device, title=title, rounds=2)
        assert found == {}


@paths
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("layout", [ONES, CORNERS], ids=["ones", "corners"])
@pytest.mark.parametrize("name", NAMES)
def test_unaligned_inputs(name, layout, dtype, path, device):
    """Aligned steps come first, so that a handle for these is there to be taken by mistake."""
    workload = random_workload(5, layout, num_steps=8, dtype=dtype)
    reference = load_reference()(layout, "cpu")
    tables = variant_by(name, path)(layout, device)
    for append in workload.setup:
        for each in (reference, tables):
            each.append_block_ids(append.row, append.block_ids, append.overwrite)
    host_steps = inputs_on(torch.device("cpu"), workload)
    for index, step in enumerate(host_steps):
        for each in (reference, tables):
            stage(each, step)
        bind(reference, ops.STEP, step)()
        inputs = (step.idx_mapping, step.query_start_loc, step.positions)
        moved = [shifted(tensor, index % 4, device) for tensor in inputs]
        tables.prepare_step(*moved, step.num_reqs_padded, step.num_tokens_padded)
        assert_equal(tables, reference)


def shifted(tensor, elements, device):
    """A copy on the device that begins `elements` after an aligned address."""
    buffer = torch.zeros(len(tensor) + elements, dtype=tensor.dtype, device=device)
    buffer[elements:] = tensor
    return buffer[elements:]


@all_paths
@pytest.mark.parametrize("method", CAPTURED)
@pytest.mark.parametrize("name", NAMES)
def test_replay_of_a_captured_call(name, method, path, device):
    assert_replayed(variant_by(name, path)(CORNERS, device), method, device)


@pytest.mark.parametrize("method", CAPTURED)
def test_replay_of_a_captured_call_of_a_variant_with_graphs_of_its_own(method, device):
    assert_replayed(shipped("one_launch_graph")(CORNERS, device), method, device)


def assert_replayed(tables, method, device):
    workload = random_workload(9, CORNERS, num_steps=1)
    reference = load_reference()(CORNERS, "cpu")
    (host_step,) = inputs_on(torch.device("cpu"), workload)
    (step,) = inputs_on(device, workload)
    for each in (reference, tables):
        for append in workload.setup:
            each.append_block_ids(append.row, append.block_ids, append.overwrite)
        stage(each, host_step)
        each.apply_staged_writes()
    state = tables.snapshot()
    call = bind(tables, CAPTURED[method], step)
    call()  # loads the binaries
    tables.restore(state)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    assert_equal(tables, reference)  # capturing runs nothing
    graph.replay()
    bind(reference, CAPTURED[method], host_step)()
    assert_equal(tables, reference)


# Threads

TABLE = TableLayout((16, 4), (8, 30), max_num_reqs=8, max_num_batched_tokens=64)
THREADS, CALLS = 6, 300


def filled(name, path, device):
    """Tables whose rows own all their columns, and have been launched for once."""
    tables = variant_by(name, path)(TABLE, device)
    for row in range(TABLE.max_num_reqs):
        ids = [[100 * row + column for column in range(width)] for width in TABLE.widths]
        tables.append_block_ids(row, ids, True)
    tables.apply_staged_writes()
    return tables


def one_request(row, device):
    """The batch of a thread: 64 tokens of its row, and where their slots go."""
    return (
        torch.tensor([row], device=device),
        torch.tensor([0, 64], dtype=torch.int32, device=device),
        torch.arange(64, device=device),
        torch.zeros(TABLE.num_groups, 64, dtype=torch.int64, device=device),
    )


def slots_of(row):
    """What a thread must find."""
    token = torch.arange(64)
    return torch.stack(
        [(100 * row + token // size) * size + token % size for size in TABLE.block_sizes]
    )


@paths
def test_threads_may_launch_a_kernel_at_once(path, device):
    """Each with arguments of its own: none takes those of another."""
    tables = filled("fused", path, device)
    batches = [one_request(row, device) for row in range(THREADS)]
    *inputs, out = batches[0]
    tables.compute_slot_mappings(*inputs, 64, out=out)  # loads the kernel
    torch.cuda.synchronize()
    together = Barrier(THREADS)

    def run(row):
        *inputs, out = batches[row]
        wrong = torch.zeros((), dtype=torch.int64, device=device)
        wanted = slots_of(row).to(device)
        together.wait()
        for _ in range(CALLS):
            out.fill_(-9)
            tables.compute_slot_mappings(*inputs, 64, out=out)
            wrong += (out != wanted).sum()
        return int(wrong)

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(run, range(THREADS))) == [0] * THREADS


@pytest.mark.parametrize("name", SHIPPED)
def test_a_thread_may_launch_that_has_not_used_the_device(name, device):
    path = "direct" if name in NAMES else "jit"
    tables = filled(name, path, device)
    *inputs, _ = one_request(3, device)

    def step(block_id):
        tables.append_block_ids(3, [[block_id], [block_id]], True)
        tables.prepare_step(*inputs, 1, 64)

    for block_id in (7, 8, 9):  # more than there are host buffers: all is loaded and captured
        step(block_id)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(step, 5).result()
    torch.cuda.synchronize()
    assert [int(table[0, 0]) for table in tables.input_block_tables] == [5, 5]
    assert tables.slot_mappings[:, 0].tolist() == [5 * size for size in TABLE.block_sizes]
