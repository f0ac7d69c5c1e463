"""The checker can fail: every mutant is rejected, on the CPU as well as on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.mutants import (
    COMPILED,
    FROZEN,
    HISTORY,
    IN_A_SEQUENCE,
    INTERPRETED,
    LATE,
    LATE_AS_PROMISED,
    MUTANTS,
    OUT_OF_BOUNDS,
    OVERWRITTEN,
    RACES,
    SPECIALIZED,
    UNREPLAYED,
    write_mutant,
)
from support.variants import classes, failures

from bt_bench.results.run.nouns import ReasonCode
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.worker.checking.check import check

WORKLOADS = conformance_workloads(seed=0)
CHECKED = [name for name, mutant in MUTANTS.items() if mutant.workload]
RUNS = [pytest.param(name, id=f"{name}-cpu") for name in CHECKED if name not in COMPILED] + [
    pytest.param(name, id=f"{name}-cuda", marks=pytest.mark.gpu)
    for name in CHECKED
    if name not in OUT_OF_BOUNDS | INTERPRETED | RACES.keys()
]
OPERATIONS = [ops.STEP, ops.APPLY]


def rejections(folder, name, device):
    """Messages by which a mutant is rejected on its workload, by variant and operation."""
    variants = classes([name], [write_mutant(folder, name)])
    title = MUTANTS[name].workload
    return failures(variants, WORKLOADS[title], OPERATIONS, device, title=title)


# Of a commit about a quarter of those on the CPU.
@pytest.mark.slow
@pytest.mark.sampled(len(RUNS) // 4)
@pytest.mark.parametrize("name", RUNS)
def test_mutant_is_rejected(name, tmp_path, device):
    assert rejections(tmp_path, name, device), f"{MUTANTS[name].what}: not noticed"


def test_each_thing_that_has_gone_wrong_has_a_mutant_and_each_mutant_a_test():
    assert len(HISTORY) == 12
    assert all(set(names) <= MUTANTS.keys() for names in HISTORY.values())
    late = {*LATE, *LATE_AS_PROMISED, *OVERWRITTEN}
    elsewhere = {*IN_A_SEQUENCE, *UNREPLAYED, *late, *FROZEN, *SPECIALIZED}
    assert MUTANTS.keys() - set(CHECKED) == elsewhere


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_a_mutant_that_only_a_gpu_has_can_be_written(name, tmp_path):
    assert (write_mutant(tmp_path, name) / f"{name}.py").is_file()


def test_small_sizes_alone_are_not_rejected(tmp_path, device, monkeypatch):
    for name in sorted({mutant.workload for mutant in MUTANTS.values() if mutant.small}):
        mutant = replace(MUTANTS["last_tile_is_skipped"], workload=name)
        monkeypatch.setitem(MUTANTS, f"small_{name}", replace(mutant, new=mutant.old))
        assert not rejections(tmp_path, f"small_{name}", device)


@pytest.mark.parametrize("name", sorted(RACES))
def test_a_race_is_rejected_although_the_values_are_right(name, tmp_path, device):
    variants = classes([name], [write_mutant(tmp_path, name)])
    workload = WORKLOADS[MUTANTS[name].workload]
    verdict = check(variants, workload, [ops.STEP], device)[name, ops.STEP]
    assert verdict.reason.code is ReasonCode.RACE
    assert RACES[name] in verdict.reason.message


def test_message_says_which_element_is_wrong(tmp_path, device):
    variants = classes(["stale_slots"], [write_mutant(tmp_path, "stale_slots")])
    found = failures(variants, WORKLOADS["corners"], [ops.STEP], device, title="corners")
    message = found["stale_slots", "step"]
    assert message.startswith("corners, round 0, step 0, calls step: slot_mappings[0, ")
    assert "expected -1 (never written by the variant)" in message
    assert "of 144 elements differ" in message
