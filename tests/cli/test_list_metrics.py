"""`bt-bench list metrics` explains each metric, in the words of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from support.commands import run

from bt_bench.results import Quantity

PAGE = Path(__file__).parents[2] / "docs" / "measurement.md"


def test_each_quantity_has_the_sentence_of_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Quantities")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+_us)` \| (.*?) \|", table, re.M)
    assert dict(rows) == {each.value: each.traits.meaning for each in Quantity}
    shown = run("list", "metrics").out
    assert [text for _, text in rows if text not in shown] == []


def test_json_has_them_too() -> None:
    found = run("list", "metrics", "--json").json()
    assert found["schema_version"] == 1
    assert set(found["measured_us"]) == {each.value for each in Quantity}
    assert {"launches", "registers", "spills"} <= set(found["counted"])
    assert "/busy/cold" in found["conditions"]


def test_what_else_can_be_listed_is_said() -> None:
    outcome = run("list", "metric")
    assert outcome.code == 2
    assert "metrics" in outcome.err.partition("Error")[2]
