"""The description of a pull request to vLLM, drafted from measurements."""

from __future__ import annotations

from bt_bench.report.pull_request.draft_json import render_draft_json
from bt_bench.report.pull_request.draft_markdown import render_draft

__all__ = ["render_draft", "render_draft_json"]
