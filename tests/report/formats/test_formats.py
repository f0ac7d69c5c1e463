"""Every format: its whole text, and that nothing in a name gets out of its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support import judgements
from support.goldens import assert_golden
from support.judgements import judged
from support.runner import commands_of

from bt_bench.analysis.deciding import exit_code
from bt_bench.analysis.verdicts import Cause, Judged, Verdict
from bt_bench.base.errors import ExitCode
from bt_bench.report.console import render_plain
from bt_bench.report.formats import FORMATS
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.explanation import explanation_document
from bt_bench.report.formats.github_format import step_summary
from bt_bench.report.formats.table_format import render_table

GOLDEN = Path(__file__).parent / "golden"
SUFFIXES = {
    "table": "txt",
    "md": "md",
    "json": "json",
    "csv": "csv",
    "junit": "xml",
    "html-fragment": "html",
    "github": "github.txt",
}
COMPARISONS = {
    "rich": judgements.rich,
    "worst_first": lambda: worst_first(judgements.one_side()),
    "hostile": judgements.hostile,
    "empty": judgements.judged,
}
TEXTS: dict[str, Callable[[Judged], str]] = FORMATS | {
    "summary": step_summary,
    "explanation": lambda judged: render_plain(
        explanation_document(judged, judged.judgements[0].key)
    ),
}


def test_the_rich_comparison_has_every_verdict_and_cause():
    found = judgements.rich().judgements
    assert {each.verdict for each in found} == set(Verdict)
    assert {each.cause for each in found} == set(Cause)
    assert exit_code(judgements.rich()) is ExitCode.REGRESSION


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["rich", "worst_first", "hostile"])
def test_whole_text(name, kind):
    text = FORMATS[kind](COMPARISONS[name]())
    assert_golden(text.replace("\r\n", "\n"), GOLDEN / f"{name}.{SUFFIXES[kind]}")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_text_is_utf8_and_ends_with_one_line_break(name, kind):
    text = FORMATS[kind](COMPARISONS[name]())
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert text.encode().decode() == text


@pytest.mark.parametrize("kind", TEXTS)
def test_no_control_character_gets_out(kind):
    text = TEXTS[kind](judgements.hostile())
    assert {c for c in text if not c.isprintable()} <= {"\n", "\r" if kind == "csv" else "\n"}


@pytest.mark.parametrize("kind", ["table", "md", "summary", "explanation", "github"])
def test_a_name_is_no_command_of_githubs_runner(kind):
    text = TEXTS[kind](judgements.hostile())
    commands = commands_of(text)
    if kind != "github":
        assert commands == []
        return
    assert len(commands) == 10
    assert {command.name for command in commands} <= {"error", "warning"}
    assert all(set(command.properties) == {"title"} for command in commands)
    wanted = f"step/{judgements.HOSTILE}".split("\n")[0]
    assert wanted in commands[0].properties["title"]
    assert wanted in commands[0].data


def test_the_reading_of_commands_finds_some():
    """Else the test above could not fail."""
    found = commands_of(f"x\n  {judgements.HOSTILE}\n::error title=a%2Cb,line=3::c%0Ad\n::nope::x")
    assert [(each.name, each.data) for each in found] == [
        ("error", "pwned"),
        ("error", "pwned\t=1+1 \x1b[31m\x00\u2028\ud800"),
        ("error", "c\nd"),
    ]
    assert found[2].properties == {"title": "a,b", "line": "3"}


@pytest.mark.parametrize("kind", ["md", "html-fragment"])
def test_the_worst_regressions_are_on_top_whatever_the_order(kind):
    text = FORMATS[kind](judgements.rich())
    listed = text.split("Worst regressions")[1].split("Verdict")[0]
    metrics = re.findall(r"(?:step|gather_slots)/\w+ (\w+),", " ".join(listed.split()))
    assert metrics == ["spills", "launches", "gpu_us", "host_us"]
    in_order = FORMATS[kind](worst_first(judgements.rich()))
    assert "Worst regressions" not in in_order
    assert in_order.index("spills") < in_order.index("MISSING ")


@pytest.mark.parametrize("kind", ["table", "md", "html-fragment", "junit", "json", "summary"])
def test_facts_and_warnings_are_in_what_people_read(kind):
    found = judgements.judged(judgements.judgement(), facts=("F.",), warnings=("W",))
    text = render_table(found, whole=True) if kind == "table" else TEXTS[kind](found)
    assert re.search(r"\bF\.", text)
    assert "Warning: W." in text or (kind == "json" and '"warnings": ["W"]' in text)


@pytest.mark.parametrize("kind", ["table", "md", "html-fragment", "github", "summary"])
def test_counts_say_that_nothing_was_judged(kind):
    assert "none" in TEXTS[kind](judgements.judged())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("whole", [judgements.one_side(), judged()], ids=["some", "none"])
def test_every_format_shows_what_casts_doubt_on_the_whole(name, whole):
    warnings = ("old is a partial result", "fused.cases.jsonl was ignored")
    text = FORMATS[name](replace(whole, warnings=warnings))
    if name == "csv" and not whole.judgements:
        return  # a table of no rows has no place for it; nothing compared is an error anyway
    for warning in warnings:
        assert warning in text
        assert warning not in FORMATS[name](whole)


def test_an_explanation_shows_it_as_well():
    whole = replace(judgements.one_side(), warnings=("old is a partial result",))
    text = render_plain(explanation_document(whole, whole.judgements[0].case))
    assert "Warning: old is a partial result." in text
