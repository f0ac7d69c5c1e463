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
from support.timelines import shown

from bt_bench.base.document import Bullets, Cell, Document, Heading, Section, Table
from bt_bench.report.console import PLAIN_WIDTH, render_plain
from bt_bench.report.folding import folded
from bt_bench.report.run.brief import brief_document
from bt_bench.report.run.document import run_document
from bt_bench.report.run.rendering import print_run
from bt_bench.results import VariantResult, context_of

GOLDEN = Path(__file__).parent / "golden"
RUNS = ["gpu_run", "cpu_run", "failed_run", "partial_run", "trace_run", "hostile_run"]


def _print_piped(results: list[VariantResult], *, whole: bool = False) -> str:
    stream = StringIO()
    print_run(results, whole=whole, console=Console(file=stream, force_terminal=False))
    return stream.getvalue()


@pytest.mark.parametrize("name", RUNS)
def test_whole_text(name: str) -> None:
    run: Callable[[], list[VariantResult]] = getattr(scenarios, name)
    text = render_plain(brief_document(run()))
    assert_golden(text, GOLDEN / f"{name}.txt")


def test_tables_of_the_origins_names_fit_into_120_columns() -> None:
    longest = {"large_4grp": "medium_batch_1grp", "fused_apply": "fused_gather_slots"}
    for run in (scenarios.gpu_run, scenarios.cpu_run, scenarios.failed_run, scenarios.trace_run):
        text = "".join(result.model_dump_json() + "\n" for result in run())
        for short, name in longest.items():
            text = text.replace(f'"{short}"', f'"{name}"')
        results = [
            VariantResult.model_validate_json(line, context=context_of(None))
            for line in text.splitlines()
        ]
        lines = [line.rstrip() for line in _print_piped(results, whole=True).splitlines()]
        assert max(map(len, lines)) <= PLAIN_WIDTH


def test_a_column_without_any_text_has_no_width() -> None:
    table = Table(("", "Value"), ((Cell(""), Cell("1.000")),), num_text_columns=1)
    assert "1.000" in render_plain(Document("title", (table,), ()))
    empty = Table(("", "Value"), (), num_text_columns=1)
    assert "Value" in render_plain(Document("title", (empty,), ()))


def test_a_pipe_gets_wide_tables_whole() -> None:
    name = "x" * 3 * PLAIN_WIDTH
    table = Table(("Config", "Value"), ((Cell(name), Cell("1.000")),), num_text_columns=1)
    text = render_plain(Document("title", (), (Section("section", (table,)),)))
    assert re.search(rf"^{name} +1\.000$", text, re.MULTILINE)


def test_a_narrow_terminal_breaks_cells_and_loses_none() -> None:
    text = shown(run_document(scenarios.gpu_run()), 50)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 50
    assert "77.6" in text


def _on_terminal(width: int, *rows: tuple[str, ...] | Heading, **options: bool) -> list[str]:
    cells = [r if isinstance(r, Heading) else tuple(Cell(t, "why") for t in r) for r in rows]
    columns = max((row for row in rows if isinstance(row, tuple)), key=len)
    table = Table(tuple("ab"[: len(columns)]), tuple(cells), 1, **options)
    return shown(Document("title", (), (Section("section", (table,)),)), width).splitlines()[5:]


def test_names_for_which_it_is_too_narrow_have_lines_of_their_own() -> None:
    rows = (("one_long_name", "1 2 3 4"), ("one_long_name", "5"), ("other", "6"))
    assert _on_terminal(15, *rows, notes_at_rows=True)[1:9] == [
        "one_long_name",
        "  1 2 3 4",
        "      why",
        "        5",
        "      why",
        "other",
        "        6",
        "      why",
    ]


def test_names_that_are_too_wide_even_so_are_folded_at_their_joints() -> None:
    assert _on_terminal(10, ("one_long_name", "1"), notes_at_rows=True)[1:4] == [
        "one_long_",
        "name",
        "  1",
    ]
    assert _on_terminal(6, ("one-two/three_four", "1"), notes_at_rows=True)[1:5] == [
        "one-",
        "two/",
        "three_",
        "four",
    ]


def test_titles_are_folded_before_names_and_numbers_keep_their_sign() -> None:
    columns = ("Config", "a_name_of_a_variant")
    table = Table(columns, ((Cell("one_name"), Cell("-41.3 to +2.0")),), num_text_columns=1)
    assert shown(Document("title", (table,), ()), 23).splitlines()[1:] == [
        "Config     a_name_of_a_",
        "                variant",
        "───────────────────────",
        "one_name  -41.3 to +2.0",
    ]


def test_columns_are_closer_where_it_is_narrow() -> None:
    rows = ("abc", "123")
    assert _on_terminal(8, rows, notes_at_rows=True)[0] == "abc  123"
    assert _on_terminal(7, rows, notes_at_rows=True)[0] == "abc 123"


def test_characters_of_two_cells_are_counted_as_two() -> None:
    assert _on_terminal(11, ("日本語日", "1"), notes_at_rows=True)[0] == "日本語日  1"
    assert _on_terminal(6, ("日本語日", "1"), notes_at_rows=True)[1:4] == ["日本語", "日", "  1"]
    assert folded("日本 語日本", 6, first="- ", indent="  ") == ["- 日本", "  語日本"]


def test_a_heading_has_a_line_of_its_own_and_its_rows_are_indented() -> None:
    lines = _on_terminal(30, Heading("of a\nlong name"), ("x", "1"), notes_at_rows=True)
    assert lines == ["", "of a long name", "  x  1", "      why"]


def test_a_note_stands_at_its_row_or_has_a_number() -> None:
    assert _on_terminal(30, ("x", "–"), notes_at_rows=True) == ["x  why"]
    assert _on_terminal(30, ("–", "–"), notes_at_rows=True) == ["why"]
    assert _on_terminal(5, ("x", "–"), notes_at_rows=True) == ["x  –", "    why"]
    assert _on_terminal(30, ("x", "–")) == ["x¹  –¹", "¹ why"]


def test_an_item_is_folded_below_its_text() -> None:
    text = render_plain(Document("title", (Bullets((f"{'x' * 70} {'y' * 70}",)),), ()))
    assert text == f"title\n- {'x' * 70}\n  {'y' * 70}\n"


def test_no_line_is_a_command_of_githubs_runner() -> None:
    text = render_plain(Document("::error::x", (f"{'x' * 115} ::error::y ##[error]z",), ()))
    assert text.splitlines() == [": :error::x", "x" * 115, ": :error::y ## [error]z"]


def test_no_colour_and_no_escape_sequence_reach_a_pipe() -> None:
    assert "\x1b" not in _print_piped(scenarios.hostile_run())


def test_names_are_no_markup_of_rich() -> None:
    assert "[red]" in _print_piped(scenarios.hostile_run())
