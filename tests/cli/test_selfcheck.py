"""`bt-bench selfcheck` on a small recording that is made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.commands import run
from support.factories import make_environment
from support.refusals import refused
from synthetic import Noise, SyntheticPopulation

from bt_bench.analysis import judging
from bt_bench.results.gate.recording import Recording, Revision, with_rounds, write_recording
from bt_bench.results.gate.rounds import GateArm
from bt_bench.results.run.result import Tool
from bt_bench.runs.selfcheck.resampled import ArraySource

ROUNDS = 40


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A file of rounds from a made-up machine with few cases."""
    population = SyntheticPopulation(Noise.WHITE, 4)
    values = population.draw(np.random.default_rng(0), ROUNDS)
    same = Revision(label="main", commit="abc", dirty=False)
    header = Recording(
        created="2026-01-02T03:04:05+00:00",
        tool=Tool(version="0.1.0", command=[]),
        environment=make_environment(),
        config="quick",
        arms=dict.fromkeys(GateArm, same),
        subjects=[],
        rounds=[],
    )
    path = tmp_path / "recording.json"
    rounds = ArraySource(population.subjects, values).take(ROUNDS)
    write_recording(path, with_rounds(header, rounds))
    return path


def test_rates_and_promises(recording: Path) -> None:
    outcome = run("selfcheck", "--recording", str(recording), "--gates", "20")
    assert outcome.code == 0, outcome.err
    assert "drawn from 40 rounds of 4 metrics of cases, recorded on NVIDIA H200" in outcome.out
    for text in (
        "red builds",
        "+10 %",
        "the gate's own detection limit",
        "kept: equal code: at most",
    ):
        assert text in outcome.out
    assert "NOT KEPT" not in outcome.out
    assert "margin 1.5 % or more" in " ".join(outcome.out.split())
    assert "20 of 20 gates" in outcome.err


def test_json(recording: Path) -> None:
    args = ("selfcheck", "--recording", str(recording), "--gates", "5", "--seed", "3", "--json")
    outcome = run(*args)
    assert outcome.code == 0, outcome.err
    document = outcome.json()
    assert (document["schema_version"], document["gates"], document["seed"]) == (2, 5, 3)
    assert (document["looks"], document["most_rounds"], document["detect"]) == ([12, 32], 64, 0.05)
    (found,) = document["recordings"]
    assert found["equal_code"]["red"]["trials"] == 5
    low, high = found["equal_code"]["red"]["interval_95"]
    assert low == 0 < high < 1
    assert [entry["slowdown"] for entry in found["slowed"]] == [
        *("+1 %", "+2 %", "3 % or 0.1 us", "5 % or 0.15 us", "+10 %"),
        "what the gate said it finds",
    ]
    assert [promise["name"] for promise in found["promises"]] == [
        *("red", "found_5", "found_3", "found_said", "margin"),
    ]
    assert run(*args).json() == document


def test_recordings_are_counted_apart(recording: Path, tmp_path: Path) -> None:
    """One of pairs and one whose arms had a process each, as those of schema 1."""
    data = json.loads(recording.read_text())
    data["schema_version"] = 1
    del data["apart"]
    older = tmp_path / "older.json"
    older.write_text(json.dumps(data))
    both = ("--recording", str(recording), "--recording", str(older))
    outcome = run("selfcheck", *both, "--gates", "5", "--json")
    assert outcome.code == 0, outcome.err
    pairs, apart = outcome.json()["recordings"]
    assert pairs["recording"]["apart"] == {}
    assert list(apart["recording"]["apart"]) == ["fused"]
    names = [promise["name"] for promise in apart["promises"]]
    assert names == ["red", "found_2_margins", "found_3_margins"]
    assert {entry["apart"] for entry in apart["slowed"]} == {True}


def test_what_is_to_be_found_is_beyond_the_margin(recording: Path) -> None:
    assert "--detect is 1.5, but slowdowns up to the margin of 1.5 % count as none" in refused(
        "selfcheck", "--recording", str(recording), "--detect", "1.5"
    )


def test_a_missed_promise_is_exit_5(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LEAST_ERROR", 1.0)  # every clock seems to stand still
    outcome = run("selfcheck", "--recording", str(recording), "--gates", "5")
    assert outcome.code == 5
    assert "not as promised: equal code: at most 1% of builds are red; 100.00 %" in outcome.err
    assert "NOT KEPT: slower by 5 % or 0.15 µs" in outcome.out


def test_a_recording_of_other_code_is_refused(recording: Path) -> None:
    data = json.loads(recording.read_text())
    data["arms"]["head"]["commit"] = "def"
    recording.write_text(json.dumps(data))
    assert "expected arms of equal code" in refused("selfcheck", "--recording", str(recording))


def test_without_a_recording(monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    monkeypatch.setattr("bt_bench.runs.recording_paths", list)
    assert "no recording comes with this installation; pass --recording FILE" in refused(
        "selfcheck"
    )
    monkeypatch.setattr("bt_bench.runs.recording_paths", lambda: [recording])
    assert run("selfcheck", "--gates", "3").code == 0


def test_a_recording_and_a_device_exclude_each_other(recording: Path) -> None:
    assert "exclude each other" in refused(
        "selfcheck", "--recording", str(recording), "--device", "cpu"
    )


@pytest.mark.parametrize("option", ["--save", "--rounds", "--config"])
def test_how_to_record_is_of_no_use_without_a_device(recording: Path, option: str) -> None:
    assert f"{option} is for recording rounds; give --device as well" in refused(
        "selfcheck", "--recording", str(recording), option, "20"
    )
