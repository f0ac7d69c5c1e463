"""The host runs ahead of a busy device; what the device has yet to read is not rewritten."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.mutants import OVERWRITTEN, write_mutant
from support.variants import SHIPPED, classes, variant_of

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind, stage
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads.conformance.plain import CORNERS
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import PAYLOADS

HOLD_CYCLES = 100_000_000  # about 50 ms at 2 GHz
STEPS_IN_FLIGHT = 8
SPARE_ROW = CORNERS.max_num_reqs
MANY_IDS = 2 * max(PAYLOADS)  # more than any launch carries beside something else
SPARE_IDS = [[], [7] * MANY_IDS, [8]]
WITH_SPARE_ROW = replace(CORNERS, widths=(6, MANY_IDS, 1), max_num_reqs=SPARE_ROW + 1)

pytestmark = pytest.mark.gpu
natives = pytest.mark.parametrize("native", [True, False], ids=["C", "Python"])


def run_ahead(variant, device, num_steps, **options):
    """Runs steps while the device is held; returns what each left, and whether it was held still.

    Every step writes something, if only to a row of no request, so that each needs a host buffer.
    """
    workload = random_workload(11, CORNERS, num_steps=num_steps)
    workload = replace(workload, layout=WITH_SPARE_ROW)
    tables = variant(workload.layout, device, **options)
    steps = inputs_on(device, workload)
    set_up(tables, workload)
    state = tables.snapshot()
    # Loads the kernels and grows each buffer to what it will need; a new one waits for the device.
    for _ in range(STEPS_IN_FLIGHT + 1):
        for step in steps:
            stage(tables, step)
            tables.append_block_ids(SPARE_ROW, SPARE_IDS, True)
            bind(tables, ops.STEP, step)()
            torch.cuda.synchronize()
        tables.restore(state)
    torch.cuda.synchronize()

    held = torch.cuda.Event()
    torch.cuda._sleep(HOLD_CYCLES)
    held.record()
    outputs = []
    for step in steps:
        stage(tables, step)
        tables.append_block_ids(SPARE_ROW, SPARE_IDS, True)
        bind(tables, ops.STEP, step)()
        outputs.append([t.clone() for t in (*tables.input_block_tables, tables.slot_mappings)])
    was_held = not held.query()
    torch.cuda.synchronize()
    return workload, outputs, was_held


def set_up(tables, workload):
    for append in workload.setup:
        tables.append_block_ids(append.row, append.block_ids, append.overwrite)
    tables.apply_staged_writes()


def assert_exact(workload, outputs):
    reference = load_reference()(workload.layout, "cpu")
    set_up(reference, workload)
    for step, found in zip(inputs_on(torch.device("cpu"), workload), outputs, strict=True):
        stage(reference, step)
        reference.append_block_ids(SPARE_ROW, SPARE_IDS, True)
        bind(reference, ops.STEP, step)()
        wanted = (*reference.input_block_tables, reference.slot_mappings)
        assert all(bool((a.cpu() == b).all()) for a, b in zip(found, wanted, strict=True))


@natives
@pytest.mark.parametrize("name", SHIPPED)
def test_outputs_are_exact_when_the_device_is_late(name, native, device):
    variant = variant_of(name, native)
    depth = variant(CORNERS, device)._ring.num_buffers
    workload, outputs, _ = run_ahead(variant, device, depth + 3)
    assert_exact(workload, outputs)


@natives
@pytest.mark.parametrize("name", SHIPPED)
def test_a_promised_bound_is_used_up_without_waiting(name, native, device):
    workload, outputs, was_held = run_ahead(
        variant_of(name, native), device, STEPS_IN_FLIGHT, steps_in_flight=STEPS_IN_FLIGHT
    )
    assert was_held, "the host waited for the device, or the device was not held for long enough"
    assert_exact(workload, outputs)


@natives
def test_a_graph_does_not_count_on_a_promise(native, device):
    # Steps without writes take a buffer too, and are not among those that are promised.
    variant = variant_of("one_launch_graph", native)
    workload, outputs, _ = run_ahead(variant, device, STEPS_IN_FLIGHT, steps_in_flight=1)
    assert_exact(workload, outputs)


# Steps in graphs, whose replays read one buffer

LAYOUT = TableLayout((16,), (8,), max_num_reqs=2, max_num_batched_tokens=4)
REPLAYS = 5


class Captured:
    """A captured step of one request of row 1, with tables that own nothing yet."""

    def __init__(self, variant, device):
        self.tables = variant(LAYOUT, device)
        batch = (
            torch.tensor([1], device=device),
            torch.tensor([0, 1], dtype=torch.int32, device=device),
            torch.tensor([3], device=device),
        )

        def capture():
            return self.tables.capture_step(*batch, 1, 4)

        capture()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step = capture()
        # Records the event once, and loads what zeroes and copies.
        self.publish(99)
        self.graph.replay()
        self.step.slot_mappings.clone()
        torch.cuda.synchronize()

    def publish(self, block_id):
        self.tables.append_block_ids(1, [[block_id, block_id]], True)
        self.step.publish()


def published_late(variant, device):
    """First slots that replays find, each published while the device is held."""
    captured = Captured(variant, device)
    found = []
    for block_id in range(REPLAYS):
        torch.cuda._sleep(HOLD_CYCLES)
        captured.publish(block_id)
        captured.graph.replay()
        found.append(captured.step.slot_mappings[0, 0].clone())
    torch.cuda.synchronize()
    return [int(slot) // 16 for slot in found]


@natives
@pytest.mark.parametrize("name", SHIPPED)
def test_replays_read_what_was_published_for_them_when_the_device_is_late(name, native, device):
    assert published_late(variant_of(name, native), device) == list(range(REPLAYS))


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_a_publication_that_does_not_wait_is_found(name, device, tmp_path):
    variant = classes([name], [write_mutant(tmp_path, name)])[name]
    assert published_late(variant, device) != list(range(REPLAYS))


@natives
@pytest.mark.parametrize("name", SHIPPED)
def test_a_publication_waits_for_the_read_alone(name, native, device):
    """Not for what is enqueued behind the replay."""
    captured = Captured(variant_of(name, native), device)
    captured.publish(5)
    captured.graph.replay()
    first = captured.step.slot_mappings.clone()
    held = torch.cuda.Event()
    torch.cuda._sleep(HOLD_CYCLES)  # work of the engine, behind the step
    held.record()
    captured.publish(6)
    was_held = not held.query()
    captured.graph.replay()
    second = captured.step.slot_mappings.clone()
    torch.cuda.synchronize()
    assert was_held, "publish waited for the work behind the replay"
    assert (int(first[0, 0]), int(second[0, 0])) == (5 * 16 + 3, 6 * 16 + 3)


@natives
@pytest.mark.parametrize("name", ["one_launch", "one_launch_graph"])
def test_an_eager_step_may_follow_a_publication_when_the_device_is_late(name, native, device):
    """A step that was published and never replayed is applied first, from the same buffer."""
    captured = Captured(variant_of(name, native), device)
    batch = (
        torch.tensor([1], device=device),
        torch.tensor([0, 1], dtype=torch.int32, device=device),
        torch.tensor([19], device=device),  # the second block of a row
    )
    found = []
    for block_id in range(1, REPLAYS + 1):
        torch.cuda._sleep(HOLD_CYCLES)
        captured.publish(block_id)
        found.append(captured.tables.prepare_step(*batch, 1, 4)[1][0, 0].clone())
        captured.publish(block_id + 50)
        captured.graph.replay()
        found.append(captured.step.slot_mappings[0, 0].clone())
    torch.cuda.synchronize()
    wanted = [number for one in range(1, REPLAYS + 1) for number in (one, one + 50)]
    assert [int(slot) // 16 for slot in found] == wanted
