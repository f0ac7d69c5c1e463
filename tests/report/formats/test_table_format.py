"""What a terminal of 80 columns shows."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console
from support import judgements
from support.judgements import BASE, HEAD, judged, judgement

from bt_bench.analysis.verdicts import Cause, Overall, Verdict
from bt_bench.base import Table
from bt_bench.report.console import print_document
from bt_bench.report.formats.arrange import worst_first
from bt_bench.report.formats.judged_document import MOST_SENTENCES
from bt_bench.report.formats.table_format import MAX_LISTED, render_table, verdict_document
from bt_bench.suites.block_tables import operations as ops

WORDS = (*Verdict, "MORE", "FEWER")


def on_terminal(whole, color_system=None, **options):
    stream = StringIO()
    console = Console(file=stream, force_terminal=True, color_system=color_system, **options)
    print_document(verdict_document(whole, whole=True), console)
    return stream.getvalue()


@pytest.mark.parametrize("arrange", [lambda it: it, worst_first], ids=["as_is", "worst_first"])
def test_lines_fit_into_80_columns(arrange):
    lines = on_terminal(arrange(judgements.rich()), width=80).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert not [line for line in lines if line != line.rstrip()]


def test_no_cell_is_folded_at_80_columns():
    narrow = on_terminal(judgements.rich(), width=80)
    rows = [row.split()[:2] for row in narrow.splitlines() if row[2:].startswith(WORDS)]
    assert rows == [[each.word, each.metric] for each in judgements.rich().judgements]
    assert " +28.2 +31.8 " in narrow


def test_a_terminal_and_a_pipe_get_the_same_characters():
    """But for rules, and for the dashes that a note may stand in place of."""

    def characters(text):
        return sorted(re.sub(r"[─–\s]+", "", text))  # folded cells change their order

    for width in (80, 120, 200):
        shown = characters(on_terminal(judgements.rich(), width=width))
        assert shown == characters(render_table(judgements.rich(), whole=True))


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.SLOWER, "31"),
        (Verdict.FASTER, "32"),
        (Verdict.MISSING, "33"),
        (Verdict.INVALID, "33"),
        (Verdict.INCONCLUSIVE, "2"),
    ],
)
def test_verdicts_have_colours_on_a_terminal(verdict, code):
    whole = judged(judgement(verdict=verdict), judgement(metric="host_us"))
    text = on_terminal(whole, "standard", width=80)
    assert f"\x1b[{code}m{verdict}" in text
    assert "  SAME" in text
    assert f"\x1b[{code}m" not in on_terminal(judged(judgement()), "standard", width=80)


def test_no_color_leaves_no_colour():
    text = on_terminal(judgements.rich(), "standard", width=80, no_color=True)
    assert not {"\x1b[31m", "\x1b[32m", "\x1b[33m"} & set(re.findall(r"\x1b\[\d+m", text))


def test_columns_are_aligned_over_all_groups():
    lines = render_table(judgements.rich(), whole=True).splitlines()
    heading = next(line for line in lines if line.startswith("  Verdict "))
    rows = [line for line in lines if line[2:].startswith(WORDS)]
    assert len(rows) == len(judgements.rich().judgements)
    tested = [each.evidence is not None for each in judgements.rich().judgements]
    widths = {len(row) for row, was_tested in zip(rows, tested, strict=True) if was_tested}
    assert widths == {len(heading)}
    metric = heading.index("Metric")
    assert {row[metric - 1] for row in rows} == {" "}
    assert " " not in {row[metric] for row in rows}


def test_a_name_that_is_too_long_is_left_whole():
    name = "x" * 200
    assert f"\nstep/{name}\n" in render_table(judged(judgement(case=name)), whole=True)


def test_only_what_is_slower_says_why_beside_its_figures():
    text = render_table(judged(*judgements.timed()), whole=True)
    assert text.count("by more than the margin of") == 2
    assert text.count("margin of") == text.count("SLOWER ")


def test_why_stands_in_place_of_an_interval_where_there_is_room():
    why = {"verdict": Verdict.INVALID, "cause": Cause.FAILED}
    text = on_terminal(
        judged(judgement(detail="short", **why), judgement(detail="x " * 40, **why)), width=80
    )
    _, short, long, *below = text[text.index("\nstep/") :].strip().splitlines()
    assert short == "  INVALID  gpu_us  short"
    assert long == "  INVALID  gpu_us     –      –  –    –     –       –      –"
    assert " ".join(below).split() == ["x"] * 40


def test_what_was_not_tested_says_why():
    text = render_table(judgements.rich(), whole=True)
    assert "host code and binaries are equal" in text


def test_a_case_and_its_sides_head_their_metrics_once():
    text = render_table(
        judged(judgement(), judgement(metric="host_us"), judgement(case="b")), whole=True
    )
    assert text.count("step/medium_batch_4grp · fused@HEAD against fused@main") == 1
    assert text.count("step/b · ") == 1


def test_the_first_screen_lists_the_worst_and_counts_the_rest():
    open_ = {"verdict": Verdict.INCONCLUSIVE, "cause": Cause.WIDE_INTERVAL}
    some = [
        judgement(case=f"open{index}", detail=str(index), **open_) for index in range(MAX_LISTED)
    ]
    bad = {"verdict": Verdict.INVALID, "cause": Cause.FAILED, "detail": "it failed"}
    same = judgement(case="same")
    text = render_table(judged(*some, same, judgement(case="last", evidence=None, **bad)))
    assert f"Verdicts: 1 INVALID, {MAX_LISTED} INCONCLUSIVE, 1 SAME." in text
    assert "Worst first: " in text
    assert "Not listed: 1 INCONCLUSIVE, 1 SAME. All verdicts" in text
    assert text.index("step/last ") < text.index("step/open0 ")
    assert f"step/open{MAX_LISTED - 1} " not in text
    assert "step/same " not in text
    few = render_table(judged(*some))
    assert "Not listed" not in few
    assert "By case: " in few
    assert "step/same " in render_table(judged(*some, same), whole=True)


def test_neither_counts_nor_small_changes_hide_a_large_slowdown():
    counts = {"metric": "registers", "cause": Cause.EXACT, "evidence": None, "ratio": 1.03}
    some = [
        judgement(case=f"c{at}", verdict=Verdict.SLOWER, detail=f"{at} more", **counts)
        for at in range(MAX_LISTED)
    ]
    small = {"verdict": Verdict.SLOWER, "cause": Cause.BEYOND_MARGIN, "ratio": 1.05}
    some += [judgement(case=f"s{at}", **small) for at in range(MAX_LISTED)]
    text = render_table(judged(*some, judgement(case="large", **(small | {"ratio": 9.0}))))
    rows = [line.split()[1] for line in text.splitlines() if line.startswith(("SLOWER ", "MORE "))]
    assert rows[:2] == ["step/large", "step/s0"]
    assert len(rows) == MAX_LISTED


def test_the_first_screen_says_what_is_advisory_and_that_more_was_compared():
    found = [judgement(advisory=True), judgement(metric="step_us", exploratory=True, decides=False)]
    text = render_table(judged(*found))
    assert "Advisory: the sides are of different runs" in text
    assert "Not listed: 1 SAME and exploratory metrics." in text
    plain = render_table(judged(judgement()))
    assert "dvisory" not in plain
    assert "exploratory" not in plain


@pytest.mark.parametrize(
    ("ratio", "verdict", "shown", "small", "count"),
    [
        (0.5, Verdict.FASTER, "2.00 × (", "1.05 × (", "+50.0 %"),
        (1.25, Verdict.SLOWER, "0.80 × (", "1.05 × (", "+50.0 %"),
        (0.93, Verdict.FASTER, "-7.0 (", "-5.0 (", "+50.0 "),
    ],
)
def test_all_times_and_strips_have_one_unit_by_the_largest_change(
    ratio, verdict, shown, small, count
):
    (timed,) = [each for each in judgements.timed() if each.verdict is Verdict.FASTER][:1]
    more = next(each for each in judgements.untimed() if each.ratio == 1.5)
    moved = [
        replace(timed, ratio=at, low=at - 0.01, high=at + 0.01, verdict=found)
        for at, found in ((ratio, verdict), (0.95, Verdict.FASTER))
    ]
    document = verdict_document(judged(*moved, more))
    text = " ".join(render_table(judged(*moved, more)).split())
    assert all(each in text for each in (shown, small, count))
    blocks = (block for section in document.sections for block in section.blocks)
    (axis,) = [block.axis for block in blocks if isinstance(block, Table)]
    in_percent = ratio == 0.93
    assert ("changes in percent" in text, "speed-ups" in text) == (in_percent, not in_percent)
    assert {tick.text[-1] for tick in axis.ticks} == {"%" if in_percent else "×"}
    assert [tick.at for tick in axis.ticks] == sorted(tick.at for tick in axis.ticks)
    assert f"right of {'0 %' if in_percent else '1 ×'} is faster" in axis.legend


def test_the_first_screen_has_one_line_for_what_is_missing_for_one_reason():
    missing = {"verdict": Verdict.MISSING, "cause": Cause.NO_CASE, "evidence": None}
    lost = [judgement(case=f"c{at}", detail="no result of x", **missing) for at in range(30)]
    other = judgement(case="d", detail="another reason", **missing)
    text = render_table(judged(*lost, other))
    assert "step/c0 and 29 more" in text
    assert text.count("no result of x") == 1
    assert text.count("another reason") == 1
    assert "Not listed" not in text


def test_the_first_screen_names_sides_only_where_there_are_several():
    slower = {"verdict": Verdict.SLOWER, "cause": Cause.BEYOND_MARGIN}
    assert f"{HEAD} against {BASE}" not in render_table(judged(judgement(**slower)))
    text = render_table(judged(judgement(**slower), judgement(other="x", **slower)))
    assert f"\n{HEAD} against {BASE}\n" in text
    assert f"\nx against {BASE}\n" in text


@pytest.mark.parametrize("advisory", [False, True])
def test_the_first_screen_says_whether_changes_are_of_pairs_of_rounds(advisory):
    found = [replace(each, advisory=advisory) for each in judgements.timed()]
    assert ("from pairs of rounds" in render_table(judged(*found))) is not advisory


@pytest.mark.parametrize("whole", [False, True])
def test_the_title_has_config_machine_and_whether_results_are_right(whole):
    text = render_table(replace(judged(judgement()), subject="origin on X"), whole=whole)
    assert text.splitlines()[0].endswith(": origin on X")


def test_the_summary_has_a_row_for_each_metric():
    slower = {"verdict": Verdict.SLOWER, "cause": Cause.BEYOND_MARGIN}
    found = judged(
        judgement(ratio=1.1, **slower),
        judgement(case="b", ratio=0.99),
        *(judgement(metric=f"gpu_us/{load}", exploratory=True, ratio=1.0) for load in "ab"),
        judgement(metric="a_us/x+b_us", exploratory=True),
        overall=(Overall(ops.STEP, "gpu_us", BASE, HEAD, 2, 1.04, 0.9, 1.2),),
    )

    def rows(whole):
        text = render_table(found, whole=whole).partition("By metric")[2].partition("By case")[0]
        return [line.split() for line in text.splitlines() if line.startswith("  ")][2:]

    assert list(map(" ".join, rows(True))) == [
        "gpu_us 1 SLOWER, 1 SAME -1.0 to +10.0 +4.0 -10.0 to +20.0",
        "gpu_us/a 1 SAME 0.0 – –",
        "gpu_us/b 1 SAME 0.0 – –",
        "a_us/x+b_us 1 SAME – – –",
    ]


def test_many_sides_have_a_table_in_place_of_sentences():
    found = [judgement(other=f"x{at}") for at in range(MOST_SENTENCES + 1)]
    text = render_table(judged(*found))
    assert "By metric: changes in percent over the cases\n" in text
    assert "takes the same" not in text
    assert "By metric" not in render_table(judged(*found[1:]))


def test_the_first_screen_says_once_what_is_invalid_for_one_reason():
    """For all metrics, cases and sides, such as where the base itself has failed."""
    bad = {"verdict": Verdict.INVALID, "cause": Cause.FAILED, "detail": "failed for base: 3 is 4"}
    members = [
        judgement(**bad, other=other, case=case, metric=metric)
        for other in ("fused", "second")
        for case in ("a", "b")
        for metric in ("host_us", "gpu_us")
    ]
    other = judgement(**bad | {"detail": "2 rounds are too few"}, other="fused", case="c")
    text = render_table(judged(*members, other, others=("fused", "second")))
    table = text[text.index("By case") :].splitlines()
    assert sum("INVALID" in line for line in table) == 2
    at = table.index(f"fused, second against {BASE}")
    assert table[at + 1].strip().startswith("INVALID  step/a and 1 more  host_us, gpu_us  ")
    assert text.count("failed for base: 3 is 4") == 1
    at = table.index(f"fused against {BASE}")
    assert table[at + 1].split()[:3] == ["INVALID", "step/c", "gpu_us"]
    third = judgement(**bad, other="fused", case="a", metric="stage_us")
    text = render_table(judged(*members, third, others=("fused", "second")))
    assert "  step/a and 1 more  host_us and 2 more  " in text
    assert "Verdicts: 9 INVALID." in text
