"""NVTX ranges in the domain `bt_bench`, nested: a phase contains variants, a variant an operation.

The category of a range is one of these three. Ranges of variants and operations carry the place
of the step in its window, from 0, as their payload. All ranges are built once, and pushed and
popped outside the timed code. Names have no slash, which profilers read as nesting:
`fused.step.small_batch_1grp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import nvtx

DOMAIN = "bt_bench"


class Category(StrEnum):
    """The span of a range."""

    PHASE = "phase"
    """A part of an operation's measurement: `warm-up` or `rounds`."""
    VARIANT = "variant"
    """One whole sample of a variant, including the work before the timed part."""
    OPERATION = "operation"
    """The timed part of a sample."""


class _Range:
    """A range that is built once and used repeatedly.

    Args:
        category: its span.
        parts: the parts of its name.
        domain: a domain of `nvtx`; `None`: bt-bench's own.
    """

    def __init__(self, category: Category, *parts: str, domain: Any = None) -> None:
        self._domain = nvtx.get_domain(DOMAIN) if domain is None else domain
        self._is_open = False
        # `None` where no tool is attached.
        self._attributes = self._domain.get_event_attributes(
            message=range_name(*parts), category=self._domain.get_category_id(category.value)
        )

    def at(self, step: int) -> None:
        """Set the payload of later pushes: the place of a step in its window."""
        if self._attributes is not None:
            self._attributes.payload = step

    def push(self) -> None:
        """Open the range on this thread."""
        self._is_open = True
        self._domain.push_range(self._attributes)

    def pop(self) -> None:
        """Close the range, which must be the one opened last."""
        self._domain.pop_range()
        self._is_open = False

    def close(self) -> None:
        """Close the range if it is open."""
        if self._is_open:
            self.pop()


class Range(_Range):
    """The range of an operation, which spans the timed part.

    Args:
        variant: its name.
        operation: the operation that is called.
        case: the case's name.
        domain: a domain of `nvtx`; `None`: bt-bench's own.
    """

    def __init__(self, variant: str, operation: str, case: str, domain: Any = None) -> None:
        super().__init__(Category.OPERATION, variant, operation, case, domain=domain)


class SampleRanges:
    """The ranges of one variant's samples.

    Args:
        variant: its name.
        operation: the operation that is called.
        case: the case's name.
        domain: a domain of `nvtx`; `None`: bt-bench's own.
    """

    def __init__(self, variant: str, operation: str, case: str, domain: Any = None) -> None:
        self._variant = _Range(Category.VARIANT, variant, domain=domain)
        self._operation = Range(variant, operation, case, domain)

    def begin(self, step: int) -> Range:
        """Open the variant's range, and return the operation's range, still closed.

        Args:
            step: the place of the step in its window, from 0.
        """
        self._variant.at(step)
        self._operation.at(step)
        self._variant.push()
        return self._operation

    def end(self) -> None:
        """Close all open ranges, even after the timed part has raised."""
        self._operation.close()
        self._variant.close()


@contextmanager
def phase(name: str, operation: str, case: str, domain: Any = None) -> Iterator[None]:
    """Open the range of a phase for the length of a `with`: `step.small_batch_1grp.rounds`."""
    spanning = _Range(Category.PHASE, operation, case, name, domain=domain)
    spanning.push()
    try:
        yield
    finally:
        spanning.pop()


def range_name(*parts: str) -> str:
    """Return the name of a range: its parts joined by dots, with `_` for each slash."""
    return ".".join(parts).replace("/", "_")
