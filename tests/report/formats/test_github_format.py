"""Annotations and the summary of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import judgements
from support.judgements import judged, judgement
from support.runner import commands_of

from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.report.formats.github_format import (
    MAX_ANNOTATIONS,
    SUMMARY_BYTES,
    command,
    render_github,
    step_summary,
)


def many(count, **fields):
    return judged(*(judgement(case=f"case{index}", **fields) for index in range(count)))


@pytest.mark.parametrize(
    ("verdict", "advisory", "level"),
    [
        (Verdict.SLOWER, False, "error"),
        (Verdict.MISSING, False, "error"),
        (Verdict.INVALID, False, "error"),
        (Verdict.INCONCLUSIVE, False, "warning"),
        (Verdict.SLOWER, True, "warning"),
        (Verdict.FASTER, False, None),
        (Verdict.SAME, False, None),
    ],
)
def test_levels(verdict, advisory, level):
    each = judgement(verdict=verdict, cause=Cause.EXACT, advisory=advisory, detail="why")
    found = commands_of(render_github(judged(each)))
    assert [command.name for command in found] == ([] if level is None else [level])
    if found:
        assert found[0].data.endswith(": why")


def test_the_worst_come_first_and_the_rest_is_counted():
    found = commands_of(render_github(judgements.rich()))
    assert len(found) == MAX_ANNOTATIONS
    assert [each.properties["title"].split()[0] for each in found[:4]] == [
        *("MORE", "MORE", "SLOWER", "SLOWER")
    ]
    assert "+30.0 % (+28.2 to +31.8 %)" in found[2].data
    # 16 were to be noted, of which eight are; the last is for what casts doubt on all of it.
    assert (found[-2].name, found[-2].data[:6]) == ("error", "8 more")
    assert (found[-1].name, found[-1].data) == ("warning", "; ".join(judgements.rich().warnings))


def test_what_does_not_decide_is_no_error():
    (found,) = commands_of(render_github(many(1, verdict=Verdict.SLOWER, decides=False)))
    assert found.name == "warning"


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (9, 9), (10, 10), (11, 10), (500, 10)])
def test_at_most_ten(count, lines):
    text = render_github(many(count, verdict=Verdict.INCONCLUSIVE, cause=Cause.WIDE_INTERVAL))
    found = commands_of(text)
    assert len(found) == lines
    assert ("more" in text) == (count > 10)
    assert {each.name for each in found} <= {"warning"}


def test_the_last_line_counts_verdicts():
    assert render_github(many(2)).splitlines() == ["bt-bench: Comparison: 2 SAME"]


def test_a_command_is_read_back_as_it_was():
    text = "100%25, a: b;\r\n::error::x]"
    (found,) = commands_of(command("error", text, text))
    assert found.properties == {"title": text}
    assert found.data == text


def test_the_summary_is_whole_and_has_the_worst_first():
    text = step_summary(judgements.rich())
    rows = [line for line in text.splitlines() if line.startswith(("| MORE", "| SAME"))]
    assert rows[0].startswith("| MORE")
    assert "spills" in rows[0]
    assert rows[-1].startswith("| SAME")
    assert "are listed" not in text


@pytest.mark.parametrize("limit", [400, 5_000, 50_000])
def test_a_summary_that_is_too_long_is_cut_between_rows_and_says_so(limit):
    slow = judgement(case="µ" * 50, verdict=Verdict.SLOWER, cause=Cause.BEYOND_MARGIN, ratio=1.5)
    comparison = judged(*many(2_000).judgements, slow)
    text = step_summary(comparison, limit_bytes=limit)
    assert len(text.encode()) <= limit
    assert "Verdicts: 1 SLOWER, 2000 SAME." in text
    assert " of 2001 are listed" in text
    assert text.endswith("\n")
    if limit > 400:
        assert len(text.encode()) > 0.7 * limit
        assert "µ" * 50 in text


def test_a_summary_fits_whatever_its_facts_are():
    comparison = replace(judgements.rich(), facts=("µ" * 700_000,))
    text = step_summary(comparison)
    assert SUMMARY_BYTES - 4 <= len(text.encode()) <= SUMMARY_BYTES
