"""`studies/screens.py` draws what the commands print, the same wherever it is drawn."""

from __future__ import annotations

import html
import importlib
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from support.commands import run

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture
def screens(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    yield importlib.import_module("screens")
    del sys.modules["screens"]


def words_of(svg: str) -> list[str]:
    texts = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return " ".join(html.unescape(text).replace("\xa0", " ") for text in texts).split()


@pytest.mark.slow
@pytest.mark.sampled(2)  # each reads the run anew
@pytest.mark.parametrize("suffix", ["", "-120"])
@pytest.mark.parametrize("name", ["show-origin", "compare-origin"])
def test_the_committed_picture_is_what_is_drawn_today(screens, monkeypatch, name, suffix):
    monkeypatch.setenv("NO_COLOR", "1")
    (columns,) = [columns for columns, ends in screens.WIDTHS.items() if ends == suffix]
    committed = (PICTURES / f"{name}{suffix}.svg").read_text(encoding="utf-8")
    assert screens.origin_screen(name, columns) == committed


@pytest.mark.parametrize("name", ["show-origin", "compare-origin"])
def test_it_has_the_words_that_the_command_prints(screens, monkeypatch, tmp_path, name):
    shutil.copytree(ROOT / screens.ORIGIN, tmp_path / screens.ORIGIN)
    (tmp_path / screens.ORIGIN / "report.html").unlink(missing_ok=True)  # git ignores it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bt_bench.cli.next_steps.program", lambda: "bt-bench")
    printed = run(*screens.OF_ORIGIN[name]).out
    shown = words_of((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
    assert {word for word in printed.split() if "─" not in word} <= set(shown)


@pytest.mark.parametrize("suffix", ["", "-120"])
@pytest.mark.parametrize("name", ["show-origin", "compare-origin", "sweep-quick"])
def test_a_picture_is_well_formed_and_whole_and_names_no_font_of_the_network(name, suffix):
    text = (PICTURES / f"{name}{suffix}.svg").read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")
    assert "url(http" not in text
    # The ends of the longest lines.
    ends = {
        "show-origin": {"*.json.xz)", "--all", "report"},
        "compare-origin": {"md."},
        "sweep-quick": {"*.json)", "--all"},
    }[name]
    assert ends <= set(words_of(text))
