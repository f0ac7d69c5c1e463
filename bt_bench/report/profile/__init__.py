"""What `bt-bench profile` prints and writes."""

from __future__ import annotations

from bt_bench.report.profile.kernels import (
    changes_document,
    changes_json,
    kernels_document,
    kernels_json,
)

__all__ = ["changes_document", "changes_json", "kernels_document", "kernels_json"]
