"""`studies/scale.py` plays a sweep on many GPUs as it says, and loses no case."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scale

CALM = scale.Fleet(gpus=2, rate=0.0, slow_share=0.0, start_s=10.0, away_s=60.0, anew=False)
CASES = scale.Lengths(6.0, 0.4, 87).draw(3000, seed=1)


def test_without_mishaps_the_time_is_that_of_the_longer_half():
    outcome = scale.play([np.array([1.0, 2.0, 3.0]), np.array([5.0])], CALM, seed=0)
    assert outcome.makespan_s == 16.0
    assert outcome.ideal_s == 10.0 + 11.0 / 2
    assert (outcome.starts, outcome.failures, outcome.lost_s) == (2, 0, 0.0)


def test_whichever_gpu_is_free_takes_the_next_shard():
    shards = [np.array([30.0]), np.array([1.0]), np.array([1.0]), np.array([])]
    assert scale.play(shards, CALM, seed=0).makespan_s == 40.0  # 30 beside 1 and 1, with starts


def test_a_slow_gpu_takes_longer_for_all():
    slow = dataclasses.replace(CALM, gpus=1, slow_share=1.0, slow_factor=2.0)
    assert scale.play([np.array([5.0])], slow, seed=0).makespan_s == 30.0


@pytest.mark.parametrize("divide", [scale.by_hash, scale.balanced])
def test_every_case_is_in_one_shard(divide):
    shards = divide(CASES, 7, seed=3)
    assert len(shards) == 7
    assert np.array_equal(np.sort(np.concatenate(shards)), np.sort(CASES))


def test_a_failure_costs_the_case_that_it_cuts_off_and_no_other():
    fleet = dataclasses.replace(CALM, gpus=20, rate=5.0)
    shards = scale.by_hash(CASES, 60, seed=3)
    outcome = scale.play(shards, fleet, seed=3)
    assert outcome.failures > 10
    assert outcome.starts == len(shards) + outcome.failures
    worked_s = CASES.sum() + outcome.starting_s + outcome.lost_s
    assert 0 < outcome.lost_s <= outcome.failures * (CASES.max() + fleet.start_s)
    # All that the GPUs did is accounted for: cases, starts and losses; the rest they waited.
    assert outcome.makespan_s * fleet.gpus - worked_s >= 0
    assert outcome == scale.play(shards, fleet, seed=3)
    assert outcome != scale.play(shards, fleet, seed=4)


def test_a_shard_that_is_begun_anew_loses_all_of_it():
    fleet = dataclasses.replace(CALM, gpus=1, rate=20.0)
    whole = scale.play([np.full(40, 6.0)], dataclasses.replace(fleet, anew=True), seed=5)
    cut = scale.play([np.full(40, 6.0)], fleet, seed=5)
    assert whole.starting_s == fleet.start_s  # all other starts were in vain
    assert whole.lost_s > cut.lost_s
    parts_s = 240.0 + whole.starting_s + whole.lost_s + whole.failures * fleet.away_s
    assert whole.makespan_s == pytest.approx(parts_s)


def test_on_one_gpu_cases_starts_losses_and_waits_make_up_the_time():
    fleet = dataclasses.replace(CALM, gpus=1, rate=20.0)
    outcome = scale.play([CASES[:300]], fleet, seed=5)
    assert outcome.failures > 3
    parts_s = CASES[:300].sum() + outcome.starting_s + outcome.lost_s
    assert outcome.makespan_s == pytest.approx(parts_s + outcome.failures * fleet.away_s)


def test_balanced_shards_end_together_and_small_ones_bear_slow_gpus():
    fleet = scale.Fleet(gpus=20, rate=0.0, slow_share=0.1)
    found = {
        name: scale.play(shards, fleet, seed=0)
        for name, shards in scale.strategies(np.tile(CASES, 10), 20, seed=0).items()
    }
    whole, even, *_ = found.values()
    small = found["320 by hash, to whichever GPU is free"]
    assert small.makespan_s < even.makespan_s < whole.makespan_s
    assert all(each.makespan_s >= each.ideal_s for each in found.values())


def test_the_page_has_what_was_found():
    committed = scale.Committed([4.0, 6.0, 9.0], [24_000.0, 200_000.0], packed=0.2)
    page, found = scale.report(committed, scale.Fleet(gpus=4), [200, 400], seed=0)
    assert [len(section.blocks[0].rows) for section in page.sections] == [6, 6, 6, 2]
    assert found["lengths"]["median_s"] == pytest.approx(6.0)
    sizes = [cell.text for cell in page.sections[-1].blocks[0].rows[0]]
    assert sizes == ["200", "19 MB", "160 MB", "4 MB", "32 MB"]


def test_the_documentation_has_the_tables_of_the_report():
    root = Path(__file__).parents[2]
    _, *sections = (root / "reports/scale/scale.md").read_text().split("\n## ")
    page = (root / "docs/scale.md").read_text()
    for section in sections[1:]:
        rows = [line for line in section.splitlines() if line.startswith("|")]
        assert "\n".join(rows) in page, section.partition("\n")[0]
