"""The draft of a pull request: what was measured, what was not, and what a human must write."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from support.factories import (
    make_calibration,
    make_case,
    make_crash,
    make_environment,
    make_failed_case,
    make_launches,
    make_result,
)

from bt_bench.report.evidence import Evidence, ReportedRun
from bt_bench.report.formats.md_format import MOST_CHARACTERS
from bt_bench.report.pull_request import render_draft, render_draft_json
from bt_bench.report.pull_request.blanks import BLANKS
from bt_bench.report.run.arranged import arrange
from bt_bench.results import Plan, VariantResult
from bt_bench.results.run.case import ControlSpread
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops

BEGIN = "**Machine-made, from here to “End of the machine-made part”:**"
END = "**End of the machine-made part.**"
PLAN = Plan(rounds=48, warmup_rounds=1)


def evidence(*results: VariantResult, absent: tuple[str, ...] = ()) -> Evidence:
    arms = arrange(results)
    base = arms.baseline.result.variant.name
    return Evidence((Path("reports/run"),), (ReportedRun(arms, 4, absent),), base, arms.judged)


def timed(variant: str, us: dict[str, float], launches: int = 1, **fields) -> VariantResult:
    """A result with host and GPU times around a typical one for each case."""
    noise = [1 + 0.001 * math.sin(index * len(variant)) for index in range(48)]
    cases = [
        make_case(
            name,
            ops.STEP,
            {Quantity.HOST_US: [[t * n] for n in noise], Quantity.GPU_US: [[t * n] for n in noise]},
            launches=make_launches(["kernel"] * launches),
        )
        for name, t in us.items()
    ]
    return make_result(variant, cases, plan=PLAN, **fields)


def pair(**fields) -> Evidence:
    return evidence(
        timed("baseline", {"a": 100.0, "b": 100.0, "c": 100.0}, 3, **fields),
        timed("fused", {"a": 50.0, "b": 20.0, "c": 80.0}, 1, **fields),
    )


def sections_of(text: str) -> list[str]:
    return re.findall("^## (.*)$", text, re.MULTILINE)


def test_its_sections():
    assert sections_of(render_draft(pair())) == [
        *("Overview", "Claims", "Validation", "Details", "Pull Request Checklist"),
    ]


def test_its_sections_are_those_of_vllms_template():
    given = os.environ["TEST_VLLM_SDIST"]
    if not given:
        pytest.skip("needs vLLM's unpacked source distribution: BT_BENCH_VLLM_SDIST=DIR")
    template = (Path(given) / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text()
    sections = sections_of(render_draft(pair()))
    assert sections[:-1] == sections_of(template)
    assert f"<summary> {sections[-1]} </summary>" in template


def test_everything_outside_the_machine_made_part_is_a_heading_or_a_blank():
    text = render_draft(pair())
    before, rest = text.split(BEGIN)
    made, after = rest.split(END)
    blocks = [block for block in (before + after).split("\n\n") if block.strip()]
    assert all(block.startswith(("## ", "> **TO BE WRITTEN BY A HUMAN (")) for block in blocks)
    assert "TO BE WRITTEN" not in made
    numbers = re.findall(r"\((\d) of (\d)\)", before + after)
    assert numbers == [(str(number), str(len(BLANKS))) for number in range(1, len(BLANKS) + 1)]
    for needed in ("no duplicate", "answers for it", "`vllm bench serve`"):
        assert needed in before + after


def test_the_worst_case_stands_beside_the_median():
    text = render_draft(pair())
    (row,) = (line for line in text.splitlines() if "host time" in line and line[0] == "|")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:6] == ["step", "fused against baseline", "host time", "3", "3 FASTER", "2.00 ×"]
    assert cells[6].startswith("1.25 × (")
    assert cells[7] == "c"
    assert re.fullmatch(r"(100\.0|99\.\d\d) → (80\.\d\d|79\.9\d)", cells[8])
    assert "fused takes 1.25–5.00 × less host time and 1.25–5.00 × less GPU time" in text
    assert "Device operations per step of step: baseline 3, fused 1." in text


def test_slower_and_undecided_are_no_claims_of_a_gain():
    text = render_draft(evidence(timed("baseline", {"a": 50.0}), timed("fused", {"a": 100.0})))
    assert "fused takes 2.00 × more host time; 2.00 × more GPU time." in text
    assert "| 1 SLOWER | 0.50 × | 0.50 × (" in text


def test_certainty_machine_and_commands():
    spread = ControlSpread(
        series=series_of(Quantity.HOST_US), arm="baseline", difference_us=1.0, share=-0.013
    )
    found = pair()
    case = found.runs[0].arms.baseline.result.cases[0]
    case.control_spreads.append(spread)
    text = render_draft(found)
    assert "Spread of host time over the rounds: half of the rounds lie within ± " in text
    assert "copy of baseline, timed in the same rounds, differed by at most 1.3 % in host" in text
    assert "Measured on NVIDIA H200, torch 2.11.0, Triton 3.6.0, CUDA 12.8, driver" in text
    assert "Host: Example CPU 9000, 16 CPUs, Linux-x86_64, Python 3.12.1." in text
    code = text.split("```bash\n")[1].split("\n```")[0].splitlines()
    assert code == [
        "# bt-bench 0.1.0, commit 0123456789abcdef, torch 2.11.0, Triton 3.6.0",
        "bt-bench sweep configs/quick.yaml",
        "bt-bench compare reports/run",
        "bt-bench report reports/run --format pr",
    ]
    assert f"variant fused: {'ab' * 32}" in text


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            lambda: pair(environment=make_environment("cpu")),
            "No GPU was used. Nothing here shows that anything is faster on one",
        ),
        (
            lambda: evidence(timed("fused", {"a": 50.0})),
            "Only fused was measured, so nothing is compared.",
        ),
        (lambda: pair(complete=False), "PARTIAL: the run was interrupted; 3 of 4 cases are done"),
        (
            lambda: evidence(timed("baseline", {"a": 1.0}), absent=("fused",)),
            "Without any result, though the run's config names them: fused.",
        ),
        (
            lambda: evidence(
                timed("baseline", {"a": 9.0}),
                make_result("fused", [make_failed_case("a", ops.STEP)], plan=PLAN),
            ),
            r"fused: failed in step/a: slot_mappings\[0, 3\] is 17; the reference has 16.",
        ),
        (lambda: evidence(make_result("baseline")), "The run has no cases."),
        (
            lambda: evidence(make_result("baseline", [make_failed_case()])),
            "No case is ok, so there are no figures.",
        ),
        (lambda: pair(crashes=[make_crash()]), "Crash that did not happen again: fused, "),
        (
            lambda: pair(environment=make_environment(dirty=True)),
            "The sources had uncommitted changes",
        ),
        (
            lambda: pair(environment=make_environment(commit=None)),
            "The commit of the sources was not recorded.",
        ),
        (
            lambda: pair(calibration=make_calibration({"empty_call": [0.5] * 9})),
            "Failed self-check: the harness adds less than 0.1 µs",
        ),
        (pair, "No side is vLLM's own code; the base is baseline."),
        (
            lambda: evidence(timed("baseline", {"a": 9.0}), timed("vllm", {"a": 20.0})),
            "The base is baseline, not vLLM's own code, though vllm was measured.",
        ),
    ],
)
def test_it_names_what_a_run_does_not_show(found, told):
    made = found()
    assert told in render_draft(made).split("Limits:")[1].split("## Validation")[0]
    json.loads(render_draft_json(made))


def test_a_single_variant_has_medians_and_no_speed_ups():
    text = render_draft(evidence(timed("fused", {"a": 50.0, "b": 20.0})))
    assert "Whole step, medians:" in text
    assert re.search(r"\| a +\| (50\.0\d|49\.9\d) \|", text)
    assert "Worst" not in text
    assert "bt-bench compare" not in text


HOSTILE = (
    "@torvalds fixes #1 GH-2 https://evil.example www.evil.example <script>alert(1)</script> "
    "</details> `x` |a| ```\n## Claims\n> **TO BE WRITTEN** [x](y) *b* \u202eevil"
)


def test_names_from_results_are_only_text():
    environment = make_environment(cpu=HOSTILE)
    base = timed("baseline", {HOSTILE: 100.0}, environment=environment)
    other = timed("fused", {HOSTILE: 50.0}, environment=environment)
    info = other.variant.model_copy(update={"summary": HOSTILE, "name": HOSTILE})
    tool = other.tool.model_copy(update={"command": ["bt-bench", HOSTILE]})
    text = render_draft(evidence(base, other.model_copy(update={"variant": info, "tool": tool})))
    fenced = re.compile(r"^(`{3,})bash\n.*?^\1$", re.DOTALL | re.MULTILINE)
    assert len(fenced.findall(text)) == 1
    plain = fenced.sub("", text)
    assert not re.search(r"@torvalds|#1|GH-2|https://|www\.evil|<script|\u202e", plain)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<h2>") == 5
    assert html.count("<blockquote>") == len(BLANKS)
    assert html.count("<details>") == html.count("</details>")
    assert "<script" not in html
    assert "<em>" not in html
    assert "<a " not in html


def test_it_fits_into_a_description_on_github():
    names = {f"{index:03}-{'x' * 90}": 100.0 + index for index in range(150)}
    many = [timed(f"fused_{index}", dict.fromkeys(names, 50.0)) for index in range(2)]
    text = render_draft(evidence(timed("baseline", names), *many))
    assert len(text) <= MOST_CHARACTERS
    assert END in text
    assert text.rstrip().endswith("tick it yourself.")


def test_paragraphs_are_lines_since_github_shows_line_breaks():
    for block in render_draft(pair()).strip().split("\n\n"):
        if "\n" in block:
            assert block.startswith(("|", "-", "```", "<details>"))


def test_json_has_the_same_figures():
    document = json.loads(render_draft_json(pair()))
    made = document["machine_made"]
    assert [row["median_speed_up"] for row in made["rows"]] == pytest.approx([2.0, 2.0], rel=0.01)
    assert [row["worst"]["case"] for row in made["rows"]] == ["c", "c"]
    assert document["complete"] is True
    assert [blank["key"] for blank in document["blanks"]] == [blank.key for blank in BLANKS]
    assert len(made["verdicts"]) == 9
