"""Times of arrival in a trace: dates, or numbers in one of a few units."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

MAX_SECONDS = 10**11  # three thousand years; microseconds of it are an int64

# How many are a second, and their name.
UNITS = {
    "s": (1, "seconds"),
    "ms": (10**3, "milliseconds"),
    "us": (10**6, "microseconds"),
    "ns": (10**9, "nanoseconds"),
}
_EPOCH = datetime(1970, 1, 1)  # in UTC, as all that is compared with it


def date_us(text: str) -> int:
    """Return the microseconds from 1970 to an ISO date; one without a zone is in UTC.

    Raises:
        ValueError: if the text is none, or digits alone, of which Python would take 20231116 for a
            day.
        OverflowError: if the date has no microseconds in UTC.
    """
    text = text.strip()
    if text.isdigit():
        raise ValueError
    time = datetime.fromisoformat(text)
    if time.tzinfo:
        time = time.astimezone(UTC).replace(tzinfo=None)
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds


def unit_since_1970(number: Decimal) -> str | None:
    """Return the unit in which a number is a date from 2001 to 2096; `None`: in no unit."""
    return next((u for u, (n, _) in UNITS.items() if 10**9 * n <= number < 4 * 10**9 * n), None)


def doubt_of(first: Decimal, unit: str) -> str:
    """Return a warning if the first arrival is a date of our time in another unit; else nothing.

    Args:
        first: the first time of arrival in a trace.
        unit: the unit that it is read in.
    """
    since = unit_since_1970(first)
    if since is None or since == unit:
        return ""
    per_second, name = UNITS[since]
    date = datetime.fromtimestamp(float(first / per_second), UTC)
    return (
        f"the first arrival is {first}, which in {name} since 1970 is {date:%Y-%m-%d}, and is read "
        f"as {UNITS[unit][1]}; if it is that date, write columns: {{time: {since}}}"
    )
