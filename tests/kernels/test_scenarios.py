"""The suite's scenarios: all tables equal the reference after each call, in whole buffers."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest
from support.mutants import IN_A_SEQUENCE, write_mutant
from support.not_run import run_no_kernels
from support.playing import EngineTables, chosen, compare, first_of, scenario, watched
from support.variants import SHIPPED, classes

from bt_bench.protocol import MismatchError
from bt_bench.suites.block_tables.exploring.player import TablePlayer
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS
from bt_kernels.interface import COMPILED, DIRECT, JIT
from bt_kernels.one_launch import (
    KINDS,
    CarryingLaunch,
    OneLaunch,
    PinnedSteps,
    carrying,
)
from bt_kernels.one_launch.shapes import Payloads

PATHS = JIT, COMPILED, DIRECT
SHOW_MUTANTS = (0, 4, 21)  # played first, or tests of mutants would play many others before
# So that scenarios that are small reach every kind of launch.
PAYLOADS = Payloads(single_ids=2, few_ids=4, many_ids=6, few_apart=5, many_apart=8)


@pytest.fixture(autouse=True)
def small_payloads(monkeypatch):
    monkeypatch.setattr(carrying, "PAYLOADS_INTERPRETED", PAYLOADS)


class FallsBack(OneLaunch):
    """Handles every other step as one whose writes no parameters can tell."""

    carries_next = False

    def _make_quick(self):
        pass

    def _launch_step(self, batch, options):
        carrying = self._carrying
        self.carries_next = not self.carries_next
        if not self.carries_next:
            self._carrying = None
        try:
            super()._launch_step(batch, options)
        finally:
            self._carrying = carrying


SUBJECTS = {**classes(SHIPPED), "BlockTables": EngineTables, "FallsBack": FallsBack}
every_subject = pytest.mark.parametrize("name", SUBJECTS)


def play(name, numbers, device, *, seed=0):
    """Plays scenarios: half of them without helpers in C, and by each launch path in turn."""
    for number in numbers:
        tables = chosen(SUBJECTS[name], native=number % 2 == 0, path=PATHS[number // 2 % 3])
        compare(tables, scenario(SUBJECTS[name], number, seed=seed), device)


@pytest.mark.slow
@pytest.mark.sampled(2)
@every_subject
def test_a_few_scenarios(name, device):
    """Of those that are slow."""
    play(name, map(first_of, ("mixed", "snapshots and dummies")), device)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@every_subject
def test_every_scenario(name, seed, device):
    play(name, range(SCENARIOS), device, seed=seed)


@pytest.mark.gpu
@every_subject
def test_every_fifth_scenario_on_a_gpu(name, device):
    """`check` plays all of them there; compiling takes most of the time."""
    play(name, range(0, SCENARIOS, 5), device, seed=9)


def test_a_call_that_changes_what_is_current_is_found(device):
    """As `test_other_device` looks for on two GPUs."""
    current = [0]

    class Changes(SUBJECTS["fused"]):
        def gather_block_tables(self, *batch, **options):
            current.append(7)
            return super().gather_block_tables(*batch, **options)

    guard = watched(lambda: current[-1], before=lambda: current.append(len(current)))
    made = scenario(Changes, first_of("several tables"))
    compare(SUBJECTS["fused"], made, device, guard)
    assert len(current) > len(made.calls) / 2
    with pytest.raises(AssertionError):
        compare(Changes, made, device, guard)


@pytest.mark.parametrize("name", IN_A_SEQUENCE)
def test_a_mutant_is_found(name, device, tmp_path):
    """These `check` finds by scenarios, and by no workload."""
    mutant = classes([name], [write_mutant(tmp_path, name)])[name]

    def play_all():
        for number in (*SHOW_MUTANTS, *range(SCENARIOS)):
            compare(mutant, scenario(mutant, number, seed=1), device)

    with pytest.raises(MismatchError):
        play_all()


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False], ids=["C", "Python"])
@pytest.mark.parametrize("name", ["one_launch", "FallsBack"])
def test_writes_are_carried_in_every_way(name, native, device, monkeypatch):
    """By steps that have some; nothing is run."""
    run_no_kernels(monkeypatch)
    steps = Counter()
    kind_of, run = CarryingLaunch._kind, PinnedSteps.run

    def noted_kind(self, num_pieces, head, *sizes):
        kind = kind_of(self, num_pieces, head, *sizes)
        steps.update([kind] if head else [])
        return kind

    def noted_run(self, tables, *arguments):
        steps.update(["pinned"] if tables._staged else [])
        run(self, tables, *arguments)

    monkeypatch.setattr(CarryingLaunch, "_kind", noted_kind)
    monkeypatch.setattr(PinnedSteps, "run", noted_run)
    tables = chosen(SUBJECTS[name], native=native)
    for number in range(SCENARIOS):
        made = scenario(SUBJECTS[name], number)
        for _ in TablePlayer().play(tables, made, device, lambda *_: nullcontext()):
            pass
    kinds = [*KINDS, "pinned"] if name == "FallsBack" else KINDS
    assert min(steps[kind] for kind in kinds) > 3, steps
