"""What `bt-bench profile` prints and writes."""

from __future__ import annotations

from bt_bench.report.profile.counters import (
    counter_changes_document,
    counter_changes_json,
    counters_document,
    counters_json,
)
from bt_bench.report.profile.kernels import (
    changes_document,
    changes_json,
    kernels_document,
    kernels_json,
)

__all__ = [
    "changes_document",
    "changes_json",
    "counter_changes_document",
    "counter_changes_json",
    "counters_document",
    "counters_json",
    "kernels_document",
    "kernels_json",
]
