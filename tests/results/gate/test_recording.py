"""Recordings come back as they were written, and damaged ones are refused with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.factories import make_environment

from bt_bench.base.errors import UsageError
from bt_bench.results.gate.recording import (
    Recorder,
    Recording,
    Revision,
    read_recording,
    with_rounds,
    write_recording,
)
from bt_bench.results.gate.rounds import GateArm, GateRound, SeriesKey
from bt_bench.results.run.nouns import Method
from bt_bench.results.run.result import Tool
from bt_bench.suites.block_tables import operations as ops

HOST = SeriesKey(ops.STEP, "small", "fused", "host_us")
DEVICE = SeriesKey(ops.STEP, "small", "fused", "gpu_us/compiled/cold")
BASE, HEAD, CONTROL = GateArm.BASE, GateArm.HEAD, GateArm.CONTROL
ROUNDS = [
    GateRound(
        (HEAD, BASE, CONTROL),
        {
            BASE: {HOST: 10.25, DEVICE: 3.1},
            HEAD: {HOST: 10.5, DEVICE: 3.2},
            CONTROL: {HOST: 10.0, DEVICE: 3.3},
        },
        {Method.EVENTS: 1.024},
    ),
    GateRound((BASE, CONTROL, HEAD), {BASE: {HOST: 10.75}, CONTROL: {DEVICE: 0.0}}),
]


def make_header() -> Recording:
    return Recording(
        created="2026-01-02T03:04:05+00:00",
        tool=Tool(version="0.1.0", command=["bt-bench", "gate"]),
        environment=make_environment(),
        config="quick",
        arms={
            BASE: Revision(label="main", commit="0123456789abcdef"),
            HEAD: Revision(label="working tree", commit="fedcba9876543210", dirty=True),
            CONTROL: Revision(label="main", commit="0123456789abcdef"),
        },
        subjects=[],
        rounds=[],
    )


def test_rounds_come_back(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    recording = with_rounds(make_header(), ROUNDS)
    write_recording(path, recording)
    assert read_recording(path) == recording


def test_file_is_whole_after_every_batch(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    recorder = Recorder(path, make_header())
    assert read_recording(path).rounds == []
    for count, taken in enumerate(ROUNDS, start=1):
        recorder.add([taken])
        assert read_recording(path) == with_rounds(make_header(), ROUNDS[:count])
    assert list(tmp_path.iterdir()) == [path]


def test_a_later_subject_is_absent_from_earlier_rounds() -> None:
    recording = with_rounds(make_header(), [ROUNDS[1], ROUNDS[0]])
    first, second = (
        {arm: dict(zip(recording.table(), row, strict=True)) for arm, row in taken.values.items()}
        for taken in recording.rounds
    )
    assert first == {BASE: {HOST: 10.75, DEVICE: None}, CONTROL: {HOST: None, DEVICE: 0.0}}
    assert second == ROUNDS[0].values
    assert [tuple(taken.order) for taken in recording.rounds] == [ROUNDS[1].order, ROUNDS[0].order]


def test_values_keep_a_millionth_of_a_microsecond() -> None:
    taken = GateRound((BASE,), {BASE: {HOST: 0.1 + 0.2}})
    assert with_rounds(make_header(), [taken]).rounds[0].values[BASE] == [0.3]


def test_it_refuses_to_write_what_it_would_not_read(tmp_path: Path) -> None:
    wrong = GateRound((BASE,), {BASE: {SeriesKey(ops.STEP, "small", "fused", "watts"): 1.0}})
    with pytest.raises(ValueError, match="no metric 'watts'"):
        write_recording(tmp_path / "x.json", with_rounds(make_header(), [wrong]))
    assert not list(tmp_path.iterdir())


def _edited(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        data = json.loads(text)
        change(data)
        return json.dumps(data)

    return edit


DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "truncated": (lambda text: text[: len(text) // 2], "seems truncated"),
    "empty": (lambda text: "", "is empty; expected a recording"),
    "no object": (lambda text: "[]", "not a recording of bt-bench: expected an object"),
    "a result": (lambda text: '{"cases": []}', "not a recording of bt-bench: it has no schema"),
    "newer": (_edited(lambda d: d.update(schema_version=3)), "schema version 3; expected 2"),
    "incomplete": (_edited(lambda d: d.pop("rounds")), "missing rounds"),
    "unknown key": (_edited(lambda d: d.update(verdict="SAME")), "verdict"),
    "negative": (
        _edited(lambda d: d["rounds"][0]["values"]["base"].__setitem__(0, -1.0)),
        r"\$\.rounds\[0\]\.values\.base\[0\]: input should be greater than or equal to 0, got -1",
    ),
    "no time at all": (
        _edited(lambda d: d["rounds"][0]["values"]["head"].__setitem__(0, 1e300)),
        r"is damaged: \$\.rounds\[0\]\.values\.head\[0\] is 1e\+300, which no clock can have ",
    ),
    "less than any clock tells": (
        _edited(lambda d: d["rounds"][0]["values"]["base"].__setitem__(0, 5e-324)),
        r"\.values\.base\[0\] is 4\.94066e-324, which no clock .* 0, or 1e-09 to 1e\+12 µs",
    ),
    "a key twice": (
        lambda text: text.replace('"config"', '"config": "other", "config"'),
        'it has key "config" more than once in one object; expected it once',
    ),
    "NaN": (lambda text: text.replace("10.25", "NaN"), r"rounds\[0\]\.values\.base"),
    "text": (lambda text: text.replace("10.25", '"10.25"'), r"got \"10.25\""),
    "short row": (
        _edited(lambda d: d["rounds"][1]["values"]["base"].pop()),
        r"\$\.rounds\[1\]\.values\.base has 1 values; expected 2",
    ),
    "no base": (_edited(lambda d: d["arms"].pop("base")), r"\$\.arms lacks 'base'"),
    "unknown arm": (_edited(lambda d: d["arms"].pop("head")), "has 'head'; expected only arms"),
    "arm twice": (_edited(lambda d: d["rounds"][0]["order"].append("base")), "an arm twice"),
    "arm that did not run": (
        _edited(lambda d: d["rounds"][0]["order"].remove("base")),
        "has 'base', which is not in its order",
    ),
    "subject twice": (
        _edited(lambda d: d["subjects"].__setitem__(0, d["subjects"][1])),
        r"\$\.subjects has step, small, fused, host_us 2 times",
    ),
    "unknown metric": (
        lambda text: text.replace('"host_us"', '"host_usec"'),
        r"\$\.subjects\[1\]\.metric: no metric 'host_usec'; did you mean 'host_us'\?",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_recordings_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "recording.json"
    write_recording(path, with_rounds(make_header(), ROUNDS))
    edit, message = DAMAGES[damage]
    path.write_text(edit(path.read_text()))
    with pytest.raises(UsageError, match=message) as caught:
        read_recording(path)
    assert re.match(re.escape(str(path)), str(caught.value))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; expected a recording of rounds"):
        read_recording(tmp_path / "none.json")
    with pytest.raises(UsageError, match=r"is a folder.*recording\.json"):
        read_recording(tmp_path)
