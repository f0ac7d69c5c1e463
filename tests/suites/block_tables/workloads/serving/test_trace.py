"""Reading traces: what is accepted, and the message for what is not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.serving.columns import Columns
from bt_bench.suites.block_tables.workloads.serving.trace import read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("name", "requests", "median_context", "median_generated", "duration_min"),
    [("azure_conv", 19_366, 1_020, 129, 58), ("azure_code", 8_819, 1_469, 13, 57)],
)
def test_bundled_traces(name, requests, median_context, median_generated, duration_min):
    trace = read_trace(name)
    assert len(trace) == requests
    assert np.median(trace.context_tokens) == median_context
    assert np.median(trace.generated_tokens) == median_generated
    assert trace.arrival_s[-1] // 60 == duration_min
    assert (np.diff(trace.arrival_s) >= 0).all()


def test_dtypes_and_values(write_trace):
    trace = read_trace(write_trace([(3.5, 10, 2), (4.25, 20, 1)]))
    assert trace.arrival_s.dtype == np.float64
    assert trace.context_tokens.dtype == trace.generated_tokens.dtype == np.int64
    assert trace.arrival_s.tolist() == [0.0, 0.75]
    assert trace.context_tokens.tolist() == [10, 20]
    assert trace.generated_tokens.tolist() == [2, 1]


def test_rate_divides_the_times(write_trace):
    trace = read_trace(write_trace([(0, 1, 1), (1, 1, 1), (4, 1, 1)]), rate=2.0)
    assert trace.arrival_s.tolist() == [0.0, 0.5, 2.0]


def test_requests_are_sorted_by_arrival_and_ties_keep_their_order(write_trace):
    trace = read_trace(write_trace([(5, 1, 1), (2, 2, 1), (5, 3, 1), (2, 4, 1)]))
    assert trace.context_tokens.tolist() == [2, 4, 1, 3]
    assert trace.arrival_s.tolist() == [0, 0, 3, 3]
    many = read_trace(write_trace([(5 - i % 2, i + 1, 1) for i in range(200)]))
    assert many.context_tokens.tolist() == [*range(2, 201, 2), *range(1, 201, 2)]


def test_other_columns_time_zones_blank_lines_and_a_byte_order_mark(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "\ufeffmodel, GeneratedTokens,TIMESTAMP,ContextTokens\n"
        "a,7,2024-05-10 02:00:00.009930+02:00,5\n\na,8,2024-05-10T00:00:01Z,6\n",
        encoding="utf-8",
    )
    trace = read_trace(str(path))
    assert trace.arrival_s.tolist() == [0.0, pytest.approx(0.99007)]
    assert trace.context_tokens.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"trace.csv:1: column TIMESTAMP is missing; expected .* found nothing"),
        (
            "TIMESTAMP,ContextTokens\n",
            r"trace.csv:1: column GeneratedTokens is missing; .* found TIMESTAMP, ContextTokens",
        ),
        (HEADER, r"trace.csv holds no request"),
        (
            HEADER + "2023-11-16 18:15:46,1,1\nyesterday,1,1\n",
            r"trace.csv:3: column TIMESTAMP is 'yesterday'; expected a time such as 2023-11-16 .* "
            "add time: s ",
        ),
        (
            HEADER + "2023-11-16 18:15:46,0,1\n",
            r"trace.csv:2: column ContextTokens is '0'; expected a whole number from 1 to",
        ),
        (HEADER + "2023-11-16 18:15:46,1,-3\n", r"column GeneratedTokens is '-3'; expected"),
        (HEADER + "2023-11-16 18:15:46,1.5,3\n", r"column ContextTokens is '1.5'; expected"),
        (HEADER + "2023-11-16 18:15:46,,3\n", r"column ContextTokens is ''; expected"),
        (HEADER + f"2023-11-16 18:15:46,1,{2**31}\n", r"from 1 to 2147483647"),
        (HEADER + f"2023-11-16 18:15:46,1,{'9' * 5000}\n", r"from 1 to 2147483647"),
        (
            HEADER + "2023-11-16 18:15:46,1\n",
            r"trace.csv:2: column GeneratedTokens is missing; expected 3 fields, found 2",
        ),
        ("\udcff\udcfe\x00", r"trace.csv:1: byte 0xff is not UTF-8"),
        (
            HEADER.strip() + ",TIMESTAMP\n2023-11-16 18:15:46,1,1,2024-11-16 18:15:46\n",
            r"trace.csv:1: column TIMESTAMP is there 2 times; expected each that is read once",
        ),
        (HEADER + "20231116,1,1\n", r"column TIMESTAMP is '20231116'; .* for numbers, add time"),
        (
            '[{"TIMESTAMP": 1},\n',
            r"trace.csv:1: the file begins as a list of JSON; .* jq -c '.\[\]'",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UsageError, match=message):
        read_trace(str(path))


def test_a_missing_file_is_refused_with_the_names_that_there_are(tmp_path: Path):
    path = str(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=re.escape(path) + ".* azure_conv, azure_code"):
        read_trace(path)


def test_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="is not a file"):
        read_trace(str(tmp_path))


# Lines in the form of the public traces, and the requests that they are.
FORMATS = {
    "azure": ("a.csv", HEADER + "2023-11-16 18:15:46,5,3\n2023-11-16 18:15:47.5,6,4\n"),
    "mooncake": (
        "m.jsonl",
        '{"timestamp": 3000, "input_length": 5, "output_length": 3, "hash_ids": [0, 1]}\n'
        '{"timestamp": 4500, "input_length": 6, "output_length": 4, "hash_ids": [0]}\n',
    ),
    "bailian": (
        "q.jsonl",
        '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 3.0, "input_length": 5, '
        '"output_length": 3, "type": "text", "turn": 1, "hash_ids": [7]}\n'
        '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 4.5, "input_length": 6, '
        '"output_length": 4, "type": "text", "turn": 2, "hash_ids": [7, 8]}\n',
    ),
    "burstgpt": (
        "b.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,5,3,8,Conversation log\n6.5,GPT-4,6,4,10,API log\n",
    ),
}


@pytest.mark.parametrize("preset", FORMATS)
def test_public_formats(tmp_path: Path, preset):
    name, text = FORMATS[preset]
    (tmp_path / name).write_text(text)
    trace = read_trace(str(tmp_path / name), columns=Columns(preset=preset))
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.context_tokens.tolist() == [5, 6]
    assert trace.generated_tokens.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("s", ["1e3", "1000.25"]),
        ("ms", ["1000000", "1000250"]),
        ("us", ["1000000000", "1.00025e9"]),
        ("ns", ["1700000000000000000", "1700000000250000000"]),
        ("date", ["2024-05-10", "2024-05-10T02:00:00.25+02:00"]),
    ],
)
def test_columns_and_units_of_ones_own(tmp_path: Path, unit, times):
    columns = Columns(arrival="at", prompt="in", output="out", time=unit)
    (tmp_path / "own.csv").write_text("in,at,out\n" + "".join(f"7,{at},8\n" for at in times))
    trace = read_trace(str(tmp_path / "own.csv"), columns=columns)
    assert trace.arrival_s.tolist() == [0.0, 0.25]
    quote = '"' if unit == "date" else ""
    lines = (f'{{"in": 7, "at": {quote}{at}{quote}, "out": 8}}\n' for at in times)
    (tmp_path / "own.jsonl").write_text("".join(lines))
    assert read_trace(str(tmp_path / "own.jsonl"), columns=columns).arrival_s.tolist() == [0, 0.25]


def test_a_bundled_trace_has_its_own_columns():
    assert len(read_trace("azure_code", columns=Columns(preset="mooncake"))) == 8_819


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.jsonl holds no request; expected one in each line"),
        ('{"timestamp": 1,\n', r"m.jsonl:1: not valid JSON: Expecting .* at column 1"),
        ("GOOD\n[1]\n", r"m.jsonl:2: the line is \[1\]; expected a JSON object"),
        (
            "GOOD\n\n{}\n",
            r"m.jsonl:3: key timestamp is missing; found nothing. Name .* "
            "columns: {arrival: ts, ",
        ),
        (
            '{"timestamp": 1, "input_length": 2, "out": 3}',
            "m.jsonl:1: key output_length is missing; found timestamp, input_length, out",
        ),
        ("true, 1, 1", "m.jsonl:1: key timestamp is true; expected a number of milliseconds"),
        ("NaN, 1, 1", "m.jsonl:1: key timestamp is .nan; expected a number of milliseconds"),
        (
            "1700000000000000, 1, 1",
            "a number of milliseconds; if it is in microseconds, write columns: {time: us}",
        ),
        ("1e99, 1, 1", r"m.jsonl:1: key timestamp is 1E\+99; expected a number of milliseconds"),
        ('"now", 1, 1', "m.jsonl:1: key timestamp is 'now'; expected a number of milliseconds"),
        ("0, 1.5, 1", "m.jsonl:1: key input_length is 1.5; expected a whole number from 1 to"),
        ("0, 1, 0", "m.jsonl:1: key output_length is 0; expected a whole number from 1 to"),
        ("0, 1, true", "m.jsonl:1: key output_length is true; expected a whole number"),
        ("0, 1, " + "9" * 5000, "m.jsonl:1: not JSON that can be read; expected an object"),
        ("0, 1, " + "[" * 100_000, "m.jsonl:1: not JSON that can be read; expected an object"),
    ],
)
def test_bad_lines_of_json_are_refused(tmp_path: Path, text, message):
    form = '{{"timestamp": {}, "input_length": {}, "output_length": {}}}'
    text = text.replace("GOOD", form.format(0, 1, 1))
    if text.count(", ") == 2 and "{" not in text:
        text = form.format(*text.split(", "))
    (tmp_path / "m.jsonl").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_trace(str(tmp_path / "m.jsonl"), columns=Columns(preset="mooncake"))


def test_a_header_with_other_names_says_where_to_give_them(tmp_path: Path):
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"columns: {arrival: ts, prompt: "):
        read_trace(str(tmp_path / "m.csv"))
