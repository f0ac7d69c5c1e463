"""The lines of a trace, parsed into numbers, a limited number of them at a time."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import chain, islice
from typing import IO

import numpy as np
import numpy.typing as npt

from bt_bench.base import unpacking
from bt_bench.base.errors import UsageError, shown
from bt_bench.base.packing import PACKED
from bt_bench.suites.block_tables.workloads.serving.columns import (
    BAILIAN_KEY,
    PRESETS,
    Columns,
    Part,
    format_of,
)
from bt_bench.suites.block_tables.workloads.serving.facts import TraceFacts
from bt_bench.suites.block_tables.workloads.serving.progress import ReadingProgress
from bt_bench.suites.block_tables.workloads.serving.times import (
    MAX_SECONDS,
    UNITS,
    date_us,
    doubt_of,
    unit_since_1970,
)

MAX_TRACE_TOKENS = 2_147_483_647

FIELDS = 6
"""Numbers of a request: arrival in µs, context and generated tokens, number of its session (-1:
none), delay in µs (-1: none), line."""

_JSON_ENDINGS = (".jsonl", ".ndjson")
_EXPECTED = "a trace: CSV, or JSONL"
_OTHER_NAMES = (
    ". Name them in the config, such as columns: {arrival: ts, prompt: input, output: generated, "
    "time: ms}"
)

Hashes = tuple[object, ...]
Fields = Mapping[str, object]
Request = tuple[int, int, int, int, int, Hashes]
"""The first numbers of `FIELDS`, and hashes: all, or the first if no more are read."""


@dataclass(frozen=True)
class Lines:
    """Requests of some lines: `[R, FIELDS]` int64, and their hashes if those are read."""

    numbers: npt.NDArray[np.int64]
    hashes: tuple[Hashes, ...] | None = None

    @classmethod
    def empty(cls) -> Lines:
        """Return no requests."""
        return cls(np.zeros((0, FIELDS), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> Lines:
        hashes = None if self.hashes is None else self.hashes[part]
        return Lines(self.numbers[part], hashes)

    @classmethod
    def joined(cls, before: Lines, after: Lines) -> Lines:
        """Return the requests of both; the first may be empty."""
        hashes = None if after.hashes is None else (before.hashes or ()) + after.hashes
        return cls(np.concatenate((before.numbers, after.numbers)), hashes)

    def sorted(self) -> Lines:
        """Return them in order of arrival; requests that arrive together keep their order."""
        order = np.argsort(self.numbers[:, 0], kind="stable")
        hashes = None if self.hashes is None else tuple(self.hashes[i] for i in order.tolist())
        return Lines(self.numbers[order], hashes)


class TraceParser:
    """A parser of the lines of a file into numbers; it keeps its place, for its errors.

    Args:
        file: name of the file.
        columns: the columns that are read.
        part: the requests that are read.
        with_hashes: whether hashes of prompts are read, and every request must have them.
        facts: counts the requests read.

    Raises:
        UsageError: for a part whose limits are no times, or in the wrong order.
    """

    def __init__(
        self, file: str, columns: Columns, part: Part, with_hashes: bool, facts: TraceFacts
    ) -> None:
        self._file = file
        self._columns = columns
        self._places = columns.places()
        self._part = part
        self._with_hashes = with_hashes
        self._facts = facts
        self._line = 0
        self._is_json = _without_packing(file).endswith(_JSON_ENDINGS)
        self._kind = "key" if self._is_json else "column"
        self._sessions: dict[str, tuple[int, int]] = {}  # number, and arrival of the last request
        self._is_done = False
        self._begin, self._end = (self._limit(name) for name in ("begin", "end"))
        if self._begin is not None and self._end is not None and self._begin >= self._end:
            raise UsageError(
                f"'part.end' is {shown(part.end)}; expected a later time than 'part.begin', "
                f"{shown(part.begin)}"
            )

    def parts(self, file: IO[bytes], count: int) -> Iterator[Lines]:
        """Yield the wanted requests of each `count` lines, in the file's order.

        Args:
            file: the trace, packed or not.
            count: how many lines are parsed at a time.
        """
        progress = ReadingProgress(self._file, file)
        with unpacking(file, self._file, _EXPECTED) as unpacked:
            requests = self._requests(self._parsed(self._decoded(unpacked)))
            while (part := self._next(requests, count)) is not None:
                yield part
                progress.tell(self._facts.requests)
                if self._is_done:
                    break

    def _next(self, requests: Iterator[Request], count: int) -> Lines | None:
        """Parse so many requests; return those that are wanted, and `None` at the file's end."""
        numbers = array("q")
        hashes: list[Hashes] = []
        facts, begin, end = self._facts, self._begin, self._end
        parsed = late = 0
        for request in islice(requests, count):
            arrival, hashed = request[0], request[-1]
            parsed += 1
            is_late = end is not None and arrival >= end
            late += is_late
            if is_late or (begin is not None and arrival < begin):
                facts.elsewhere += 1
                continue
            numbers.extend((*request[:-1], self._line))
            facts.requests += 1
            if hashed:
                facts.has_hashes = True
                facts.first_hashes[hashed[0]] += 1
            if self._with_hashes:
                hashes.append(hashed)
            if facts.requests == self._part.requests:
                break
        # After a whole part that is too late, a wanted request would be out of its place.
        self._is_done = facts.requests == self._part.requests or late == parsed
        if not parsed:
            return None
        found = np.array(numbers, dtype=np.int64).reshape(-1, FIELDS)
        return Lines(found, tuple(hashes) if self._with_hashes else None)

    def _requests(self, lines: Iterable[Fields]) -> Iterator[Request]:
        """Yield each request that has not failed."""
        places = self._places
        for number, fields in enumerate(lines):
            if not number:
                self._refuse_other_format(fields)
            # Every line of a CSV has all columns, so that a session without delays is none.
            may_wait = self._is_json or places.delay in fields
            is_alone = not may_wait or fields.get(places.session) in (None, "")
            at, session, delay = 0, -1, -1
            if is_alone:
                at = self._read_time(places.arrival, self._given(places.arrival, fields))
            context = self._tokens(places.prompt, self._given(places.prompt, fields))
            generated = self._tokens(places.output, self._given(places.output, fields))
            if not context or not generated:
                self._facts.failed += 1
                continue
            if not is_alone:
                at, session, delay = self._in_session(fields)
            yield at, context, generated, session, delay, self._hashes(fields)

    def _in_session(self, fields: Fields) -> tuple[int, int, int]:
        """Return the arrival, the number of the session, and the delay: -1 for none."""
        places = self._places
        session, value = str(fields[places.session]), fields.get(places.delay)
        number, before = self._sessions.get(session, (len(self._sessions), None))
        delay = -1
        if value not in (None, ""):
            unit = "s" if places.time == "date" else places.time
            delay = self._number(unit, places.delay, value)
            if delay < 0:
                raise self._wrong(places.delay, value, "0 or more")
        if before is None or delay < 0:
            if delay > 0:
                raise self._wrong(
                    places.delay, value, f"none in the first request of session {shown(session)}"
                )
            at, delay = self._read_time(places.arrival, self._given(places.arrival, fields)), -1
        else:
            at = before
        self._sessions[session] = (number, at)
        return at, number, delay

    def _given(self, name: str, fields: Fields) -> object:
        if name not in fields:
            found = ", ".join(map(str, fields)) or "nothing"
            raise self._error(
                f"{self._kind} {name} is missing; found {found}{_other_names(fields)}"
            )
        return fields[name]

    def _refuse_other_format(self, fields: Fields) -> None:
        """Refuse a trace with the keys of the preset, and another unit of times."""
        preset, other = self._columns.preset, self._columns.mistaken_for(list(fields))
        if other is None:
            return
        has = "is there" if other == "bailian" else "is missing"
        unit, wrong = (UNITS[PRESETS[each].time][1] for each in (other, preset))
        raise self._error(
            f"key {BAILIAN_KEY} {has}: the trace is one of {other.capitalize()}, whose times are "
            f"{unit}, and 'columns.preset' is {preset}, which reads {wrong}. Write columns: "
            f"{{preset: {other}}}; or add time: {PRESETS[preset].time} if they are {wrong}"
        )

    def _decoded(self, file: Iterable[bytes]) -> Iterator[str]:
        for number, line in enumerate(file, 1):
            self._line = number
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                wide = " in UTF-8, not in UTF-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
                raise self._error(f"byte 0x{byte:02x} is not UTF-8; expected text{wide}") from None

    def _parsed(self, lines: Iterator[str]) -> Iterator[Fields]:
        """Yield the fields of each line: of JSON if the file is named so, or begins so."""
        first = next(lines, "")
        if first.lstrip().startswith("["):
            raise self._error(
                "the file begins as a list of JSON; expected an object in each line, as "
                "jq -c '.[]' makes of it"
            )
        self._is_json = self._is_json or first.lstrip().startswith("{")
        self._kind = "key" if self._is_json else "column"
        lines = chain([first], lines) if first else iter(())
        return self._objects(lines) if self._is_json else self._rows(lines)

    def _objects(self, lines: Iterable[str]) -> Iterator[Fields]:
        for line in lines:
            if not line.strip():
                continue
            try:
                value = json.loads(line, parse_float=Decimal)
            except json.JSONDecodeError as error:
                raise self._error(
                    f"not valid JSON: {error.msg} at column {error.colno}; expected an object in "
                    "each line"
                ) from None
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
                    f"{', '.join(header) or 'nothing'}{_other_names(header)}"
                )
        for name in (*wanted, self._places.hashes, self._places.session, self._places.delay):
            if header.count(name) > 1:
                raise self._error(
                    f"column {name} is there {header.count(name)} times; expected each that is "
                    "read once: rename or remove the others"
                )

    def _limit(self, name: str) -> int | None:
        """Return the time that a limit of the wanted part is, in microseconds as arrivals are."""
        value = getattr(self._part, name)
        if value is None:
            return None
        try:
            return self._read_time(name, value)
        except UsageError:
            unit = self._places.time
            expected = (
                "a date in quotes, such as '2024-05-12 08:00'"
                if unit == "date"
                else f"a number of {UNITS[unit][1]}"
            )
            raise UsageError(
                f"'part.{name}' is {shown(value)}; expected a time as in the trace, {expected}"
            ) from None

    def _read_time(self, name: str, value: object) -> int:
        unit = self._places.time
        return self._date(name, value) if unit == "date" else self._number(unit, name, value)

    def _date(self, column: str, value: object) -> int:
        try:
            return date_us(str(value))
        except (ValueError, OverflowError):
            expected = (
                "a time such as 2023-11-16 18:15:46.6805900; for numbers, add time: s (or ms, us, "
                "ns) to 'columns' in the config"
            )
            raise self._wrong(column, value, expected) from None

    def _number(self, unit: str, column: str, value: object) -> int:
        """Read a time in a unit of `UNITS`; return it in microseconds."""
        per_second, name = UNITS[unit]
        try:
            number = Decimal(str(value).strip())
        except InvalidOperation:
            number = Decimal("NaN")
        is_number = number.is_finite() and not isinstance(value, bool)
        if not is_number or abs(number) > MAX_SECONDS * per_second:
            since = unit_since_1970(number) if is_number else None
            remedy = since and f"; if it is in {UNITS[since][1]}, write columns: {{time: {since}}}"
            raise self._wrong(column, value, f"a number of {name}{remedy or ''}")
        if column == self._places.arrival and not self._facts.requests:
            self._facts.date = doubt_of(number, unit)
        if per_second > 1 and not self._facts.fraction and number % 1:
            self._facts.fraction = (
                f"{self._kind} {column} is {number} in line {self._line}: {name} with a fraction; "
                "if times are seconds, write columns: {time: s}"
            )
        return int(number * 10**6 / per_second)

    def _tokens(self, column: str, value: object) -> int:
        """Read a number of tokens; 0 if requests of no tokens are left out."""
        text = str(value).strip() if not isinstance(value, bool) else ""
        is_number = text.isascii() and text.isdigit() and len(text) <= 10
        tokens = int(text) if is_number else 0
        if is_number and not tokens and self._places.drop_failed:
            return 0
        if not 1 <= tokens <= MAX_TRACE_TOKENS:
            expected = f"a whole number from 1 to {MAX_TRACE_TOKENS}"
            if is_number and not tokens:
                expected += ". To leave out failed requests, write columns: {drop_failed: true}"
            raise self._wrong(column, value, expected)
        return tokens

    def _hashes(self, fields: Fields) -> Hashes:
        """Return the hashes of a prompt; empty if it has none, and need not have any."""
        name = self._places.hashes
        value = fields.get(name)
        if value is None and self._with_hashes:
            raise self._error(
                f"{self._kind} {name} is missing; expected the hashes of the prompt's blocks, "
                "since 'prefix_caching' is true"
            )
        if value is None or value == "":
            return ()
        # Only the first is of use without a cache.
        used = (value if self._with_hashes else value[:1]) if isinstance(value, list) else [None]
        if not all(type(each) in (int, str) for each in used):
            raise self._wrong(name, value, "a list of whole numbers or texts")
        return tuple(used)

    def _wrong(self, name: str, value: object, expected: str) -> UsageError:
        given = value.strip() if isinstance(value, str) else value
        spelled = str(given) if isinstance(given, Decimal) else shown(given)
        return self._error(f"{self._kind} {name} is {spelled}; expected {expected}")

    def _error(self, message: str) -> UsageError:
        return UsageError(f"{self._file}:{self._line}: {message}")


def _without_packing(name: str) -> str:
    name = name.lower()
    return next((name.removesuffix(each) for each in PACKED if name.endswith(each)), name)


def _other_names(found: Collection[str]) -> str:
    """Return how to name columns that were not found."""
    preset = format_of(found)
    if preset is None:
        return _OTHER_NAMES
    return f". The format is {preset}: write columns: {{preset: {preset}}}"
