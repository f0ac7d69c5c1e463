"""Output is printed whatever the encoding of the stream."""

from __future__ import annotations

import codecs
import sys
from io import BytesIO, TextIOWrapper

import pytest
from support.commands import run_apart
from support.committed import ORIGIN

from bt_bench.cli.encoding import spell_what_streams_lack


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("encoding", "environment"),
    [
        ("ascii", {"PYTHONIOENCODING": "ascii"}),
        ("latin-1", {"PYTHONIOENCODING": "latin-1"}),
        ("ascii", {"PYTHONIOENCODING": "ascii:surrogateescape"}),
        ("ascii", {"LC_ALL": "C", "PYTHONUTF8": "0"}),
    ],
    ids=["ascii", "latin-1", "surrogateescape", "C"],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", ORIGIN / "baseline.json.xz", ORIGIN / "fused.json.xz"),
        ("workload", "origin"),
        ("sweep", "--help"),
    ],
    ids=["compare", "workload", "help"],
)
def test_no_encoding_ends_a_command(arguments, encoding, environment):
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
@pytest.mark.parametrize("handler", ["bt_bench.spell", "bt_bench.spell_or_put_back"])
def test_what_is_lacking_is_spelled(text, expected, handler):
    spell_what_streams_lack()
    assert text.encode("ascii", handler) == expected


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_bytes_are_put_back_where_python_does_so_and_are_spelled_elsewhere(encoding):
    spell_what_streams_lack()
    name = b"a\xff\xfeb".decode("ascii", "surrogateescape") + " \ud800→"
    arrow = "→".encode() if encoding == "utf-8" else b"->"
    assert name.encode(encoding, "bt_bench.spell_or_put_back") == b"a\xff\xfeb \\ud800" + arrow
    assert name.encode(encoding, "bt_bench.spell") == b"a\\udcff\\udcfeb \\ud800" + arrow


@pytest.mark.parametrize(
    ("errors", "out", "err"),
    [
        *((errors, "3 us", "3 us") for errors in ("strict", "surrogateescape", "surrogatepass")),
        ("backslashreplace", "3 \\xb5s", "3 us"),  # for stdout somebody has chosen it
        ("replace", "3 ?s", "3 ?s"),
    ],
)
def test_no_stream_is_left_that_would_raise(monkeypatch, errors, out, err):
    streams = {name: TextIOWrapper(BytesIO(), "ascii", errors) for name in ("stdout", "stderr")}
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        spell_what_streams_lack()
    for stream in streams.values():
        stream.write("3 µs")
        stream.flush()
    written = {name: stream.buffer.getvalue().decode() for name, stream in streams.items()}
    assert written == {"stdout": out, "stderr": err}


@pytest.mark.parametrize("handler", ["bt_bench.spell", "bt_bench.spell_or_put_back"])
def test_a_stream_that_has_all_characters_is_left_alone(handler):
    spell_what_streams_lack()
    assert "µ".encode("utf-8", handler) == "µ".encode()
    with pytest.raises(UnicodeDecodeError):
        codecs.lookup_error(handler)(UnicodeDecodeError("ascii", b"\xff", 0, 1, "no"))
