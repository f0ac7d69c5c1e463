"""Reading traces: what is accepted, and the message for what is not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bt_bench.errors import UsageError
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
            r"trace.csv:3: column TIMESTAMP is 'yesterday'; expected a time such as 2023-11-16",
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
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_trace(str(path))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(UsageError, match="cannot be read as CSV"):
        read_trace(str(path))


def test_a_missing_file_is_refused_with_the_names_that_there_are(tmp_path: Path):
    path = str(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=re.escape(path) + ".* azure_conv, azure_code"):
        read_trace(path)


def test_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="is not a file"):
        read_trace(str(tmp_path))
