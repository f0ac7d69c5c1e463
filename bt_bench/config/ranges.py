"""Ranges among the values of an axis: `1..8`, `8..64 by 8`, `1..1024 by *2`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bt_bench.base.errors import shown
from bt_bench.config.problems import Problems
from bt_bench.config.yaml import Located

MAX_VALUES = 100_000
"""The most values of a range: no config may have more cases."""

EXAMPLES = "1..8, 8..64 by 8 or 1..1024 by *2"

_LONGEST = 100  # characters of what could be a range
_NUMBER = r"[-+]?\d{1,18}"
_RANGE = re.compile(
    rf"(?P<first>{_NUMBER})\s*\.\.\s*(?P<last>{_NUMBER})(?:\s+by\s+(?P<times>\*\s*)?(?P<by>{_NUMBER}))?"
)
# Two or more dots with a number on at least one side, alone or before a step of any form.
_MEANT_AS_ONE = re.compile(
    r"(?=.*\d)(?:[-+]?\d[\d_.]*?)?\s*(?:\.{2,}|…)\s*(?:[-+]?\d[\d_.]*)?(?:(?:\s+|[*:,]).*)?",
    re.DOTALL,
)
_OTHER_FORM = re.compile(r"\d+\s*(?:-|–|:|to)\s*\d+(?:\s+by\b.*)?")


def with_ranges(key: str, values: Sequence[Located], problems: Problems) -> list[Located]:
    """Return the values of an axis, with each range replaced by its numbers.

    A range that is wrong is reported and left out.

    Args:
        key: the axis, for messages.
        values: the values as written.
        problems: collects errors.
    """
    return [value for written in values for value in _values(key, written, problems)]


def advice_on(text: str) -> str:
    """Return advice on a text in place of a number, if it is meant as a range; else nothing."""
    if _is_meant_as_one(text) or (len(text) < _LONGEST and _OTHER_FORM.fullmatch(text.strip())):
        return f"; in an axis ('product', 'zip' or --set) a range is written as {EXAMPLES}"
    return ""


def _values(key: str, written: Located, problems: Problems) -> Iterator[Located]:
    text = written.value
    if not isinstance(text, str) or not _is_meant_as_one(text):
        yield written
        return
    numbers = _numbers(text.strip())
    if isinstance(numbers, str):
        problems.add(written.place, f"axis {key!r} has the range {shown(text)}; {numbers}")
        return
    yield from (Located(number, written.place) for number in numbers)


def _is_meant_as_one(text: str) -> bool:
    return len(text) < _LONGEST and _MEANT_AS_ONE.fullmatch(text.strip()) is not None


def _numbers(text: str) -> Sequence[int] | str:
    """Return the numbers of a range, or a message if it is wrong."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return f"expected whole numbers, as in {EXAMPLES}"
    first, last = int(found["first"]), int(found["last"])
    by = int(found["by"] or 1)
    if last < first:
        return f"it is empty; expected the smaller number first, as in {last}..{first}"
    if not found["times"]:
        if by < 1:
            return "its numbers do not rise; expected to add 1 or more"
        count = (last - first) // by + 1
        return range(first, last + 1, by) if count <= MAX_VALUES else _too_many(count)
    if by < 2 or first < 1:
        return "its numbers do not rise; expected a first number of 1 or more, times 2 or more"
    numbers = [first]
    while numbers[-1] * by <= last:
        numbers.append(numbers[-1] * by)
    return numbers


def _too_many(count: int) -> str:
    return f"it has {count:,} values; expected at most {MAX_VALUES:,}; take larger steps"
