"""That a gate could have missed what it was to find comes first in every format."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from support import judgements

from bt_bench.analysis.verdicts import Power
from bt_bench.report.console import render_plain
from bt_bench.report.formats import FORMATS, explanation_document, step_summary

SENTENCE = "This gate could not have found a slowdown."
SHORT = Power(0.05, 0.15, 6, 2, "gpu_us of fused", math.inf, 0.03, "noise", 0.5, SENTENCE)


def weak() -> judgements.Judged:
    return replace(judgements.rich(), power=SHORT)


@pytest.mark.parametrize("name", ["table", "md"])
def test_it_follows_the_title(name: str) -> None:
    lines = [line for line in FORMATS[name](weak()).splitlines() if line]
    assert lines[1] == SENTENCE
    verdicts = next(number for number, line in enumerate(lines) if line.startswith("Verdicts: "))
    assert verdicts == 2 or all(line.startswith(("- ", "  ")) for line in lines[2:verdicts])


def test_it_is_in_html_junit_csv_github_and_explanations() -> None:
    assert FORMATS["html-fragment"](weak()).splitlines()[2] == f"<p>{SENTENCE}</p>"
    root = ElementTree.fromstring(FORMATS["junit"](weak()))
    summary = next(root.iter("testsuite")).find("system-out")
    assert summary is not None
    assert (summary.text or "").startswith(f"{SENTENCE}\nVerdicts: ")
    assert f"{SENTENCE}; the working tree" in FORMATS["csv"](weak()).splitlines()[1]
    annotations = FORMATS["github"](weak()).splitlines()
    assert annotations[0] == f"::warning title=bt-bench::{SENTENCE}"
    assert sum(line.startswith("::") for line in annotations) <= 10
    assert step_summary(weak()).splitlines()[2] == SENTENCE
    explained = render_plain(explanation_document(weak(), judgements.LONGEST_CASE))
    assert explained.splitlines()[1] == f"- {SENTENCE}"


def test_json_has_the_numbers() -> None:
    found = json.loads(FORMATS["json"](weak()))["power"]
    assert (found["detect"], found["short"], found["falls_short"]) == (0.05, 2, True)
    assert found["worst_share"] is None  # infinite
    assert json.loads(FORMATS["json"](judgements.rich()))["power"] is None


@pytest.mark.parametrize("name", FORMATS)
def test_what_suffices_is_no_first_line(name: str) -> None:
    enough = replace(weak(), power=replace(SHORT, short=0))
    if name != "json":
        assert SENTENCE not in FORMATS[name](enough)
