"""Steps and slots in CUDA graphs, replayed while batch, mapping, positions and writes change."""

from __future__ import annotations

import random

import pytest
import torch
from support.variants import SHIPPED, assert_equal, classes, variant_of

from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout

LAYOUT = TableLayout(
    (16, 64, 5),
    (8, 2, 30),
    max_num_reqs=6,
    max_num_batched_tokens=32,
    sliding_window_reach=(20, 0, 7),
    slot_mapping_enabled=(True, True, False),
)
ROWS, TOKENS = 4, 24  # of the captured step
# That which shares its code with the others, and those with kernels of their own.
KINDS = ["fused", "one_launch", "one_launch_graph"]

pytestmark = pytest.mark.gpu


class Inputs:
    """The persistent inputs that graphs read, all of them dummy requests at first."""

    def __init__(self, device):
        self.idx_mapping = torch.full((ROWS,), -1, device=device)
        self.query_start_loc = torch.zeros(ROWS + 1, dtype=torch.int32, device=device)
        self.positions = torch.zeros(TOKENS, dtype=torch.int64, device=device)
        self.computed = torch.zeros(LAYOUT.max_num_reqs, dtype=torch.int32, device=device)

    def batch(self):
        return self.idx_mapping, self.query_start_loc, self.positions

    def draw(self, rng):
        """A new batch in place."""
        num_reqs = rng.randint(0, ROWS)
        rows = rng.sample(range(LAYOUT.max_num_reqs), num_reqs)
        starts = [0]
        for _ in rows:
            starts.append(starts[-1] + rng.randint(0, TOKENS // ROWS))
        starts += [starts[-1]] * (ROWS - num_reqs)
        self.idx_mapping.copy_(torch.tensor(rows + [-1] * (ROWS - num_reqs)))
        self.query_start_loc.copy_(torch.tensor(starts))
        self.positions.copy_(torch.tensor([rng.randrange(160) for _ in range(TOKENS)]))
        self.computed.copy_(torch.tensor([rng.randrange(100) for _ in range(LAYOUT.max_num_reqs)]))


def on_host(tensors):
    return [tensor.cpu() for tensor in tensors]


def stage_some(rng, *tables):
    for _ in range(rng.randrange(4)):
        row, overwrite = rng.randrange(LAYOUT.max_num_reqs), rng.random() < 0.5
        ids = []
        for group, width in enumerate(LAYOUT.widths):
            room = width - (0 if overwrite else int(tables[0].num_blocks[group, row]))
            ids.append([rng.randrange(1, 2**31) for _ in range(rng.randint(0, room))])
        for each in tables:
            each.append_block_ids(row, ids, overwrite)


def captured(call):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


@pytest.mark.parametrize("path", ["jit", "compiled", "direct", "jit without C"])
@pytest.mark.parametrize("name", SHIPPED)
def test_replays_are_exact_between_steps_of_every_kind(name, path, device):
    rng = random.Random(0)
    path, _, without = path.partition(" ")
    tables = variant_of(name, not without)(LAYOUT, device)
    if path != "jit" and tables.launch_paths == ("jit",):
        pytest.skip("its steps are replays of its own graphs")
    tables.launch_path = path
    reference = load_reference()(LAYOUT, "cpu")
    inputs = Inputs(device)
    computed = {"num_computed_tokens": inputs.computed}
    tables.capture_step(*inputs.batch(), ROWS, TOKENS, **computed)
    reference.prepare_step(*on_host(inputs.batch()), ROWS, TOKENS)
    whole, step = captured(lambda: tables.capture_step(*inputs.batch(), ROWS, TOKENS, **computed))
    slots, _ = captured(lambda: tables.compute_slot_mappings(*inputs.batch(), TOKENS))
    for _ in range(80):
        stage_some(rng, tables, reference)
        inputs.draw(rng)
        kind = rng.choice(["replay", "replay", "slots", "larger"])
        if kind == "replay":
            step.publish()
            whole.replay()
            reference.prepare_step(
                *on_host(inputs.batch()), ROWS, TOKENS, num_computed_tokens=inputs.computed.cpu()
            )
        elif kind == "slots":
            tables.apply_staged_writes()
            reference.apply_staged_writes()
            slots.replay()
            reference.compute_slot_mappings(*on_host(inputs.batch()), TOKENS)
        else:
            batch = (
                torch.randperm(LAYOUT.max_num_reqs),
                torch.tensor([0, 3, 5, 9, 9, 12, 20], dtype=torch.int32),
                torch.randint(0, 160, (25,)),
            )
            tables.prepare_step(*(t.to(device) for t in batch), LAYOUT.max_num_reqs, 30)
            reference.prepare_step(*batch, LAYOUT.max_num_reqs, 30)
        assert_equal(tables, reference)


@pytest.mark.parametrize("name", KINDS)
def test_a_burst_larger_than_the_captured_buffer_is_written(name, device):
    layout = TableLayout((1,), (4000,), max_num_reqs=2, max_num_batched_tokens=8)
    tables = classes([name])[name](layout, device)
    idx_mapping = torch.tensor([1, 0], device=device)
    starts = torch.tensor([0, 1, 2], dtype=torch.int32, device=device)
    positions = torch.tensor([3999, 3998], device=device)
    tables.capture_step(idx_mapping, starts, positions, 2, 2)
    graph, step = captured(lambda: tables.capture_step(idx_mapping, starts, positions, 2, 2))
    tables.append_block_ids(1, [range(1, 4001)], True)
    tables.append_block_ids(0, [range(5001, 9001)], True)
    step.publish()
    graph.replay()
    assert step.slot_mappings.tolist() == [[4000, 8999]]
    assert step.block_tables[0][0, :3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", KINDS)
def test_what_was_published_and_not_replayed_is_not_lost(name, device):
    tables = classes([name])[name](LAYOUT, device)
    inputs = Inputs(device)
    tables.capture_step(*inputs.batch(), ROWS, TOKENS)
    graph, step = captured(lambda: tables.capture_step(*inputs.batch(), ROWS, TOKENS))
    for block_id in (7, 8, 9):
        tables.append_block_ids(1, [[block_id], [], []], False)
        step.publish()
    graph.replay()
    graph.replay()
    assert tables.block_tables[0][1, :4].tolist() == [7, 8, 9, 0]


@pytest.mark.parametrize("name", KINDS)
def test_the_first_call_cannot_be_captured(name, device):
    tables = classes([name])[name](LAYOUT, device)
    inputs = Inputs(device)
    with pytest.raises(ValueError, match="call it once before"):
        captured(lambda: tables.capture_step(*inputs.batch(), ROWS, TOKENS))


@pytest.mark.parametrize("name", KINDS)
def test_replays_are_exact_when_the_device_is_late(name, device):
    rng = random.Random(1)
    tables = classes([name])[name](LAYOUT, device)
    reference = load_reference()(LAYOUT, "cpu")
    inputs = Inputs(device)
    inputs.draw(rng)
    tables.capture_step(*inputs.batch(), ROWS, TOKENS)
    reference.prepare_step(*on_host(inputs.batch()), ROWS, TOKENS)
    graph, step = captured(lambda: tables.capture_step(*inputs.batch(), ROWS, TOKENS))
    found, wanted = [], []
    for _ in range(5):
        torch.cuda._sleep(20_000_000)
        stage_some(rng, tables, reference)
        step.publish()
        graph.replay()
        found.append(tables.slot_mappings.clone())
        reference.prepare_step(*on_host(inputs.batch()), ROWS, TOKENS)
        wanted.append(reference.slot_mappings.clone())
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_captured_step_launches(name, device):
    """Kernels of its graph."""
    tables = classes([name])[name](LAYOUT, device)
    inputs = Inputs(device)
    tables.capture_step(*inputs.batch(), ROWS, TOKENS)
    launched = []
    launch = tables.launch
    tables.launch = lambda kernel, *rest: launched.append(kernel) or launch(kernel, *rest)
    captured(lambda: tables.capture_step(*inputs.batch(), ROWS, TOKENS))
    wanted = {"one_launch": 1, "one_launch_graph": 1, "fused": 2, "fused_gather_slots": 2}
    assert len(launched) == wanted.get(name, 3)
