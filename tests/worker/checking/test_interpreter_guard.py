"""Races and bounds of kernels that the interpreter runs, on kernels that are wrong on purpose."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from support.variants import classes

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_bench.worker.checking import subject
from bt_bench.worker.checking.check import check
from bt_bench.worker.checking.interpreter_guard import OutOfBoundsError, RaceError, guarded_memory
from bt_kernels.layout import TableLayout

STEP = [ops.STEP]


@triton.jit
def exchange_kernel(source, target, flags, OWN: tl.constexpr, ATOMIC: tl.constexpr):
    """Program i writes element i, and reads it or its neighbour's."""
    program = tl.program_id(0) * 2 + tl.program_id(1)
    tl.store(target + program, tl.load(source + program))
    neighbour = program if OWN else (program + 3) % 4
    value = tl.load(target + neighbour)
    if ATOMIC:
        tl.atomic_add(flags, value)
    else:
        tl.store(flags, value)


class Owner:
    """What a variant is to the guard."""

    def __init__(self):
        self.tables = [torch.zeros(2, 2, dtype=torch.int32) for _ in range(2)]
        self.flags = torch.zeros(1, dtype=torch.int32)


def launch(own, atomic, elements=4):
    owner = Owner()
    with guarded_memory(owner):
        exchange_kernel[(2, elements // 2)](*owner.tables, owner.flags, own, atomic)
    return owner


def test_programs_that_keep_to_their_own_do_not_race():
    launch(own=True, atomic=True)


def test_a_race_names_kernel_programs_and_element():
    with pytest.raises(RaceError) as raised:
        launch(own=False, atomic=True)
    assert str(raised.value) == (
        "exchange_kernel, program (0, 0, 0), reads tables[1][1, 1], which program (1, 1, 0) of "
        "the same launch writes too"
    )


def test_two_writes_of_one_value_are_a_race():
    with pytest.raises(RaceError, match=r"program \(0, 0, 0\), writes flags\[0\], which program"):
        launch(own=True, atomic=False)


def test_what_a_launch_left_is_not_held_against_the_next():
    owner = Owner()
    with guarded_memory(owner):
        for programs in ((1, 1), (2, 2)):
            exchange_kernel[programs](*owner.tables, owner.flags, True, True)
    with pytest.raises(OutOfBoundsError, match=r"exchange_kernel, program \(1, 2, 0\), reads 1 "):
        launch(own=True, atomic=True, elements=8)


@triton.jit(do_not_specialize=["num_reqs"])
def gather_then_slots_kernel(
    source, target, positions, slots, starts, num_reqs, WIDTH: tl.constexpr, SIZE: tl.constexpr
):
    """Programs [0, R) copy rows as they are; the others take slots from the copies."""
    program = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    if program < num_reqs:
        row = tl.load(source + program * WIDTH + columns)
        tl.store(target + program * WIDTH + columns, row)
    else:
        request = program - num_reqs
        for token in range(tl.load(starts + request), tl.load(starts + request + 1)):
            position = tl.load(positions + token)
            block_id = tl.load(target + request * WIDTH + position // SIZE)
            tl.store(slots + token, block_id.to(tl.int64) * SIZE + position % SIZE)


def racy(variant):
    """A variant with this kernel in its step, made for tables of one group and whole rows."""

    class Racy(variant):
        def prepare_step(self, idx_mapping, query_start_loc, positions, num_reqs, num_tokens):
            result = super().prepare_step(
                idx_mapping, query_start_loc, positions, num_reqs, num_tokens
            )
            gather_then_slots_kernel[(2 * idx_mapping.shape[0],)](
                self.block_tables[0],
                self.input_block_tables[0],
                positions,
                self.slot_mappings,
                query_start_loc,
                idx_mapping.shape[0],
                self.layout.widths[0],
                self.layout.block_sizes[0],
            )
            return result

    return Racy


def whole_rows():
    """A workload in whose only step each request's row is full, and its own batch index."""
    layout = TableLayout((4,), (8,), max_num_reqs=2, max_num_batched_tokens=8)
    setup = tuple(Append(row, (list(range(8)),), overwrite=True) for row in range(2))
    step = step_of_requests([], [0, 1], [[3, 31], [0, 17, 4]])
    return Workload(layout, "int64", setup, (step,))


def test_a_race_that_no_comparison_can_see_is_rejected(device, monkeypatch):
    """In the order of the interpreter the copies are there when their slots are taken."""
    variants = {"racy": racy(classes(["fused"])["fused"])}
    reason = check(variants, whole_rows(), STEP, device)["racy", ops.STEP].reason
    assert reason.code == "race"
    assert reason.message.startswith(
        "check, round 0, step 0: gather_then_slots_kernel, program (2, 0, 0), reads "
        "input_block_tables[0][0, 0], which program (0, 0, 0) of the same launch writes too"
    )
    monkeypatch.setattr(subject.Subject, "_guard", lambda self, *given: guarded_memory())
    monkeypatch.setattr("bt_bench.worker.checking.interpreter_guard._Guard.check", lambda *_: None)
    assert check(variants, whole_rows(), STEP, device)["racy", ops.STEP].reason is None


def test_what_is_guarded_is_as_it_was_afterwards():
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    names = [name for name in dir(InterpreterBuilder) if name.startswith("create_")]
    before = [InterpretedFunction.run, *(getattr(InterpreterBuilder, name) for name in names)]
    with pytest.raises(RaceError):
        launch(own=False, atomic=True)
    after = [InterpretedFunction.run, *(getattr(InterpreterBuilder, name) for name in names)]
    assert before == after


@pytest.mark.parametrize("name", ["create_masked_load", "create_masked_store"])
def test_a_triton_that_calls_loads_or_stores_otherwise_is_not_left_unguarded(monkeypatch, name):
    from triton.runtime.interpreter import InterpreterBuilder

    monkeypatch.delattr(InterpreterBuilder, name)
    with pytest.raises(AttributeError, match=name), guarded_memory():
        pass
