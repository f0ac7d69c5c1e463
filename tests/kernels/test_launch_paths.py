"""Launch paths: what is offered where, which handle a launch takes, and that results are equal."""

from __future__ import annotations

import pytest
import torch
from variants import SHIPPED, classes, failures

from bt_bench.arms import bind, inputs_on, stage
from bt_bench.catalogue import load_reference
from bt_bench.model import Operation
from bt_bench.workloads.conformance import CORNERS, conformance_workloads, random_workload
from bt_kernels import TableLayout
from bt_kernels.interface import BlockTableOperations
from bt_kernels.launches import CompiledLaunches, launch_jit

ONES = TableLayout((1,), (1,), max_num_reqs=1, max_num_batched_tokens=1)
CAPTURED = {
    "gather_block_tables": Operation.GATHER,
    "compute_slot_mappings": Operation.SLOTS,
    "gather_and_compute_slot_mappings": Operation.GATHER_SLOTS,
}


def shipped(name):
    return classes([name])[name]


# What is offered


@pytest.mark.parametrize("name", SHIPPED)
def test_kernels_that_are_interpreted_have_no_handles(name, device):
    tables = shipped(name)(CORNERS, device)
    assert (tables.launch_path, tables.launch_paths) == ("jit", ("jit",))
    with pytest.raises(ValueError, match="launch_path is 'compiled'; expected 'jit' on cpu"):
        tables.launch_path = "compiled"
    assert tables.launch_path == "jit"


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_compiled_kernels_have_handles(name, device):
    tables = shipped(name)(CORNERS, device)
    assert (tables.launch_path, tables.launch_paths) == ("jit", ("jit", "compiled"))
    tables.launch_path = "compiled"
    assert tables.launch_path == "compiled"
    with pytest.raises(ValueError, match="launch_path is 'graph'; expected 'jit' or 'compiled'"):
        tables.launch_path = "graph"
    assert tables.launch_path == "compiled"


def test_variants_that_say_nothing_offer_tritons_call_only():
    tables = load_reference()(CORNERS, "cpu")
    assert (tables.launch_path, tables.launch_paths, tables.capturable) == ("jit", ("jit",), set())


@pytest.mark.parametrize("name", SHIPPED)
def test_what_may_be_captured_are_methods_that_publish_nothing(name):
    assert shipped(name).capturable == set(CAPTURED)
    assert all(hasattr(BlockTableOperations, method) for method in CAPTURED)


# Which handle a launch takes


class FakeKernel:
    """Notes its launches; the call of `kernel[grid]` returns a handle that notes them too."""

    def __init__(self, log, name="kernel"):
        self.log = log
        self.name = name
        self.handles = 0

    def __getitem__(self, grid):
        def call(*values):
            self.log.append((self.name, grid, values))
            if self.name != "kernel":
                return None
            self.handles += 1
            return FakeKernel(self.log, f"handle {self.handles}")

        return call


def launched(*launches):
    """Names of what was called for launches `(arguments, constants, inputs)` of one kernel."""
    log = []
    kernel = FakeKernel(log)
    compiled = CompiledLaunches()
    for arguments, constants, inputs in launches:
        compiled(kernel, (2, 1, 1), arguments, constants, inputs)
    assert [entry[1:] for entry in log] == [((2, 1, 1), (*a, *c)) for a, c, _ in launches]
    return [name for name, _, _ in log]


def test_tritons_call_gets_arguments_and_constants_in_order():
    log = []
    launch_jit(FakeKernel(log), (2, 3, 1), (5, 6), (-1, 7), ())
    assert log == [("kernel", (2, 3, 1), (5, 6, -1, 7))]


def test_later_launches_take_the_handle_of_the_first():
    aligned = torch.zeros(8, dtype=torch.int64)
    calls = [((aligned, size), (4,), (aligned,)) for size in (1, 16, 3)]
    assert launched(*calls) == ["kernel", "handle 1", "handle 1"]


def test_each_binary_has_its_own_handle():
    buffer = torch.zeros(9, dtype=torch.int64)
    aligned, unaligned = buffer[:8], buffer[1:]
    narrow = torch.zeros(8, dtype=torch.int32)
    assert [t.data_ptr() % 16 for t in (aligned, unaligned, narrow)] == [0, 8, 0]
    calls = [((1,), (4,), inputs) for inputs in ((aligned,), (unaligned,), (narrow,))]
    calls.append(((1,), (8,), (aligned,)))
    first = ["kernel"] * 4
    assert launched(*calls, *calls) == [*first, *(f"handle {n}" for n in (1, 2, 3, 4))]


def test_alignment_is_that_of_each_input():
    buffer = torch.zeros(9, dtype=torch.int64)
    one, other = buffer[:8], buffer[1:]
    calls = [((1,), (4,), inputs) for inputs in ((one, other), (other, one))]
    assert launched(*calls, *calls) == ["kernel", "kernel", "handle 1", "handle 2"]


def test_kernels_do_not_share_handles():
    log = []
    compiled = CompiledLaunches()
    one, other = FakeKernel(log), FakeKernel(log)
    for kernel in (one, other):
        compiled(kernel, (1, 1, 1), (), (), ())
    assert (one.handles, other.handles) == (1, 1)


# Equality on a GPU


def compiled_variant(name):
    class Compiled(shipped(name)):
        def __init__(self, layout, device):
            super().__init__(layout, device)
            self.launch_path = "compiled"

    return Compiled


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_conformance_through_handles(name, device):
    variants = {name: compiled_variant(name)}
    for title, workload in conformance_workloads(seed=3).items():
        found = failures(variants, workload, list(Operation), device, title=title, rounds=2)
        assert found == {}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("layout", [ONES, CORNERS], ids=["ones", "corners"])
@pytest.mark.parametrize("name", SHIPPED)
def test_unaligned_inputs_through_handles(name, layout, dtype, device):
    """Aligned steps come first, so that a handle for these is there to be taken by mistake."""
    workload = random_workload(5, layout, num_steps=8, dtype=dtype)
    reference = load_reference()(layout, "cpu")
    tables = compiled_variant(name)(layout, device)
    for append in workload.setup:
        for each in (reference, tables):
            each.append_block_ids(append.row, append.block_ids, append.overwrite)
    host_steps = inputs_on(torch.device("cpu"), workload)
    for index, step in enumerate(host_steps):
        for each in (reference, tables):
            stage(each, step)
        bind(reference, Operation.STEP, step)()
        inputs = (step.idx_mapping, step.query_start_loc, step.positions)
        moved = [shifted(tensor, index % 4, device) for tensor in inputs]
        tables.prepare_step(*moved, step.num_reqs_padded, step.num_tokens_padded)
        assert_equal(tables, reference)


def shifted(tensor, elements, device):
    """A copy on the device that begins `elements` after an aligned address."""
    buffer = torch.zeros(len(tensor) + elements, dtype=tensor.dtype, device=device)
    buffer[elements:] = tensor
    return buffer[elements:]


def assert_equal(tables, reference):
    for found, wanted in [
        *zip(tables.block_tables, reference.block_tables, strict=True),
        *zip(tables.input_block_tables, reference.input_block_tables, strict=True),
        (tables.slot_mappings, reference.slot_mappings),
    ]:
        assert torch.equal(found.cpu().to(torch.int64), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["jit", "compiled"])
@pytest.mark.parametrize("method", CAPTURED)
@pytest.mark.parametrize("name", SHIPPED)
def test_replay_of_a_captured_call(name, method, path, device):
    workload = random_workload(9, CORNERS, num_steps=1)
    reference = load_reference()(CORNERS, "cpu")
    tables = shipped(name)(CORNERS, device)
    tables.launch_path = path
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
