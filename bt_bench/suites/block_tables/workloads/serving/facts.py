"""Facts of a trace that show whether it was read as it was meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from bt_bench.base import format_number
from bt_bench.base.errors import counted

_FEW = 16
"""With fewer requests, a rate means nothing."""

_RATES = (0.01, 1000.0)
"""Requests a second that a trace of an engine may have, on average; units are wrong by 1,000."""


@dataclass
class TraceFacts:
    """Facts of the requests of a trace that have been read.

    Args:
        requests: those that are served.
        failed: those left out because they have 0 tokens.
        elsewhere: those left out because they are in no wanted part of the trace.
        sorted: those of them that have been brought in order of arrival.
        span_s: from the first arrival to the last one of these, in seconds of the trace, before
            `rate`.
        first_hashes: by the first hash of a prompt, how many begin with it.
        has_hashes: whether any request has hashes.
        fraction: a time with a fraction in a unit that has none, and where it is; empty: none.
        date: the first arrival, if it is a date of our time in another unit; empty: it is none.
    """

    requests: int = 0
    failed: int = 0
    elsewhere: int = 0
    sorted: int = 0
    span_s: float = 0.0
    first_hashes: Counter[object] = field(default_factory=Counter)
    has_hashes: bool = False
    fraction: str = ""
    date: str = ""

    @property
    def rate_per_s(self) -> float | None:
        """Return the mean rate of arrivals, before `rate`; `None` where all arrive at once."""
        return (self.sorted - 1) / self.span_s if self.span_s else None

    @property
    def sharing(self) -> int | None:
        """Return the requests whose prompts begin as another one's; `None`: hashes are missing."""
        if not self.has_hashes:
            return None
        return sum(count for count in self.first_hashes.values() if count > 1)

    def left_out(self) -> str:
        """Return why a file without requests has none, as the rest of a sentence."""
        reasons = []
        if self.failed:
            reasons.append(f"{self.failed} failed, with 0 tokens")
        if self.elsewhere:
            reasons.append(f"{self.elsewhere} arrive before 'part.begin' or from 'part.end' on")
        return f"; {' and '.join(reasons)}" if reasons else "; expected one in each line"

    def remarks(self) -> Iterator[str]:
        """Yield remarks for readers of results: requests that were left out, and warnings."""
        if self.failed:
            yield f"{counted(self.failed, 'request')} of 0 tokens left out, as failed"
        yield from self.warnings()

    def warnings(self) -> Iterator[str]:
        """Yield reasons to think that times were read in a wrong unit."""
        yield from filter(None, (self.fraction, self.date))
        rate = self.rate_per_s
        if rate is None or self.sorted < _FEW or _RATES[0] <= rate <= _RATES[1]:
            return
        yield (
            f"{format_number(rate)} requests a second on average, over "
            f"{format_number(self.span_s)} s; expected {_RATES[0]:g} to {_RATES[1]:g}. If the unit "
            "of times is another one, write 'columns.time'"
        )
