"""The reports and files of `bt-bench profile`."""

from __future__ import annotations

from bt_bench.report.profile.counters import (
    counter_changes_document,
    counters_document,
    counters_json,
)
from bt_bench.report.profile.flame import flame_graph
from bt_bench.report.profile.kernels import changes_document, kernels_document, kernels_json
from bt_bench.report.profile.lanes import lanes_svg
from bt_bench.report.profile.timeline import (
    explained_steps,
    timeline_document,
    timeline_json,
)
from bt_bench.report.profile.timeline_changes import (
    timeline_changes_document,
    timeline_changes_json,
)
from bt_bench.report.profile.trace import trace_json
