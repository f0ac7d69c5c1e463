"""The reader of traces of requests: the arrival, context and generated tokens of each.

Requests are sorted by time of arrival (stably), because traces are often logged when a request
ends; a file that is not in order is therefore not an error. Times count to the microsecond.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bt_bench.base.errors import UsageError, shown
from bt_bench.suites.block_tables.workloads.serving.columns import PRESETS, Columns, Places

BUNDLED_TRACES = {"azure_conv": "azure_conv.csv", "azure_code": "azure_code.csv"}

MAX_TRACE_TOKENS = 2_147_483_647
MAX_SECONDS = 10**11  # three thousand years; microseconds of it are an int64

_JSON_ENDINGS = (".jsonl", ".ndjson")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# How many are a second, and their name.
_UNITS = {
    "s": (1, "seconds"),
    "ms": (10**3, "milliseconds"),
    "us": (10**6, "microseconds"),
    "ns": (10**9, "nanoseconds"),
}

Fields = Mapping[str, object]


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
    """Locate the file of a trace: a bundled one by its name, else the file at that path.

    Raises:
        UsageError: if it is no bundled trace, and there is no such file.
    """
    if name_or_path in BUNDLED_TRACES:
        return files("bt_bench.suites.block_tables.workloads.traces").joinpath(
            BUNDLED_TRACES[name_or_path]
        )
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise UsageError(
            f"trace {name_or_path!r} is not a file; expected {', '.join(BUNDLED_TRACES)}, or the "
            f"path of a CSV or, ending in .jsonl, of a file with a JSON object in each line"
        )
    return path


def read_trace(name_or_path: str, rate: float = 1.0, columns: Columns | None = None) -> Trace:
    """Read a trace.

    Args:
        name_or_path: `azure_conv`, `azure_code`, or the path of a CSV or JSONL.
        rate: factor on the arrival rate: the times between arrivals are divided by it.
        columns: the columns to read from a file; `None`: as in Azure's traces, which bundled ones
            have whatever is given.

    Raises:
        UsageError: for a file that is missing, unreadable or empty, or has a bad header or value.
            The message names file, line, column, value, and the expected value.
    """
    source = find_trace(name_or_path)
    is_bundled = columns is None or name_or_path in BUNDLED_TRACES
    places = PRESETS["azure"] if is_bundled or columns is None else columns.places()
    numbers = array("q")
    try:
        with source.open("rb") as file:
            for request in _Parser(name_or_path, places).requests(file):
                numbers.extend(request)
    except OSError as error:
        raise UsageError(f"{name_or_path}: cannot be read: {error.strerror or error}") from error
    if not numbers:
        raise UsageError(f"{name_or_path} holds no request; expected one in each line")
    requests = np.frombuffer(numbers, dtype=np.int64).reshape(-1, 3)
    arrival_us, context_tokens, generated_tokens = requests[
        np.argsort(requests[:, 0], kind="stable")
    ].T
    return Trace(
        (arrival_us - arrival_us[0]) / (1e6 * rate), context_tokens.copy(), generated_tokens.copy()
    )


_OTHER_NAMES = (
    ". Name them in the config, such as columns: {arrival: ts, prompt: input, output: generated, "
    "time: ms}"
)


class _Parser:
    """A parser of the lines of a file into numbers; it keeps its place, for its errors."""

    def __init__(self, file: str, places: Places) -> None:
        self._file = file
        self._places = places
        self._line = 0
        self._is_json = file.lower().endswith(_JSON_ENDINGS)
        self._kind = "key" if self._is_json else "column"

    def requests(self, file: Iterable[bytes]) -> Iterator[tuple[int, int, int]]:
        """Yield each request: its arrival in microseconds, context and generated tokens."""
        lines = self._decoded(file)
        arrival, prompt, output, time = self._places
        microseconds = self._date if time == "date" else partial(self._number, time)
        for fields in self._objects(lines) if self._is_json else self._rows(lines):
            for name in (arrival, prompt, output):
                if name not in fields:
                    found = ", ".join(map(str, fields)) or "nothing"
                    raise self._error(
                        f"{self._kind} {name} is missing; found {found}{_OTHER_NAMES}"
                    )
            yield (
                microseconds(arrival, fields[arrival]),
                self._tokens(prompt, fields[prompt]),
                self._tokens(output, fields[output]),
            )

    def _decoded(self, file: Iterable[bytes]) -> Iterator[str]:
        for number, line in enumerate(file, 1):
            self._line = number
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise self._error(f"byte 0x{byte:02x} is not UTF-8; expected text") from None

    def _objects(self, lines: Iterable[str]) -> Iterator[Fields]:
        for line in lines:
            if not line.strip():
                continue
            try:
                value = json.loads(line, parse_float=Decimal)
            except json.JSONDecodeError as error:
                raise self._error(f"not valid JSON: {error.msg} at column {error.colno}") from None
            except (ValueError, RecursionError):  # numbers of thousands of digits; nesting
                raise self._error("not JSON that can be read; expected an object") from None
            if not isinstance(value, dict):
                raise self._error(f"the line is {shown(value)}; expected a JSON object")
            yield value

    def _rows(self, lines: Iterable[str]) -> Iterator[Fields]:
        rows = csv.reader(lines)
        try:
            header = [name.strip() for name in next(rows, [])]
            self._line = 1
            self._check_header(header)
            for row in rows:
                if 0 < len(row) < len(header):
                    raise self._error(
                        f"column {header[len(row)]} is missing; expected {len(header)} fields, "
                        f"found {len(row)}"
                    )
                if row:  # else a blank line
                    yield dict(zip(header, row, strict=False))
        except csv.Error as error:
            raise self._error(f"cannot be read as CSV: {error}") from None

    def _check_header(self, header: list[str]) -> None:
        wanted = self._places[:3]
        for name in wanted:
            if name not in header:
                raise self._error(
                    f"column {name} is missing; expected a header with {', '.join(wanted)}, found "
                    f"{', '.join(header) or 'nothing'}{_OTHER_NAMES}"
                )

    def _date(self, column: str, value: object) -> int:
        try:
            time = datetime.fromisoformat(str(value).strip())
            return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            expected = (
                "a time such as 2023-11-16 18:15:46.6805900; for numbers, add time: s (or ms, us, "
                "ns) to 'columns' in the config"
            )
            raise self._wrong(column, value, expected) from None

    def _number(self, unit: str, column: str, value: object) -> int:
        """Read a time in a unit of `_UNITS`; return it in microseconds."""
        per_second, name = _UNITS[unit]
        try:
            seconds = Decimal(str(value).strip()) / per_second
        except InvalidOperation:
            seconds = Decimal("NaN")
        is_number = seconds.is_finite() and not isinstance(value, bool)
        if not is_number or abs(seconds) > MAX_SECONDS:
            raise self._wrong(column, value, f"a number of {name}")
        return int(seconds * 10**6)

    def _tokens(self, column: str, value: object) -> int:
        text = str(value).strip() if not isinstance(value, bool) else ""
        tokens = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else 0
        if not 1 <= tokens <= MAX_TRACE_TOKENS:
            raise self._wrong(column, value, f"a whole number from 1 to {MAX_TRACE_TOKENS}")
        return tokens

    def _wrong(self, name: str, value: object, expected: str) -> UsageError:
        given = value.strip() if isinstance(value, str) else value
        spelled = str(given) if isinstance(given, Decimal) else shown(given)
        return self._error(f"{self._kind} {name} is {spelled}; expected {expected}")

    def _error(self, message: str) -> UsageError:
        return UsageError(f"{self._file}:{self._line}: {message}")
