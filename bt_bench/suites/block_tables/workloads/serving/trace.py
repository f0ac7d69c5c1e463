"""Reading a trace of requests: when each arrived, and its context and generated tokens.

Requests are sorted by time of arrival (stably), because traces are often logged when a request
ends; a file that is not in order is therefore not an error. Times count to the microsecond.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import StringIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bt_bench.errors import UsageError

BUNDLED_TRACES = {"azure_conv": "azure_conv.csv", "azure_code": "azure_code.csv"}

MAX_TRACE_TOKENS = 2_147_483_647

TIMESTAMP, CONTEXT_TOKENS, GENERATED_TOKENS = "TIMESTAMP", "ContextTokens", "GeneratedTokens"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Trace:
    """The requests of a trace, in order of arrival; all arrays have one entry per request.

    Args:
        arrival_s: float64, seconds since the first request.
        context_tokens: int64, tokens of the prompt, 1 or more.
        generated_tokens: int64, tokens that the request generates, 1 or more.
    """

    arrival_s: npt.NDArray[np.float64]
    context_tokens: npt.NDArray[np.int64]
    generated_tokens: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_s)


def find_trace(name_or_path: str) -> Traversable:
    """The file of a trace: a bundled one by its name, else the CSV at that path.

    Raises:
        UsageError: when it is no bundled trace and there is no such file.
    """
    if name_or_path in BUNDLED_TRACES:
        return files("bt_bench.suites.block_tables.workloads.traces").joinpath(
            BUNDLED_TRACES[name_or_path]
        )
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise UsageError(
            f"trace {name_or_path!r} is not a file; expected {', '.join(BUNDLED_TRACES)}, or the "
            f"path of a CSV with the columns {TIMESTAMP}, {CONTEXT_TOKENS}, {GENERATED_TOKENS}"
        )
    return path


def read_trace(name_or_path: str, rate: float = 1.0) -> Trace:
    """Reads a trace.

    Args:
        name_or_path: `azure_conv`, `azure_code`, or the path of a CSV of that form.
        rate: factor on the arrival rate: the times between arrivals are divided by it.

    Raises:
        UsageError: for a file that is missing, unreadable or empty, or has a bad header or value.
            The message names file, line, column, value, and what was expected.
    """
    source = find_trace(name_or_path)
    try:
        text = source.read_text(encoding="utf-8-sig")
        requests = list(_Parser(name_or_path, StringIO(text)).requests())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{name_or_path}: cannot be read as CSV: {error}") from error
    if not requests:
        raise UsageError(f"{name_or_path} holds no request; expected one per line after the header")
    columns = np.array(requests, dtype=np.int64)
    arrival_us, context_tokens, generated_tokens = columns[
        np.argsort(columns[:, 0], kind="stable")
    ].T
    return Trace(
        (arrival_us - arrival_us[0]) / (1e6 * rate), context_tokens.copy(), generated_tokens.copy()
    )


class _Parser:
    """Turns the lines of a CSV into numbers; knows where it is, for its errors."""

    def __init__(self, file: str, lines: Iterable[str]) -> None:
        self._file = file
        self._rows = csv.reader(lines)
        self._header = [name.strip() for name in next(self._rows, [])]
        self._columns: dict[str, int] = {}

    def requests(self) -> Iterator[tuple[int, int, int]]:
        """Per request: arrival in microseconds since 1970, context and generated tokens."""
        for name in (TIMESTAMP, CONTEXT_TOKENS, GENERATED_TOKENS):
            if name not in self._header:
                found = ", ".join(self._header) or "nothing"
                raise UsageError(
                    f"{self._file}:1: column {name} is missing; expected a header with "
                    f"{TIMESTAMP}, {CONTEXT_TOKENS}, {GENERATED_TOKENS}, found {found}"
                )
            self._columns[name] = self._header.index(name)
        for row in self._rows:
            if row:  # else a blank line
                yield (
                    self._microseconds(row),
                    self._tokens(row, CONTEXT_TOKENS),
                    self._tokens(row, GENERATED_TOKENS),
                )

    def _microseconds(self, row: list[str]) -> int:
        text = self._field(row, TIMESTAMP)
        try:
            time = datetime.fromisoformat(text)
            return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            raise self._error(
                TIMESTAMP, text, "a time such as 2023-11-16 18:15:46.6805900"
            ) from None

    def _tokens(self, row: list[str], column: str) -> int:
        text = self._field(row, column)
        tokens = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else 0
        if not 1 <= tokens <= MAX_TRACE_TOKENS:
            raise self._error(column, text, f"a whole number from 1 to {MAX_TRACE_TOKENS}")
        return tokens

    def _field(self, row: list[str], column: str) -> str:
        index = self._columns[column]
        if index >= len(row):
            raise UsageError(
                f"{self._file}:{self._rows.line_num}: column {column} is missing; expected "
                f"{len(self._header)} fields, found {len(row)}"
            )
        return row[index].strip()

    def _error(self, column: str, text: str, expected: str) -> UsageError:
        return UsageError(
            f"{self._file}:{self._rows.line_num}: column {column} is {text!r}; expected {expected}"
        )
