"""Recorded calls are read as they were written; damaged and foreign files are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

from bt_kernels.engines.recordings import (
    RECORDING,
    Append,
    Apply,
    BeginStep,
    Difference,
    DummySlots,
    DummyTables,
    EndStep,
    Frame,
    Gather,
    Header,
    Recording,
    RecordingError,
    Redirect,
    Slots,
    Snapshot,
)

HEADER = Header(RECORDING, "0.33.0", "cpu", "", (16, 8), 4, 32, (3, 5), dcp_sharded=(True, False))


def write(path, *frames, header=HEADER):
    path.write_bytes(header.to_line() + b"".join(frames))
    return Recording(path)


def plain(value):
    """A value that can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def same(found, expected):
    return type(found) is type(expected) and all(
        plain(getattr(found, field.name)) == plain(getattr(expected, field.name))
        for field in fields(found)
    )


def step():
    """A frame with every operation, and the operations."""
    frame = Frame()
    rows, starts = np.array([2, 0]), np.array([0, 1, 4], dtype=np.int32)
    computed = np.array([9, 16], dtype=np.int32)
    tables = tuple(np.arange(4 * width).reshape(4, width) for width in (3, 5))
    snapshot = Snapshot(np.array([[1, 2, 3, 0], [5, 0, 0, 2]]), tables, (tables[0] + 1,) * 0, 3)
    full = replace(snapshot, inputs=tuple(table + 1 for table in tables))
    difference = Difference(3, "end of step", "slot_mappings", (1, 2), 2**40, -1)
    frame.snapshot(snapshot)
    frame.begin_step()
    frame.append(2, ([5, 6], []), overwrite=True)
    frame.append(0, ((7,), (8, 9)), overwrite=False)
    frame.redirect(True)
    frame.apply()
    frame.gather(2, 3, rows, True, computed, None)
    frame.slots(2, 8, rows, starts, firsts=computed)
    frame.slots(2, 8, rows, starts, firsts=np.array([0, 3]), out_columns=40)
    frame.slots(2, 4, rows.copy(), starts, positions=np.array([5, 3, 1, 2]))
    frame.gather(2, 2, None, True, None, 8)
    frame.slots(2, 4, None, None)
    frame.dummy_tables(4)
    frame.dummy_slots(32)
    frame.end_step()
    frame.snapshot(full)
    frame.difference(difference)
    return frame.take(), [
        snapshot,
        BeginStep(),
        Append(2, (np.array([5, 6]), np.array([])), True),
        Append(0, (np.array([7]), np.array([8, 9])), False),
        Redirect(True),
        Apply(),
        Gather(2, 3, rows, True, computed, None),
        Slots(2, 8, rows, starts, np.array([9, 16, 17, 18]), None),
        Slots(2, 8, rows, starts, np.array([0, 3, 4, 5]), 40),
        Slots(2, 4, rows, starts, np.array([5, 3, 1, 2]), None),
        Gather(2, 2, None, True, None, 8),
        Slots(2, 4, None, None, None, None),
        DummyTables(4),
        DummySlots(32),
        EndStep(),
        full,
        difference,
    ]


def test_operations_are_read_as_they_were_written(tmp_path):
    encoded, expected = step()
    recording = write(tmp_path / "calls", encoded, encoded)
    assert recording.header == HEADER
    found = list(recording.operations())
    assert len(found) == 2 * len(expected)
    assert all(map(same, found, expected * 2))
    assert recording.note is None
    assert len(list(recording.operations())) == len(found)


def test_a_frame_without_operations_is_nothing(tmp_path):
    assert Frame().take() == b""
    assert list(write(tmp_path / "calls").operations()) == []


def test_a_step_takes_no_more_than_its_numbers():
    frame, rows = Frame(), np.arange(128)
    frame.gather(128, 128, rows, True, rows + 7, None)
    frame.slots(128, 128, rows, np.arange(129), firsts=rows)
    assert len(frame.take()) < 4 * (3 * 128 + 20) + 4 * 128


def test_integers_beyond_int32_are_not_written():
    frame = Frame()
    frame.append(0, ([2**31],), overwrite=True)
    with pytest.raises(Exception, match="2147483647"):
        frame.take()


def test_a_last_frame_that_is_cut_is_left_out_with_a_note(tmp_path):
    first, expected = step()
    begin = len(HEADER.to_line()) + len(first)
    for kept in (1, 7, 8, 9, 11, len(first) - 1):
        recording = write(tmp_path / "calls", first, first[:kept])
        assert len(list(recording.operations())) == len(expected)
        assert f"{tmp_path / 'calls'}: byte {begin}: the last frame is incomplete" in recording.note


def test_a_damaged_frame_is_refused_with_its_place(tmp_path):
    encoded = step()[0]
    begin = len(HEADER.to_line()) + len(encoded)
    for place in (*range(16), *range(16, len(encoded), 37)):
        damaged = bytearray(encoded)
        damaged[place] ^= 4
        recording = write(tmp_path / "calls", encoded, damaged, encoded)
        if place in range(1, 4):  # its length reaches beyond the file
            list(recording.operations())
            assert recording.note
            continue
        with pytest.raises(RecordingError, match=f"calls: byte {begin}: .*; expected"):
            list(recording.operations())


@pytest.mark.parametrize("ints", [[2, 0], [1, 99], [1, -1], [4, 3, 0, 0, 0], [3, 1, 0, 0], [9, 2]])
def test_a_frame_with_unknown_content_is_refused(tmp_path, ints):
    import struct
    import zlib

    payload = struct.pack(f"<{len(ints)}i", *ints)
    frame = struct.pack("<2I", len(payload), zlib.crc32(payload)) + payload
    with pytest.raises(RecordingError, match=r"byte \d+: a frame has unknown content .* damaged"):
        list(write(tmp_path / "calls", frame).operations())


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"{}\n", b"[1]\n", b"\x7fELF" + bytes(900), b'{"format": "other"}\n'),
        b"[" * 100_000,
    ],
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "calls"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="byte 0: no recorded calls; expected a first line"):
        Recording(path)


def test_another_version_is_refused(tmp_path):
    line = json.loads(HEADER.to_line()) | {"version": 2}
    (tmp_path / "calls").write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordingError, match=r"version 2 of the format; expected .* version 1"):
        Recording(tmp_path / "calls")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_reqs", "4"),
        ("max_num_blocks_per_group", [16]),
        ("block_sizes", None),
        ("vllm", 3),
        ("vllm", "0.33.0\x1b[31m\nok"),
        ("cp_size", None),
        ("dcp_sharded", [1]),
        ("nonsense", 1),
    ],
)
def test_a_damaged_first_line_is_refused(tmp_path, name, value):
    line = json.loads(HEADER.to_line()) | {name: value}
    (tmp_path / "calls").write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordingError, match=rf"the first line is damaged \(.*{name}"):
        Recording(tmp_path / "calls")


def test_reading_needs_neither_torch_nor_triton():
    code = (
        "import sys, bt_kernels.engines.recordings\n"
        "assert not {'torch', 'triton'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
