"""Pages that people look at: self-contained HTML, readable without JavaScript."""

from __future__ import annotations

from bt_bench.report.page.compared_page import compared_page, judged_page
from bt_bench.report.page.gate_page import gate_page
from bt_bench.report.page.profile_page import profile_page
from bt_bench.report.page.rendering import render_page
from bt_bench.report.page.run_page import run_page
from bt_bench.report.page.static_page import static_page
