"""The terminal's tables: the same cells as in the Markdown, never cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support import scenarios
from support.goldens import assert_golden

from bt_bench.report.console import PLAIN_WIDTH, print_comparison, render_plain
from bt_bench.report.document import Cell, Document, Section, Table
from bt_bench.report.run.document import run_document
from bt_bench.results.result import VariantResult

GOLDEN = Path(__file__).parent / "golden"
RUNS = ["gpu_run", "cpu_run", "failed_run", "partial_run", "trace_run", "hostile_run"]


def _print_piped(results: list[VariantResult]) -> str:
    stream = StringIO()
    print_comparison(results, Console(file=stream, force_terminal=False))
    return stream.getvalue()


@pytest.mark.parametrize("name", RUNS)
def test_whole_text(name: str) -> None:
    run: Callable[[], list[VariantResult]] = getattr(scenarios, name)
    text = render_plain(run_document(run(), whole=False))
    assert_golden(text, GOLDEN / f"{name}.txt")


def test_tables_of_the_origins_names_fit_into_120_columns() -> None:
    longest = {"large_4grp": "medium_batch_1grp", "fused_apply": "fused_gather_slots"}
    for run in (scenarios.gpu_run, scenarios.cpu_run, scenarios.failed_run, scenarios.trace_run):
        text = "".join(result.model_dump_json() + "\n" for result in run())
        for short, name in longest.items():
            text = text.replace(f'"{short}"', f'"{name}"')
        results = [VariantResult.model_validate_json(line) for line in text.splitlines()]
        lines = [line.rstrip() for line in _print_piped(results).splitlines()]
        assert max(map(len, lines)) <= PLAIN_WIDTH


def test_the_terminal_has_the_budget_of_one_launch_path_and_no_advice() -> None:
    text = _print_piped(scenarios.gpu_run())
    assert "Where the time of a step goes" in text
    assert re.search(r"^small +fused +jit ", text, re.MULTILINE)
    assert not re.search(r"^small +fused +(compiled|direct|graph) ", text, re.MULTILINE)
    assert "How to read this" not in text


def test_a_pipe_gets_wide_tables_whole() -> None:
    name = "x" * 3 * PLAIN_WIDTH
    table = Table(("Config", "Value"), ((Cell(name), Cell("1.000")),), num_text_columns=1)
    text = render_plain(Document("title", (), (Section("section", (table,)),)))
    assert re.search(rf"^{name} +1\.000$", text, re.MULTILINE)


def test_a_narrow_terminal_breaks_cells_and_loses_none() -> None:
    stream = StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, width=50)
    print_comparison(scenarios.gpu_run(), console)
    text = stream.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 50
    assert "77.6" in text


def test_the_width_of_the_console_is_put_back() -> None:
    console = Console(file=StringIO(), force_terminal=False, width=71)
    print_comparison(scenarios.gpu_run(), console)
    assert console.width == 71


def test_no_colour_and_no_escape_sequence_reach_a_pipe() -> None:
    assert "\x1b" not in _print_piped(scenarios.hostile_run())


def test_names_are_no_markup_of_rich() -> None:
    assert "[red]" in _print_piped(scenarios.hostile_run())
