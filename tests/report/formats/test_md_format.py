"""Markdown, as a real parser reads it."""

from __future__ import annotations

from collections import Counter

from markdown_it import MarkdownIt
from support import judgements

from bt_bench.report.formats.md_format import render_md


def tokens_of(text):
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def test_hostile_names_stay_text():
    hostile = judgements.hostile()
    tokens = tokens_of(render_md(hostile))
    inline = [child for token in tokens for child in token.children or []]
    assert {child.type for child in inline} <= {"text", "softbreak", "text_special"}
    assert not {"html_block", "code_block", "fence"} & {token.type for token in tokens}
    rows = sum(token.type == "tr_open" for token in tokens)
    assert rows == 2 + len(hostile.overall) + len(hostile.judgements)
    cells = sum(token.type == "td_open" for token in tokens)
    assert cells == 5 * len(hostile.overall) + 10 * len(hostile.judgements)


def test_a_word_at_the_start_of_a_line_is_no_command():
    text = render_md(judgements.judged(title="x", facts=("y " * 49 + "::error::z",)))
    assert "\n  \\::error::z" in text
    plain = [child.content for token in tokens_of(text) for child in token.children or []]
    assert "::error::z" in "".join(plain)


def test_labels_head_the_columns_of_two_files():
    text = render_md(judgements.one_side())
    (heading,) = [line for line in text.splitlines() if line.startswith("| Verdict ")]
    cells = [cell.strip() for cell in heading.strip("|").split("|")]
    assert cells[3:6] == ["Metric", "baseline", "fused"]


def test_details_are_of_what_the_figures_leave_open():
    details = render_md(judgements.rich()).split("## Details")[1]
    verdicts = [line.split()[1] for line in details.splitlines() if line.startswith("- ")]
    assert Counter(verdicts) == {
        **{"SLOWER": 2, "MORE": 2, "MISSING": 2, "INVALID": 7},
        **{"FEWER": 1, "INCONCLUSIVE": 1},  # those without an interval
    }


def test_listing_only_some_says_so_and_counts_all():
    text = render_md(judgements.rich(), max_listed=3)
    assert "Verdicts: 2 SLOWER, 2 MORE, 2 MISSING, 7 INVALID" in text
    assert "3 of 23 are listed." in text
    assert (
        sum(line.startswith(("| SLOWER", "| FASTER", "| SAME")) for line in text.splitlines()) == 3
    )
