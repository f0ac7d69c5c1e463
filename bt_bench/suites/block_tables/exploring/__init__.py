"""Scenarios of block tables: legal sequences of calls, on tables of any layout."""

from __future__ import annotations

from bt_bench.suites.block_tables.exploring.explorer import TableExplorer
