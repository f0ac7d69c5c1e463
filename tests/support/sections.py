"""Sections of documents, as tests look at them."""

from __future__ import annotations

from bt_bench.base.document import Section, Table


def table_of(section: Section) -> Table:
    """The only table of a section."""
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    return table


def texts_of(section: Section) -> list[list[str]]:
    """The texts of its cells, row by row."""
    return [[cell.text for cell in row] for row in table_of(section).rows]
