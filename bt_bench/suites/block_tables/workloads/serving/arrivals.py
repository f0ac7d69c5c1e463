"""The requests of a trace as they arrive at a scheduler; only some of them are in memory."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bt_bench.suites.block_tables.workloads.serving.limits import fit_lengths, refuse_oversized
from bt_bench.suites.block_tables.workloads.serving.parameters import ServingParameters
from bt_bench.suites.block_tables.workloads.serving.trace import Trace


@dataclass(slots=True)
class Request:
    """A request that has arrived.

    Args:
        number: its number in the trace, from 0.
        arrival_s: when it arrives; if it follows another: when the first of the session does.
        context: tokens of its prompt.
        final: tokens computed when it ends; the last generated one never is.
        follows: number of the request after which it comes; -1: none.
        delay_s: seconds from its end to this arrival.
        hashes: of the blocks of its prompt; empty if they are not read.
        prefill_end: tokens of its prefill, which grow when it is preempted.
    """

    number: int
    arrival_s: float
    context: int
    final: int
    follows: int
    delay_s: float
    hashes: tuple[object, ...]
    prefill_end: int


class Arrivals:
    """The requests of a trace by time of arrival.

    Args:
        parts: the trace; each part is read when it is needed.
        parameters: give the limits that requests are cut to.
        num_blocks: blocks of the pool.

    Attributes:
        num_truncated: requests cut to `max_model_len` so far.

    Raises:
        UsageError: also from all methods: as from reading the trace, and if a request needs more
            blocks than the pool has.
    """

    def __init__(
        self, parts: Iterator[Trace], parameters: ServingParameters, num_blocks: int
    ) -> None:
        self.num_truncated = 0
        self._parts = parts
        self._parameters = parameters
        self._num_blocks = num_blocks
        self._first = 0  # number of the first request of the part
        self._queue: deque[Request] = deque()
        self._has_sessions = False
        self._part: list[tuple[float, int, int, int, float, tuple[object, ...]]] = []
        self._place = 0
        self._waiting: dict[int, list[Request]] = {}  # for the end of a request, by its number
        self._delayed: list[tuple[float, int, Request]] = []  # a heap
        self._read()

    def next_s(self) -> float | None:
        """Return when the next request arrives; `None` if none is left but those that wait."""
        times = [self._part[self._place][0]] if self._part else []
        times += [self._delayed[0][0]] if self._delayed else []
        return min(times, default=None)

    def first(self, clock_s: float) -> Request | None:
        """Return the first request in the queue at a time; `None` if there is none.

        Requests arrive in the queue only when it is their turn: under too high a load, it would
        have to hold most of the trace. In a trace with sessions, though, a request must be there
        before the one that it follows has ended.
        """
        while self._has_sessions or not self._queue:
            at = self.next_s()
            if at is None or at > clock_s:
                break
            if self._delayed and self._delayed[0][0] == at:
                self._queue.append(heapq.heappop(self._delayed)[-1])
                continue
            request = self._take()
            if request.follows < 0:
                self._queue.append(request)
            else:
                self._waiting.setdefault(request.follows, []).append(request)
        return self._queue[0] if self._queue else None

    def admit(self) -> None:
        """Take the first request from the queue."""
        self._queue.popleft()

    def put_back(self, request: Request) -> None:
        """Put a request at the front of the queue."""
        self._queue.appendleft(request)

    def end(self, number: int, clock_s: float) -> None:
        """Note that a request has ended, and when those that follow it arrive."""
        for request in self._waiting.pop(number, ()):
            heapq.heappush(self._delayed, (clock_s + request.delay_s, request.number, request))

    def _take(self) -> Request:
        arrival_s, context, final, follows, delay_s, hashes = self._part[self._place]
        number = self._first + self._place
        self._place += 1
        if self._place == len(self._part):
            self._read()
        return Request(number, arrival_s, context, final, follows, delay_s, hashes, context)

    def _read(self) -> None:
        self._first += len(self._part)
        self._part, self._place = [], 0
        part = next(self._parts, None)
        if part is None:
            return
        self._has_sessions |= part.follows is not None
        context, generated = fit_lengths(part, self._parameters.max_model_len)
        shortened = (context < part.context_tokens) | (generated < part.generated_tokens)
        self.num_truncated += int(np.count_nonzero(shortened))
        final = context + generated - 1
        refuse_oversized(final, self._parameters, self._num_blocks, self._first)
        count = len(part)
        self._part = list(
            zip(
                part.arrival_s.tolist(),
                context.tolist(),
                final.tolist(),
                [-1] * count if part.follows is None else part.follows.tolist(),
                [0.0] * count if part.delay_s is None else part.delay_s.tolist(),
                part.hashes or [()] * count,
                strict=True,
            )
        )
