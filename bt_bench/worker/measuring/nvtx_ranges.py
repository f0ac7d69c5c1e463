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


class Range:
    """A range that is built once and used repeatedly.

    Args:
        parts: the parts of its name; for an operation the variant, the operation and the case.
        category: its span, by default the timed part.
    """

    def __init__(self, *parts: str, category: Category = Category.OPERATION) -> None:
        self._domain = nvtx.get_domain(DOMAIN)
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


class SampleRanges:
    """The ranges of one variant's samples.

    Args:
        variant: its name.
        operation: the operation that is called.
        case: the case's name.
    """

    def __init__(self, variant: str, operation: str, case: str) -> None:
        self._variant = Range(variant, category=Category.VARIANT)
        self._operation = Range(variant, operation, case)

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
def phase(name: str, operation: str, case: str) -> Iterator[None]:
    """Open the range of a phase for the length of a `with`: `step.small_batch_1grp.rounds`."""
    spanning = Range(operation, case, name, category=Category.PHASE)
    spanning.push()
    try:
        yield
    finally:
        spanning.pop()


def range_name(*parts: str) -> str:
    """Return the name of a range: its parts joined by dots, with `_` for each slash."""
    return ".".join(parts).replace("/", "_")
