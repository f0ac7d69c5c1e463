"""Traces for the tests of workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

TraceWriter = Callable[[Iterable[tuple[float, int, int]]], str]


@pytest.fixture
def write_trace(tmp_path: Path) -> TraceWriter:
    """Writes requests (arrival in seconds below 60, context, generated tokens) as a CSV."""

    def write(requests: Iterable[tuple[float, int, int]]) -> str:
        lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
        lines += [
            f"2023-11-16 18:15:{arrival_s:010.7f},{context},{generated}"
            for arrival_s, context, generated in requests
        ]
        path = tmp_path / "trace.csv"
        path.write_text("\r\n".join(lines), encoding="utf-8")
        return str(path)

    return write
