"""NVTX ranges in the domain `bt_bench`, one per variant, operation and case.

A range is pushed right before the timed part and popped right after it, outside of what is timed.
Names have no slash, which profilers read as nesting: `fused.step.small_batch_1grp`.
"""

from __future__ import annotations

from typing import Any

import nvtx

DOMAIN = "bt_bench"


class Range:
    """One named range, built once; pushing it costs some 50 ns and nothing without a profiler."""

    def __init__(self, variant: str, operation: str, case: str) -> None:
        self._domain: Any = nvtx.get_domain(DOMAIN)
        name = ".".join((variant, operation, case)).replace("/", "_")
        self._attributes = self._domain.get_event_attributes(message=name)

    def push(self) -> None:
        """Opens the range on this thread."""
        self._domain.push_range(self._attributes)

    def pop(self) -> None:
        """Closes the range opened last."""
        self._domain.pop_range()
