"""Rounds drawn from a recording keep what belongs together, and exchange what is equal."""

from __future__ import annotations

import numpy as np
import pytest
from support.factories import make_environment
from support.gate_rounds import ARMS, BASE, CONTROL, HEAD, subject

from bt_bench.base.errors import UsageError
from bt_bench.results.gate.recording import Recording, Revision, with_rounds
from bt_bench.results.gate.rounds import GateArm, GateRound
from bt_bench.results.run.result import Tool
from bt_bench.runs.selfcheck.resampled import ArraySource, RecordedPopulation

ONE, TWO = subject("one"), subject("two")
COUNT = 64


def recording(count: int = COUNT, **arms: Revision) -> Recording:
    """Values that say where they are from: round, arm and subject."""
    rounds = [
        GateRound(
            ARMS,
            {
                arm: {one: 1 + index * 100.0 + place * 10 + number}
                | ({other: 2 + index * 100.0 + place * 10} if index else {})
                for place, arm in enumerate(ARMS)
                for number, (one, other) in enumerate([(ONE, TWO)])
            },
        )
        for index in range(count)
    ]
    same = Revision(label="main", commit="abc", dirty=False)
    header = Recording(
        created="2026-01-02T03:04:05+00:00",
        tool=Tool(version="0.1.0", command=[]),
        environment=make_environment(),
        config="quick",
        arms=dict.fromkeys(GateArm, same) | {GateArm(name): of for name, of in arms.items()},
        subjects=[],
        rounds=[],
    )
    return with_rounds(header, rounds)


def test_source_hands_out_its_rounds_in_order() -> None:
    values = np.arange(1.0, 25.0).reshape(4, 3, 2)
    values[1, 2, 1] = np.nan
    source = ArraySource([ONE, TWO], values)
    first, rest = source.take(1), source.take(5)
    assert (len(first), len(rest), source.take(1)) == (1, 3, [])
    assert first[0].values == {
        BASE: {ONE: 1.0, TWO: 2.0},
        HEAD: {ONE: 3.0, TWO: 4.0},
        CONTROL: {ONE: 5.0, TWO: 6.0},
    }
    assert rest[0].values[CONTROL] == {ONE: 11.0}


def test_source_slows_the_head_alone() -> None:
    values = np.full((2, 3, 2), 100.0)
    (taken, _) = ArraySource([ONE, TWO], values, {TWO: 0.05}).take(2)
    assert taken.values[HEAD] == {ONE: 100.0, TWO: pytest.approx(105.0)}
    assert taken.values[BASE] == taken.values[CONTROL] == {ONE: 100.0, TWO: 100.0}
    assert (values == 100.0).all()


def drawn(rounds: int = 4000) -> np.ndarray:
    return RecordedPopulation(recording()).draw(np.random.default_rng(0), rounds)


def test_a_process_stays_together() -> None:
    first, second = np.moveaxis(drawn(), -1, 0)
    there = ~np.isnan(second)
    assert (second[there] - first[there] == 1).all()
    assert (first[~there] < 100).all()  # absent is absent in what is drawn as well


def test_arms_are_exchanged_within_their_round() -> None:
    values = drawn()[:, :, 0] - 1
    rounds, arms = values // 100, values % 100 // 10
    assert (rounds == rounds[:, :1]).all()
    assert (np.sort(arms, axis=1) == [0, 1, 2]).all()
    shares = np.array([(arms[:, 0] == arm).mean() for arm in range(3)])
    assert shares == pytest.approx(1 / 3, abs=0.05)


def test_neighbouring_rounds_stay_neighbours_within_blocks() -> None:
    rounds = (drawn()[:, 0, 0] - 1) // 100
    steps = np.diff(rounds) % COUNT
    length = 4  # the cube root of 64
    assert (np.delete(steps, np.arange(length - 1, len(steps), length)) == 1).all()
    assert (steps[length - 1 :: length] == 1).mean() < 0.1


def test_all_rounds_are_drawn_about_as_often() -> None:
    rounds = (drawn(16_000)[:, 0, 0] - 1) // 100
    counts = np.bincount(rounds.astype(int), minlength=COUNT)
    assert counts.min() > 0.7 * counts.mean()


def test_the_same_seed_draws_the_same() -> None:
    np.testing.assert_array_equal(drawn(), drawn())


def test_other_code_is_no_noise() -> None:
    topic = Revision(label="topic", commit="def", dirty=False)
    with pytest.raises(UsageError, match="head is of topic, but its base of main; expected arms"):
        RecordedPopulation(recording(head=topic))
    edited = Revision(label="main", commit="abc", dirty=True)
    with pytest.raises(UsageError, match="equal code"):
        RecordedPopulation(recording(control=edited))


def test_recordings_must_be_long_and_whole() -> None:
    with pytest.raises(UsageError, match="has 11 rounds; expected at least 12"):
        RecordedPopulation(recording(11))
    whole = recording()
    two_arms = whole.model_copy(update={"arms": {BASE: whole.arms[BASE], HEAD: whole.arms[HEAD]}})
    with pytest.raises(UsageError, match="has no arm control"):
        RecordedPopulation(two_arms)
    empty = with_rounds(whole, [GateRound(ARMS, {BASE: {}})] * COUNT)
    with pytest.raises(UsageError, match="has no value in any round"):
        RecordedPopulation(empty)
