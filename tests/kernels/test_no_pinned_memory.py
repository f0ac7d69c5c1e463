"""Where the device does not see pinned memory, writes are copied to it, and results are right."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from support.playing import EngineTables, chosen, compare, first_of, scenario
from support.stale_memory import MODES, StaleMemory
from support.variants import SHIPPED, classes

from bt_bench.protocol import MismatchError
from bt_bench.suites.block_tables.exploring.schedule import SCENARIOS
from bt_kernels import BlockTables
from bt_kernels.device_tables import state
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import (
    FEW_IDS,
    MANY_IDS,
    PARTS,
    SINGLE_IDS,
    CarryingLaunch,
    OneLaunch,
)

pytestmark = pytest.mark.filterwarnings("ignore:pinned memory does not work:RuntimeWarning")

LAYOUT = TableLayout((16,), (40,), max_num_reqs=4, max_num_batched_tokens=16)
BATCH = (torch.tensor([1]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([3]))


class NeverCarries(OneLaunch):
    """Makes every step of marks and records in memory."""

    carries = False


SUBJECTS = {**classes(SHIPPED), "BlockTables": EngineTables, "NeverCarries": NeverCarries}
every_subject = pytest.mark.parametrize("name", SUBJECTS)


def play(name, numbers, device):
    for number in numbers:
        tables = chosen(SUBJECTS[name], native=number % 2 == 0)
        made = scenario(SUBJECTS[name], number)
        compare(tables, made, device, lambda *_: nullcontext())


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
@every_subject
def test_scenarios_have_the_right_results(name, mode, device, monkeypatch):
    memory = StaleMemory(monkeypatch, mode)
    themes = ("mixed", "captured steps")
    play(name, map(first_of, themes), device)
    assert memory.replaced in (1, 2), "only the probe"


@pytest.mark.gpu
@every_subject
def test_copies_have_the_right_results_on_a_gpu(name, device, monkeypatch):
    monkeypatch.setattr(state.launches, "why_not_pinned", lambda _: "a made-up fault")
    play(name, map(first_of, ("mixed", "captured steps", "many writes", "decoding")), device)


@pytest.mark.slow
@every_subject
def test_every_scenario_has_the_right_results(name, device, monkeypatch):
    StaleMemory(monkeypatch)
    play(name, range(SCENARIOS), device)


@pytest.mark.parametrize("name", ["baseline", "one_launch_graph", "NeverCarries"])
def test_without_the_fallback_results_are_wrong(name, device, monkeypatch):
    """Or the memory that stands in for such a machine's would show nothing."""
    StaleMemory(monkeypatch)
    monkeypatch.setattr(state.launches, "why_not_pinned", lambda _: None)
    with pytest.raises((MismatchError, AssertionError, ValueError)):
        play(name, [first_of("mixed")], device)


def append(tables, *ids, overwrite=False):
    tables.append_block_ids(1, [list(ids)], overwrite)


def row(tables, count):
    return tables.block_tables[0][1, :count].tolist()


@every_subject
def test_whole_steps_and_captured_ones(name, device, monkeypatch):
    StaleMemory(monkeypatch)
    tables = SUBJECTS[name](LAYOUT, device)
    step = tables.capture_step(*BATCH, 1, 4)
    variant = getattr(tables, "variant", tables)

    def replay():
        variant._launch_captured(*BATCH, 1, 4, None)

    append(tables, 7, 8, overwrite=True)
    step.publish()
    replay()
    assert row(tables, 3) == [7, 8, 0]
    assert tables.input_block_tables[0][0, :3].tolist() == [7, 8, 0]
    assert tables.slot_mappings[0, 0] == 7 * 16 + 3
    append(tables, 9)
    step.publish()  # and never replayed
    append(tables, *range(10, 30))
    tables.prepare_step(*BATCH, 1, 4)
    assert row(tables, 24) == [7, 8, *range(9, 30), 0]
    append(tables, 30)
    tables.apply_staged_writes()
    append(tables, 31)
    step.publish()
    append(tables, 32)
    replay()
    tables.gather_block_tables(torch.tensor([1]), 1)
    assert row(tables, 26) == [7, 8, *range(9, 32), 0]
    step.publish()
    replay()
    assert row(tables, 27) == [7, 8, *range(9, 33), 0]
    state = tables.snapshot()
    append(tables, 33)
    step.publish()
    tables.restore(state)
    replay()
    assert row(tables, 27) == [7, 8, *range(9, 33), 0]


def test_writes_grow_the_copy(device, monkeypatch):
    StaleMemory(monkeypatch)
    layout = TableLayout((16,), (9_000,), max_num_reqs=2, max_num_batched_tokens=16)
    for name in ("fused", "one_launch", "one_launch_graph"):
        tables = SUBJECTS[name](layout, device)
        for count in (1, 300, 8_000, 2):
            tables.append_block_ids(1, [list(range(count))], True)
            tables.prepare_step(*BATCH, 1, 4)
            assert row(tables, count) == list(range(count))


def test_tables_say_which_they_use(device, monkeypatch):
    assert BlockTables([16], 4, 16, [8], device).pinned_memory
    StaleMemory(monkeypatch)
    for _ in range(2):
        assert not BlockTables([16], 4, 16, [8], device).pinned_memory
    assert BlockTables([], 4, 16, [], device).pinned_memory


def test_code_in_c_does_not_pass_on_addresses_of_host_memory(device, monkeypatch):
    added = []

    class Quick:
        def add(self, *place):
            added.append(place[1])

    def kinds(tables):
        added.clear()
        carrying = tables._carrying
        assert isinstance(carrying, CarryingLaunch)
        carrying._kept = dict.fromkeys(carrying.binaries(aligned=False), "a launch")
        carrying.attach(Quick())
        return set(added)

    wide = TableLayout((16,), (40_000,), max_num_reqs=4, max_num_batched_tokens=16)
    in_parameters = {SINGLE_IDS, FEW_IDS, MANY_IDS, *PARTS}
    assert kinds(SUBJECTS["one_launch"](wide, device)) > in_parameters
    StaleMemory(monkeypatch)
    assert kinds(SUBJECTS["one_launch"](wide, device)) == in_parameters


def test_inference_mode_does_not_matter(device, monkeypatch):
    StaleMemory(monkeypatch)
    for name in SUBJECTS:
        with torch.inference_mode():
            tables = SUBJECTS[name](LAYOUT, device)
            step = tables.capture_step(*BATCH, 1, 4)
        append(tables, 5, 6, overwrite=True)
        step.publish()
        append(tables, 7)
        tables.apply_staged_writes()
        assert row(tables, 4) == [5, 6, 7, 0]
