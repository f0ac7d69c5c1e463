"""Output is printed whatever the encoding of the stream."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from support.commands import run_apart

from bt_bench.cli.encoding import spell_what_streams_lack

ORIGIN = Path(__file__).parents[2] / "reports" / "h200" / "origin"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", ORIGIN / "baseline.json", ORIGIN / "fused.json"),
        ("workload", "origin"),
        ("sweep", "--help"),
    ],
    ids=["compare", "workload", "help"],
)
def test_no_encoding_ends_a_command(arguments, encoding):
    environment = {"PYTHONIOENCODING": encoding}
    outcome = run_apart(*arguments, environment=environment, encoding=encoding)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert "\\u" not in outcome.out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.5 µs × 2 …", b"3.5 us x 2 ..."),
        ("naïve ≥ 你", b"na\\xefve >= \\u4f60"),
        ("plain", b"plain"),
    ],
)
def test_what_is_lacking_is_spelled(text, expected):
    spell_what_streams_lack()
    assert text.encode("ascii", "bt_bench.spell") == expected


def test_a_stream_that_has_all_characters_is_left_alone():
    spell_what_streams_lack()
    assert "µ".encode("utf-8", "bt_bench.spell") == "µ".encode()
    with pytest.raises(UnicodeDecodeError):
        codecs.lookup_error("bt_bench.spell")(UnicodeDecodeError("ascii", b"\xff", 0, 1, "no"))
