"""The texts of a report, whatever its format."""

from __future__ import annotations

import pytest

from bt_bench.base.document import Cell, Heading, Table, inert, numbered_notes


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("::error::x", ": :error::x"),
        ("a\n \t::error::x", "a\n \t: :error::x"),
        ("a ::error::x", "a ::error::x"),
        ("a ##[error]x", "a ## [error]x"),
        ("###[error]x", "### [error]x"),
    ],
)
def test_inert(text, safe):
    assert inert(text) == safe


def test_a_heading_is_a_row_where_a_format_has_no_lines_across_a_table():
    rows = (Heading("of\none"), (Cell("a"), Cell("1", "why")), (Cell("b"), Cell("2", "why")))
    assert numbered_notes(Table(("x", "y"), rows, num_text_columns=1)) == (
        [["of one", ""], ["a", "1¹"], ["b", "2¹"]],
        ["¹ why"],
    )
