"""Markdown, as a real parser reads it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from markdown_it import MarkdownIt
from support import judgements

from bt_bench.analysis.verdicts import Verdict
from bt_bench.report.formats.md_format import MOST_CHARACTERS, render_md, render_safe


def tokens_of(text):
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def lines_of(token):
    return token.content.split("\n")[:-1]


def test_hostile_names_stay_text():
    hostile = judgements.hostile()
    tokens = tokens_of(render_md(hostile))
    inline = [child for token in tokens for child in token.children or []]
    assert {child.type for child in inline} <= {"text", "softbreak", "text_special"}
    assert not {"code_block", "fence"} & {token.type for token in tokens}
    html = {line for token in tokens if token.type == "html_block" for line in lines_of(token)}
    titles = ("Geometric mean over cases", "How it was compared")
    assert html == {"<details>", "</details>", *(f"<summary>{it}</summary>" for it in titles)}
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
    details = render_md(judgements.rich()).split("## Details")[1].split("<details>")[0]
    verdicts = [line.split()[1] for line in details.splitlines() if line.startswith("- ")]
    assert Counter(verdicts) == {
        **{"SLOWER": 2, "MORE": 2, "MISSING": 2, "INVALID": 7},
        **{"FEWER": 1, "INCONCLUSIVE": 1},  # those without an interval
    }


def test_listing_only_some_says_so_and_counts_all():
    text = render_safe(judgements.rich(), max_listed=3)
    assert "Verdicts: 2 SLOWER, 2 MORE, 2 MISSING, 7 INVALID" in text
    assert "3 of 23 are listed;" in text
    assert (
        sum(line.startswith(("| SLOWER", "| FASTER", "| SAME")) for line in text.splitlines()) == 3
    )


def test_what_github_would_refuse_is_cut_to_the_worst_that_decide():
    some = [
        judgements.judgement(case=f"case{at}", exploratory=at % 2 == 0, decides=at % 2 == 1)
        for at in range(1200)
    ]
    bad = judgements.judgement(case="bad", verdict=Verdict.SLOWER, exploratory=True, decides=False)
    text = render_md(judgements.judged(*some, bad))
    assert len(text) <= MOST_CHARACTERS
    (listed,) = re.findall(r"(\d+) of\s+1201\s+are\s+listed", text)
    assert 600 < int(listed) < 1200
    exploratory = text.split("Exploratory verdicts")[1]
    assert "step/bad" in exploratory
    assert exploratory.index("step/bad") < exploratory.index("step/case")
    short = render_md(judgements.judged(*some[:9]))
    assert "are listed" not in short


def test_the_method_and_what_does_not_decide_are_folded():
    rich = judgements.rich()
    other = judgements.judgement(exploratory=True, decides=False)
    text = render_md(replace(rich, judgements=(*rich.judgements, other)))
    folded = re.findall(r"<summary>(.*)</summary>", text)
    assert folded == ["Exploratory verdicts", "Geometric mean over cases", "How it was compared"]
    assert text.index("## Verdicts") < text.index("<details>")
