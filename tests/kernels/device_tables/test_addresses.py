"""What gather and slots read is at the same place in every step: graphs can be captured of them."""

from __future__ import annotations

import pytest
import torch
from support.mutants import FROZEN, write_mutant
from support.variants import SHIPPED, classes

from bt_kernels.layout import TableLayout

LAYOUT = TableLayout((4, 4), (3, 5), max_num_reqs=2, max_num_batched_tokens=4)
STEPS = 4


def given_to_launches(variant, device):
    """Per step, the tables' own tensors that a step without writes is launched with.

    Each as the tensor, which keeps its place from being used again, and a copy.
    """
    tables = variant(LAYOUT, device)
    batch = (
        torch.tensor([1], device=device),
        torch.tensor([0, 1], dtype=torch.int32, device=device),
        torch.tensor([0], device=device),
    )
    steps = []
    carrying = getattr(tables, "_carrying", None)  # launches the parts of `one_launch`
    launch, launch_part = tables.launch, getattr(carrying, "_launch", None)

    def note(arguments):
        mine = [
            value
            for value in arguments
            if isinstance(value, torch.Tensor) and not any(value is given for given in batch)
        ]
        steps[-1] += [(tensor, tensor.clone()) for tensor in mine]

    def noted(kernel, grid, arguments, *others):
        note(arguments)
        launch(kernel, grid, arguments, *others)

    def noted_part(binary, grid, arguments):
        note((*arguments, carrying._in_memory[slice(*carrying._words_of(binary.kind))]))
        launch_part(binary, grid, arguments)

    def notes(launch, launch_part):
        tables.launch = launch
        if carrying is not None:
            carrying._launch = launch_part

    for number in range(STEPS):
        tables.append_block_ids(1, [[number], [number]], overwrite=True)
        notes(launch, launch_part)
        tables.apply_staged_writes()
        notes(noted, noted_part)
        steps.append([])
        for call, arguments in (
            (tables.gather_block_tables, (batch[0], 1)),
            (tables.compute_slot_mappings, (*batch, 1)),
            (tables.gather_and_compute_slot_mappings, (*batch, 1, 1)),
        ):
            num_noted = len(steps[-1])
            call(*arguments)
            assert len(steps[-1]) > num_noted, f"no launch of {call.__name__} was seen"
    return steps


def are_persistent(steps):
    first = steps[0]
    return all(
        [tensor.data_ptr() for tensor, _ in step] == [tensor.data_ptr() for tensor, _ in first]
        and all(torch.equal(one, other) for (_, one), (_, other) in zip(step, first, strict=True))
        for step in steps
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_all_that_is_not_an_argument_is_where_it_was(name, device):
    assert are_persistent(given_to_launches(classes([name])[name], device))


@pytest.mark.parametrize("name", FROZEN)
def test_an_address_that_changes_is_found(name, device, tmp_path):
    variant = classes([name], [write_mutant(tmp_path, name)])[name]
    assert not are_persistent(given_to_launches(variant, device))


def replayed(variant, device):
    """Block ids that replays of one captured gather find, after as many steps."""
    tables = variant(LAYOUT, device)
    row = torch.tensor([1], device=device)
    tables.gather_block_tables(row, 1)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (table, _) = tables.gather_block_tables(row, 1)
    found = []
    for number in range(1, STEPS):
        tables.append_block_ids(1, [[number], [number]], overwrite=False)
        tables.apply_staged_writes()
        graph.replay()
        found.append(table[0, :number].tolist())
    return found


WANTED = [list(range(1, number + 1)) for number in range(1, STEPS)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_replays_see_every_step(name, device):
    assert replayed(classes([name])[name], device) == WANTED


@pytest.mark.gpu
@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_pointer_is_found(name, device, tmp_path):
    variant = classes([name], [write_mutant(tmp_path, name)])[name]
    assert replayed(variant, device) != WANTED
