"""Recordings of process-rounds."""

from __future__ import annotations

import re

import pytest
from support.forked import forked_workers
from support.scripted_rounds import request_of
from support.tiny_gates import Quiet

from bt_bench.base.errors import UsageError
from bt_bench.results.gate.recording import read_recording
from bt_bench.results.gate.rounds import GateArm
from bt_bench.runs.gate.recording import record


@pytest.fixture(scope="module", autouse=True)
def forked():
    with forked_workers():
        yield


def test_a_recording_has_all_rounds_that_there_was_time_for(tmp_path):
    path = tmp_path / "recording.json"
    request = request_of(tmp_path, workers=1)
    progress = Quiet()
    recording = record(request, 3, path, ["test"], progress)
    assert len(recording.rounds) == 3
    assert (progress.totals, progress.done) == (["3 processes"], 3)
    expected, *said = progress.said
    assert re.fullmatch(r"recording takes about \d+ \w+ for 3 rounds, an estimate", expected)
    assert said == ["3 rounds timed"]
    assert read_recording(path) == recording
    assert recording.arms[GateArm.HEAD].label == "new"
    asked = []

    def is_time_up(longest):
        asked.append(longest)
        return len(asked) > 1

    assert len(record(request, 3, path, ["test"], Quiet(), is_time_up).rounds) == 1
    assert asked[0] == 0.0 < asked[1]


def test_nothing_is_recorded_of_variants_that_fail(tmp_path):
    request = request_of(tmp_path, head={"second": {"us": 1.0, "fault": "raises measure"}})
    progress = Quiet()
    with pytest.raises(UsageError, match="new: while measured: no luck"):
        record(request, 3, tmp_path / "recording.json", ["test"], progress)
    assert progress.said[1].startswith("second is measured apart from here on: it failed beside")
