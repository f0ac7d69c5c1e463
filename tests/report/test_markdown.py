"""The whole text of `comparison.md`, and that no name can become markup."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from support import scenarios
from support.factories import (
    make_case,
    make_crash,
    make_environment,
    make_failed_case,
    make_gpu,
    make_result,
    make_workload,
)
from support.goldens import assert_golden

from bt_bench.base.document import Document
from bt_bench.base.errors import UsageError
from bt_bench.report.markdown import LINE_WIDTH, escape, render_document
from bt_bench.report.run.rendering import render_comparison
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.result import VariantResult
from bt_bench.suites.block_tables import operations as ops

GOLDEN = Path(__file__).parent / "golden"
RUNS = {
    "gpu_run": scenarios.gpu_run,
    "cpu_run": scenarios.cpu_run,
    "partial_run": scenarios.partial_run,
    "failed_run": scenarios.failed_run,
    "trace_run": scenarios.trace_run,
    "hostile_run": scenarios.hostile_run,
}


@pytest.mark.parametrize("name", RUNS)
def test_whole_text(name: str) -> None:
    planned_cases = 6 if name == "partial_run" else None
    text = render_comparison(RUNS[name](), planned_cases)
    assert_golden(text, GOLDEN / f"{name}.md")


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_lines_are_narrow_and_tables_are_aligned(run: Callable[[], list[VariantResult]]) -> None:
    lines = render_comparison(run()).splitlines()
    assert all(len(line) <= LINE_WIDTH for line in lines if not line.startswith(("|", "#")))
    assert not [line for line in lines if line != line.rstrip()]
    for above, below in pairwise(lines):
        if above.startswith("|") and below.startswith("|"):
            assert len(above) == len(below)


def _event_columns(results: list[VariantResult]) -> list[str]:
    lines = render_comparison(results).splitlines()
    header = next(line for line in lines if line.startswith("|") and "Change (µs)" in line)
    return [cell.strip() for cell in header.strip("|").split("|")]


def test_columns_of_the_event_table_say_the_variant_that_they_hold_in_one_unit() -> None:
    changes = ["Change (µs)", "Change (%)", "Verdict"]
    three = scenarios.gpu_run()
    assert _event_columns(three[:2]) == ["Config", "baseline (µs)", "fused (µs)", *changes]
    assert _event_columns(three) == ["Config", "baseline (µs)", "Variant (µs)", *changes]
    assert "(ms)" not in render_comparison(three)


def test_gather_slots_comes_first() -> None:
    lines = render_comparison(scenarios.gpu_run()).splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[:3] == ["## Gather + slots", "## Whole step", "## Apply staged writes"]


def test_the_first_line_says_what_was_measured_on() -> None:
    first_line = render_comparison(scenarios.gpu_run()).splitlines()[2]
    assert first_line.startswith("Measured on NVIDIA H200, torch 2.11.0, Triton 3.6.0, CUDA 12.8,")
    first_line = render_comparison(scenarios.cpu_run()).splitlines()[2]
    assert first_line.startswith("No GPU: results and launch counts come from")


def test_a_gpu_that_was_not_used_is_not_denied() -> None:
    environment = make_environment("cpu", gpus=[make_gpu()], gpu_count=1)
    text = render_comparison([make_result(cases=[make_case()], environment=environment)])
    assert "No GPU was used: results" in text


def test_environments_that_differ_are_told_apart() -> None:
    text = render_comparison(
        [
            make_result("baseline", [make_case()]),
            make_result("fused", [make_case()], environment=make_environment("cpu")),
        ]
    )
    assert "baseline: Measured on NVIDIA H200" in text
    assert "fused: No GPU:" in text


def test_the_first_result_is_the_baseline_where_none_is_named_so() -> None:
    text = render_comparison([make_result("mine"), make_result("fused")])
    assert "Changes: fused against mine." in text


def test_one_variant_has_no_changes() -> None:
    case = make_case(samples={Quantity.EVENT_US: [[50.0]]})
    text = render_comparison([make_result(cases=[case])])
    assert "Only baseline was measured" in text
    assert "Change (µs)" not in text


def test_a_base_of_zero_has_no_percentage() -> None:
    cases = [make_case(samples={Quantity.EVENT_US: [[value]]}) for value in (0.0, 2.0)]
    text = render_comparison([make_result("baseline", cases[:1]), make_result("fused", cases[1:])])
    row = next(line for line in text.splitlines() if line.startswith("| small"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["small", "0", "2.000", "–", "–", "INVALID¹"]


def test_rounds_stops_and_discarded_rounds_are_in_the_lead() -> None:
    lead = " ".join(render_comparison(scenarios.gpu_run()).split("## ")[0].split())
    assert "48–96 rounds per case after 1 warm-up round;" in lead
    assert (
        "target precision reached (3), time limit (3). Discarded rounds: 6 clock too low." in lead
    )
    assert "with their number: gather (baseline 2," in lead
    assert "slots (" not in lead


def test_remarks_of_workloads_are_in_the_lead_once() -> None:
    workload = make_workload().model_copy(update={"remarks": ["2 requests left out"]})
    cases = [make_case(workload=workload)]
    text = render_comparison([make_result("baseline", cases), make_result("fused", cases)])
    assert text.split("\n## ")[0].count("small: 2 requests left out") == 1


def test_crashes_that_did_not_come_back_are_in_the_lead_and_listed() -> None:
    crashes = [make_crash(), make_crash("conformance:corners", known=False)]
    results = [make_result("baseline", [make_case()]), make_result("fused", crashes=crashes)]
    text = " ".join(render_comparison(results).split())
    assert "Warning: 2 crashes listed under Crashes that did not happen again, after the" in text
    _, section = text.split("## Crashes that did not happen again")
    assert "- fused, step/small: while measured: the worker was ended by SIGSEGV; it did" in section
    assert "SIGSEGV, and it is not known in which variant; it did not" in section
    assert "Crashes" not in render_comparison(results[:1])


def test_cases_of_one_name_and_another_workload_are_not_set_against_each_other() -> None:
    samples = {Quantity.EVENT_US: [[50.0]]}
    cases = [
        make_case(operation=ops.STEP, samples=samples),
        make_case(operation=ops.STEP, samples={Quantity.EVENT_US: [[1.0, 1.0]]}, num_steps=2),
    ]
    text = render_comparison([make_result("baseline", cases[:1]), make_result("fused", cases[1:])])
    rows = [line for line in text.splitlines() if line.startswith("| small")][:2]
    assert all("–¹" in row or "–²" in row for row in rows)


def test_no_results_is_an_error() -> None:
    with pytest.raises(UsageError, match="at least one result"):
        render_comparison([])


def test_cases_that_failed_alike_share_a_line() -> None:
    def failing(names: str, message: str) -> list[CaseResult]:
        return [make_failed_case(name, message=message) for name in names]

    sound = make_result("baseline", [])
    wrong = make_result("fused", [*failing("abcd", "conformance:corners"), *failing("e", "else")])
    text = render_comparison([sound, wrong])
    listed = text.partition("## Failures")[2].partition("##")[0].strip().splitlines()
    assert listed == [
        "- fused, gather_slots/a, gather_slots/b and 2 more cases: failed, wrong_result: "
        "conformance:corners",
        "- fused, gather_slots/e: failed, wrong_result: else",
    ]
    assert "Not every case is ok: 5 listed under Failures" in text


def test_hostile_names_stay_text() -> None:
    text = render_comparison(scenarios.hostile_run())
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or []]
    assert {token.type for token in tokens} <= {
        *("heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline"),
        *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
        *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close"),
        *("tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close"),
    }
    assert {child.type for child in inline} <= {"text", "softbreak", "text_special"}
    plain = ["".join(c.content for c in t.children or []) for t in tokens if t.type == "inline"]
    assert "a|b <img src=x> & `tick` *bold* [red] # title" in plain
    num_headings = sum(token.type == "heading_open" for token in tokens)
    assert num_headings == 4  # the title, one operation, failures, how to read this
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "start", ["- no list", "+ no", "# no", "1. no", "12) no", "=== no", "--- no"]
)
def test_a_wrapped_word_begins_no_list_or_heading(start: str) -> None:
    paragraph = "x" * (LINE_WIDTH - 4) + " " + start
    text = render_document(Document("title", (paragraph,), ()))
    html = MarkdownIt().render(text)
    assert html.count("<p>") == 1
    assert html.count("<h") == 1
    assert "<li>" not in html


def test_underscores_inside_words_are_left_alone() -> None:
    assert escape("medium_batch_4grp") == "medium_batch_4grp"
    assert escape("_x_") == "\\_x\\_"


def test_rendering_imports_neither_torch_nor_triton_nor_pandas_nor_scipy() -> None:
    code = (
        "import sys, bt_bench.report.markdown, bt_bench.report.console, "
        "bt_bench.results.files.reading, bt_bench.report.frames, bt_bench.report.formats;"
        "print({'torch', 'triton', 'pandas', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
