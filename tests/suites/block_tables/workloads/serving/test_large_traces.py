"""Traces as people have them: packed, of other units, with failures and sessions, and large."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.serving import progress, trace
from bt_bench.suites.block_tables.workloads.serving.columns import Columns, Part, format_of
from bt_bench.suites.block_tables.workloads.serving.trace import Trace, TraceReader

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
Writer = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write a file, and return its path."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def rows(times: list[float], form: str = "{},{},1") -> str:
    """Return lines of a CSV with times in seconds; prompts count from 1."""
    lines = [form.format(at, number) for number, at in enumerate(times, 1)]
    return "\n".join(["ts,in,out", *lines, ""])


def seconds(**given: Any) -> Columns:
    return Columns(arrival="ts", prompt="in", output="out", **({"time": "s"} | given))


def read(path: str, columns: Columns | None = None, **given: Any) -> tuple[list[Trace], Any]:
    reader = TraceReader(path, 1.0, columns, **given)
    return list(reader.parts()), reader.facts


def bailian(*times: float) -> str:
    return "".join(
        json.dumps(
            {"chat_id": i, "timestamp": at, "input_length": 9, "output_length": 2, "hash_ids": [0]}
        )
        + "\n"
        for i, at in enumerate(times)
    )


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_trace_is_read(tmp_path: Path, pack: Any) -> None:
    for name, text, columns in (
        ("a.csv.gz", AZURE + "2023-11-16 18:15:46,5,3\n", None),
        ("packed", bailian(1.0), Columns(preset="bailian")),
        ("a.jsonl.zst", bailian(1.0), Columns(preset="bailian")),  # named otherwise than packed
    ):
        (tmp_path / name).write_bytes(pack(text.encode()))
        ((part,), _) = read(str(tmp_path / name), columns)
        assert len(part) == 1
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(AZURE.encode() * 99)[:-9])
    with pytest.raises(UsageError, match=r"cannot unpack .*cut.csv.gz, .* expected a trace"):
        read(str(tmp_path / "cut.csv.gz"))


def test_json_is_known_by_its_first_line(write: Writer) -> None:
    path = write("trace.json", bailian(1.0))
    ((part,), _) = read(path, Columns(preset="bailian"))
    assert part.context_tokens.tolist() == [9]


def test_a_bailian_trace_is_no_mooncake_trace(write: Writer) -> None:
    path = write("qwen.jsonl", bailian(0.0, 61.114))
    message = (
        r"qwen.jsonl:1: key chat_id is there: the trace is one of Bailian, whose times are seconds,"
        r" and .* mooncake, which reads milliseconds. Write columns: {preset: bailian}; or add "
        r"time: ms"
    )
    with pytest.raises(UsageError, match=message):
        read(path, Columns(preset="mooncake"))
    ((part,), _) = read(path, Columns(preset="bailian"))
    assert part.arrival_s.tolist() == [0.0, pytest.approx(61.114)]
    ((part,), _) = read(path, Columns(preset="mooncake", time="ms"))
    assert part.arrival_s.tolist() == [0.0, pytest.approx(0.061114)]
    other = write("m.jsonl", '{"timestamp": 0, "input_length": 2, "output_length": 3}\n')
    with pytest.raises(UsageError, match=r"chat_id is missing: .* Mooncake, .* {preset: mooncake}"):
        read(other, Columns(preset="bailian"))
    with pytest.raises(UsageError, match=r"TIMESTAMP is missing; .* write columns: {preset: bail"):
        read(path)


def test_formats_are_recognised() -> None:
    mooncake = ["timestamp", "input_length", "output_length", "hash_ids"]
    assert format_of(mooncake) == "mooncake"
    assert format_of(["chat_id", *mooncake]) == "bailian"
    assert format_of(["Timestamp", "Model", "Request tokens", "Response tokens"]) == "burstgpt"
    assert format_of(["TIMESTAMP", "NumImages", "ContextTokens", "GeneratedTokens"]) == "azure"
    assert format_of(["ts", "in", "out"]) is None


def test_failed_requests_of_burstgpt_are_dropped_and_counted(write: Writer) -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,5,3,8,Conversation log\n6,GPT-4,6,0,6,API log\n7,GPT-4,0,0,0,API log\n"
        "45,GPT-4,6,4,10,API log\n"
    )
    path = write("BurstGPT_1.csv", text)
    ((part,), facts) = read(path, Columns(preset="burstgpt"))
    assert part.arrival_s.tolist() == [0.0, 40.0]
    assert (facts.requests, facts.failed) == (2, 2)
    assert list(facts.remarks()) == ["2 requests of 0 tokens left out, as failed"]
    with pytest.raises(UsageError, match=r"csv:3: column Response tokens is '0'; .*drop_failed: t"):
        read(path, Columns(preset="burstgpt", drop_failed=False))
    with pytest.raises(UsageError, match=r"column Response tokens is '-1'"):
        read(write("b.csv", text.replace(",0,6", ",-1,6")), Columns(preset="burstgpt"))
    ((part,), facts) = read(
        write("c.csv", rows([1, 2], "{},{},0") + "3,1,1\n"), seconds(drop_failed=True)
    )
    assert (len(part), facts.failed) == (1, 2)
    with pytest.raises(UsageError, match=r"c.csv holds no request; 2 failed, with 0 tokens"):
        read(write("c.csv", rows([1, 2], "{},{},0")), seconds(drop_failed=True))


@pytest.mark.parametrize(
    ("columns", "times", "warning"),
    [
        ({}, [i * 0.2 for i in range(40)], None),
        ({}, [i * 1e-4 for i in range(40)], r"10000 requests a second on average, .*columns.time"),
        ({}, [i * 1000.0 for i in range(40)], r"0.001000 requests a second on average"),
        ({}, [0.0, 1e-6], None),  # too few to judge
        ({"time": "ms"}, [0, 100, 200], None),
        ({"time": "ms"}, [0, 100.0, 200.5], "column ts is 200.5 in line 4: milliseconds with a fr"),
        ({"time": "us"}, [0, 0.25], "microseconds with a fraction; if times are seconds, write"),
        ({}, [1_700_000_000, 1_700_000_001], None),
        (
            {"time": "ms"},
            [1_700_000_000, 1_700_000_001],
            "arrival is 1700000000, which in seconds since 1970 is 2023-11-14, .* {time: s}",
        ),
    ],
)
def test_warnings_of_wrong_units(write: Writer, columns: Any, times: Any, warning: Any) -> None:
    _, facts = read(write("t.csv", rows(times)), seconds(**columns))
    found = list(facts.warnings())
    assert len(found) == (warning is not None)
    if warning is not None:
        assert re.search(warning, found[0])


def test_the_beginning_of_a_trace_is_enough_for_a_warning(
    write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "LINES", 20)
    reader = TraceReader(write("t.csv", rows([i * 1e-4 for i in range(99)])), 1.0, seconds())
    next(reader.parts())
    assert reader.facts.requests == 40
    (warning,) = reader.facts.warnings()
    assert warning.startswith("10000 requests a second on average, over 0.001900 s;")


def test_a_session_in_a_csv_needs_delays(write: Writer) -> None:
    header = "ts,in,out,session_id"
    ((part,), _) = read(write("t.csv", header + "\n0,1,1,a\n5,1,1,a\n"), seconds())
    assert part.follows is None
    ((part,), _) = read(
        write("t.csv", header + ",delay\n0,1,1,a,\n,1,1,a,5\n3,1,1,b,\n"), seconds()
    )
    assert part.follows is not None
    assert part.follows.tolist() == [-1, 0, -1]


def test_a_part_of_a_trace(write: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("t.csv", rows([5, 1, 2, 3, 4, 9]))

    def prompts(columns: Columns | None = None, **part: Any) -> list[int]:
        parts, facts = read(path, columns or seconds(), part=Part(**part))
        assert facts.requests == sum(map(len, parts))
        return [tokens for each in parts for tokens in each.context_tokens.tolist()]

    assert prompts() == [2, 3, 4, 5, 1, 6]
    assert prompts(begin=2, end=5) == [3, 4, 5]
    assert prompts(begin="2.5") == [4, 5, 1, 6]
    assert prompts(requests=3) == [2, 3, 1]
    assert prompts(begin=2, requests=2) == [3, 1]
    assert prompts(seconds(time="ms"), begin=2, end=5) == [3, 4, 5]
    with pytest.raises(UsageError, match=r"no request; 6 arrive before 'part.begin' or from"):
        prompts(begin=10)
    with pytest.raises(UsageError, match=r"'part.begin' is 'noon'; expected a time .* of seconds"):
        prompts(begin="noon")
    with pytest.raises(UsageError, match=r"'part.end' is 2.0; expected a later time than .* 2.0"):
        prompts(begin=2, end=2)
    dated = write("d.csv", AZURE + "".join(f"2024-05-1{i} 10:00:00,{i},1\n" for i in range(1, 9)))
    ((days,), _) = read(dated, part=Part(begin="2024-05-12", end="2024-05-14T12:00:00+02:00"))
    assert days.context_tokens.tolist() == [2, 3]
    with pytest.raises(UsageError, match=r"'part.begin' is 5.0; expected .* a date in quotes"):
        read(dated, part=Part(begin=5))


def test_a_large_trace_is_sorted_and_read_in_parts(
    write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "LINES", 10)
    times = [float(i // 7 * 7 + 6 - i % 7) for i in range(70)]  # up to six lines out of place
    whole = sorted(times)
    parts, facts = read(write("t.csv", rows(times)), seconds())
    assert all(len(part) <= 10 for part in parts)
    assert [at for part in parts for at in part.arrival_s.tolist()] == whole
    assert facts.span_s == whole[-1] - whole[0]

    class Counting(io.BytesIO):
        taken = 0

        def __iter__(self) -> Iterator[bytes]:
            while line := self.readline():
                Counting.taken += 1
                yield line

    reader = TraceReader(write("t.csv", rows(times)), 1.0, seconds())
    source = Counting(Path(reader._name).read_bytes())
    monkeypatch.setattr(reader, "_source", type("File", (), {"open": lambda *_: source}))
    monkeypatch.setattr(progress, "SILENT_S", float("inf"))
    assert len(next(reader.parts())) == 10
    assert Counting.taken == 1 + 20  # the header, and twice as many as are yielded

    late = write("late.csv", rows([*map(float, range(40)), 3.5, 50.0]))
    message = r"late.csv:42: the request arrives 25.5 s before one .* 10 lines .* sort the file"
    with pytest.raises(UsageError, match=message):
        read(late, seconds())
    ended, _ = read(late, seconds(), part=Part(end=5))  # behind ten lines that are too late, no
    assert sum(map(len, ended)) == 5  # line is read


def test_progress_of_reading(
    write: Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("t\N{SNOWMAN}.csv", rows([1, 2, 3]))
    read(path, seconds())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    read(path, seconds())
    assert capsys.readouterr().err.endswith("t?.csv: read 100 %, 3 requests\n")
    monkeypatch.setattr("sys.stderr", None)
    read(path, seconds())


def session(**fields: Any) -> str:
    return json.dumps({"input_length": 4, "output_length": 2} | fields) + "\n"


def test_turns_of_sessions(write: Writer) -> None:
    text = (
        session(session_id="a", timestamp=1000)
        + session(session_id="b", timestamp=1000, delay=None)
        + session(session_id="a", delay=500)
        + session(timestamp=1250)
        + session(session_id="b", timestamp=2000)
        + session(session_id="b", delay=0)
        + session(session_id="a", delay=700, timestamp=99)
    )
    reader = TraceReader(write("s.jsonl", text), 2.0, Columns(preset="mooncake"))
    (part,) = reader.parts()
    assert part.arrival_s.tolist() == [0, 0, 0, 0, 0.125, 0.5, 0.5]
    assert part.follows is not None
    assert part.delay_s is not None
    assert part.follows.tolist() == [-1, -1, 0, 2, -1, -1, 5]
    assert part.delay_s.tolist() == [0, 0, 0.25, 0.35, 0, 0, 0]
    for line, message in (
        (
            session(session_id="a", delay=5),
            "delay is 5; expected none in the first request of .*'a'",
        ),
        (session(session_id="a"), "key timestamp is missing"),
        (session(delay=5), "key timestamp is missing"),
        (session(session_id="a", timestamp=0, delay=-5), "delay is -5; expected 0 or more"),
        (session(session_id="a", timestamp=0, delay="x"), "delay is 'x'; expected a number of mil"),
    ):
        with pytest.raises(UsageError, match=message):
            read(write("s.jsonl", line), Columns(preset="mooncake"))


def test_hashes_of_prompts(write: Writer) -> None:
    lines = [
        session(timestamp=9 - i, hash_ids=hashes) for i, hashes in enumerate(([1, 2], [1], [3], []))
    ]
    path = write("h.jsonl", "".join(lines))
    ((part,), facts) = read(path, Columns(preset="mooncake"))
    assert part.hashes is None
    assert facts.sharing == 2
    ((part,), _) = read(path, Columns(preset="mooncake"), with_hashes=True)
    assert part.hashes == ((), (3,), (1,), (1, 2))
    plain = write("p.jsonl", session(timestamp=1))
    ((part,), facts) = read(plain, Columns(preset="mooncake"))
    assert facts.sharing is None
    with pytest.raises(UsageError, match=r"p.jsonl:1: key hash_ids is missing; .*prefix_caching"):
        read(plain, Columns(preset="mooncake"), with_hashes=True)
    for hashes in ("x", [1.5], [[1]], {"a": 1}):
        with pytest.raises(UsageError, match=r"key hash_ids is .*; expected a list of whole numb"):
            read(
                write("b.jsonl", session(timestamp=1, hash_ids=hashes)), Columns(preset="mooncake")
            )


def test_other_encodings_are_named(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(AZURE, encoding="utf-16")
    with pytest.raises(
        UsageError, match="0xff is not UTF-8; expected text in UTF-8, not in UTF-16"
    ):
        read(str(tmp_path / "wide.csv"))


def test_a_follower_in_a_later_part_knows_its_predecessor(
    write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "LINES", 2)
    text = (
        session(session_id="a", timestamp=0)
        + "".join(session(timestamp=0) for _ in range(5))
        + session(session_id="a", delay=1)
    )
    parts, _ = read(write("s.jsonl", text), Columns(preset="mooncake"))
    follows = [-1 if p.follows is None else p.follows.tolist()[-1] for p in parts]
    assert follows[-1] == 0
    assert np.concatenate([p.arrival_s for p in parts]).tolist() == [0.0] * 7
