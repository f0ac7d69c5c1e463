"""The reader of traces of requests: the arrival, context and generated tokens of each.

A trace is read as it is served, some ten thousand requests at a time: one of a week does not fit
into memory, and the beginning of a sequence of steps needs only the beginning of its file.
Requests are sorted by time of arrival (stably), because traces are often logged when a request
ends. One may stand `LINES` lines from its place. Times count to the microsecond.

If a request has a delay, and its session has an earlier one in the file, it arrives when the delay
after the end of the earlier one is over; its own time does not count. `rate` divides delays, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import numpy as np
import numpy.typing as npt

from bt_bench.base import expanded
from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.serving.columns import Columns, Part
from bt_bench.suites.block_tables.workloads.serving.facts import TraceFacts
from bt_bench.suites.block_tables.workloads.serving.lines import FIELDS, Lines, TraceParser

BUNDLED_TRACES = {"azure_conv": "azure_conv.csv", "azure_code": "azure_code.csv"}

LINES = 32_768
"""Requests that are read at a time; twice as many are in memory."""

_ARRIVAL, _CONTEXT, _GENERATED, _SESSION, _DELAY, _LINE = range(FIELDS)


@dataclass(frozen=True)
class Trace:
    """Requests of a trace, in order of arrival; all arrays have one entry per request.

    Args:
        arrival_s: float64, seconds since the first request of all. If a request follows
            another: when the first of its session arrives.
        context_tokens: int64, tokens of the prompt, 1 or more.
        generated_tokens: int64, tokens that the request generates, 1 or more.
        follows: int64, number of the request that must have ended, from 0 at the first request of
            all; -1: none. `None`: none at all.
        delay_s: float64, seconds from its end to this request; `None` likewise.
        hashes: hashes of the blocks of each prompt; `None`: not read.
    """

    arrival_s: npt.NDArray[np.float64]
    context_tokens: npt.NDArray[np.int64]
    generated_tokens: npt.NDArray[np.int64]
    follows: npt.NDArray[np.int64] | None = None
    delay_s: npt.NDArray[np.float64] | None = None
    hashes: tuple[tuple[object, ...], ...] | None = None

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
    path = expanded(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"trace {name_or_path!r} is not a file; expected {', '.join(BUNDLED_TRACES)}, or the "
            f"path of a CSV or, ending in .jsonl, of a file with a JSON object in each line"
        )
    return path


class TraceReader:
    """A reader of a trace, part by part.

    Args:
        name_or_path: `azure_conv`, `azure_code`, or the path of a CSV or JSONL, which may be packed
            with gzip, xz or zstd.
        rate: factor on the arrival rate: the times between arrivals are divided by it.
        columns: the columns to read from a file; `None`: as in Azure's traces, which bundled ones
            have whatever is given.
        part: the requests to read; `None`: all.
        with_hashes: whether hashes of prompts are read, and every request must have them.

    Attributes:
        facts: of the requests read so far.

    Raises:
        UsageError: as from `find_trace`.
    """

    def __init__(
        self,
        name_or_path: str,
        rate: float = 1.0,
        columns: Columns | None = None,
        part: Part | None = None,
        with_hashes: bool = False,
    ) -> None:
        is_bundled = columns is None or name_or_path in BUNDLED_TRACES
        self._columns = Columns() if is_bundled or columns is None else columns
        self._name = name_or_path
        self._source = find_trace(name_or_path)
        self._rate = rate
        self._part = part or Part()
        self._with_hashes = with_hashes
        self.facts = TraceFacts()

    def parts(self) -> Iterator[Trace]:
        """Yield all requests in order of arrival, in parts of at most `LINES`; call this once.

        Raises:
            UsageError: for a file that is unreadable, damaged or empty, or has a bad header or
                value, or a request too far from its place. The message names file, line, column,
                value, and the expected value.
        """
        parser = TraceParser(self._name, self._columns, self._part, self._with_hashes, self.facts)
        try:
            with self._source.open("rb") as file:
                yield from self._sorted(parser.parts(file, LINES))
        except OSError as error:
            raise UsageError(f"{self._name}: cannot be read: {error.strerror or error}") from error
        if not self.facts.requests:
            raise UsageError(f"{self._name} holds no request{self.facts.left_out()}")

    def _sorted(self, parts: Iterator[Lines]) -> Iterator[Trace]:
        """Yield requests sorted by arrival; as many are held back as are read at a time."""
        held = Lines.empty()
        emitted = _Emitted(self._rate)
        for read in parts:
            earliest = read.numbers[:, _ARRIVAL].min(initial=emitted.last)
            if emitted.num_requests and earliest < emitted.last:
                raise self._out_of_place(read, emitted.last)
            lines = Lines.joined(held, read).sorted()
            num_sure = len(held)
            if num_sure:
                yield self._counted(emitted, lines[:num_sure])
            held = lines[num_sure:]
        if len(held):
            yield self._counted(emitted, held)

    def _counted(self, emitted: _Emitted, lines: Lines) -> Trace:
        part = emitted.trace(lines)
        self.facts.sorted, self.facts.span_s = emitted.num_requests, emitted.span_s
        return part

    def _out_of_place(self, read: Lines, last: int) -> UsageError:
        early = read.numbers[read.numbers[:, _ARRIVAL].argmin()]
        return UsageError(
            f"{self._name}:{early[_LINE]}: the request arrives "
            f"{(last - int(early[_ARRIVAL])) / 1e6:g} s before one that is {LINES:,} lines or more "
            f"above it; expected requests at most {LINES:,} lines from their place by time: sort "
            "the file by time of arrival"
        )


def read_trace(name_or_path: str, rate: float = 1.0, columns: Columns | None = None) -> Trace:
    """Read a whole trace; see `TraceReader` for arguments and errors."""
    parts = list(TraceReader(name_or_path, rate, columns).parts())
    return Trace(
        np.concatenate([part.arrival_s for part in parts]),
        np.concatenate([part.context_tokens for part in parts]),
        np.concatenate([part.generated_tokens for part in parts]),
    )


class _Emitted:
    """Requests that have been yielded: their number, times, and the last one of each session."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._first = 0
        self._last_of_session: dict[int, int] = {}
        self.last = 0
        self.num_requests = 0

    @property
    def span_s(self) -> float:
        return (self.last - self._first) / 1e6

    def trace(self, lines: Lines) -> Trace:
        arrival_us, context, generated, session, delay_us, _ = lines.numbers.T
        if not self.num_requests:
            self._first = int(arrival_us[0])
        self.last = int(arrival_us[-1])
        follows = delay_s = None
        if (session >= 0).any():
            follows = self._followed(session.tolist(), delay_us.tolist())
            delay_s = np.maximum(delay_us, 0) / (1e6 * self._rate)
        self.num_requests += len(lines)
        return Trace(
            (arrival_us - self._first) / (1e6 * self._rate),
            context.copy(),
            generated.copy(),
            follows,
            delay_s,
            lines.hashes,
        )

    def _followed(self, sessions: list[int], delays: list[int]) -> npt.NDArray[np.int64]:
        follows = np.full(len(sessions), -1, dtype=np.int64)
        for index, (session, delay) in enumerate(zip(sessions, delays, strict=True)):
            if session >= 0:
                if delay >= 0:
                    follows[index] = self._last_of_session[session]
                self._last_of_session[session] = self.num_requests + index
        return follows
