"""The page of a gate: what answers first, and its rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.factories import make_environment
from support.fake_gpus import environment_of
from support.gate_rounds import ARMS, CONTROL, HEAD, make_rounds, subject, without

from bt_bench.base import Bullets
from bt_bench.report.page import gate_page, render_page
from bt_bench.report.page.drawing import line_drawing
from bt_bench.report.page.parts import LineChart, Page
from bt_bench.results import Judging, Recording, Revision
from bt_bench.results.gate.recording import with_rounds
from bt_bench.results.gate.rounds import GateRound
from bt_bench.results.run.conditions import Condition, Harm
from bt_bench.results.run.result import Tool
from bt_bench.runs import judge_recording

ONE, TWO = subject("one"), subject("two")
JUDGING = Judging(margin=0.015, alpha=0.01, looks=[12, 32], most_rounds=32, detect=0.05)


def recorded(rounds: list[GateRound], **more: object) -> Recording:
    header = Recording(
        created="2026-01-02T03:04:05+00:00",
        tool=Tool(version="0.1.0", command=["bt-bench", "gate", "--out", "/home/me/out"]),
        environment=make_environment(),
        config="quick",
        arms={arm: Revision(label=f"the {arm.value}", commit="0" * 40) for arm in ARMS},
        judging=JUDGING,
        subjects=[],
        rounds=[],
    )
    return with_rounds(header.model_copy(update=more), rounds)


def page_of(recording: Recording) -> Page:
    return gate_page(judge_recording(recording), recording)


def charts(page: Page) -> dict[str, LineChart]:
    blocks = (block for case in page.cases for block in case.blocks)
    return {block.name: block for block in blocks if isinstance(block, LineChart)}


@pytest.fixture
def slower() -> list[GateRound]:
    return make_rounds(32, {ONE: (10.0, 12.0, 10.0), TWO: (50.0, 50.0, 50.0)})


def test_verdicts_and_the_detection_limit_come_first(slower: list[GateRound]) -> None:
    page = page_of(recorded(slower))
    answer = " ".join(page.answer)
    assert "fused@the head takes" in answer
    assert "more host time" in answer
    assert "slowdown of 5 % or 0.15 µs" in answer
    assert answer.endswith("Verdicts: 1 SLOWER, 1 SAME.")
    html = render_page(page)
    assert html.index("Verdicts: 1 SLOWER") < html.index("Who is faster")
    assert "bt-bench gate --out out<" in html  # without the private folder
    assert html.count(page.answer[-2].replace('"', "&#34;")) == 1


def test_the_error_rate_is_that_of_the_gate(slower: list[GateRound]) -> None:
    judging = JUDGING.model_copy(update={"alpha": 0.05})
    html = render_page(page_of(recorded(slower, judging=judging)))
    assert "any false alarm in the whole gate has a probability of 0.05" in html
    assert "alpha is " not in html  # of families that a comparison has


def test_rounds_are_shown_over_time_with_the_margin_and_the_looks(slower: list[GateRound]) -> None:
    slower = make_rounds(32, {ONE: (10.0, 10.12, 10.0)}, noise=0.02)  # open at the first look
    chart = charts(page_of(recorded(slower)))["rounds/step/one/fused/host_us"]
    assert "median 1.0" in chart.alternative
    assert "upright: the look after 12 rounds" in chart.title
    assert line_drawing(chart).count("<circle") == 2 * 32
    assert line_drawing(chart).count('class="level"') == 3 + 1
    assert len(chart.data.rows) == 32
    first = [cell.text for cell in chart.data.rows[0]]
    base, control, head, ratio = map(float, first[1:5])
    assert ratio == pytest.approx(head / (base * control) ** 0.5, abs=2e-3)
    assert chart.arms == ("control", "head")


def test_values_that_are_missing_are_counted_and_many_rounds_are_thinned(
    slower: list[GateRound],
) -> None:
    some = recorded(without(slower, HEAD, ONE, 30))
    assert "2 without a value" in charts(page_of(some))["rounds/step/one/fused/host_us"].title
    many = recorded(make_rounds(450, {ONE: (10.0, 10.0, 10.0)}))
    chart = charts(page_of(many))["rounds/step/one/fused/host_us"]
    assert "one of every 3 rounds" in chart.title
    assert len(chart.data.rows) == 150


def test_each_gpu_is_there_with_its_rounds_and_with_what_it_alone_has(
    slower: list[GateRound],
) -> None:
    rounds = [replace(taken, device=at % 3 // 2) for at, taken in enumerate(slower)]
    own, other, idle = (environment_of(f"{name * 8}-1") for name in "abc")
    held = [other.gpus[0].model_copy(update={"throttle_reasons": ["gpu_idle", "power"]})]
    shared = Condition(name="a stranger", effect="slow", remedy="wait", harm=Harm.NOTED)
    others = [other.model_copy(update={"gpus": held, "conditions": [shared]}), idle]
    page = page_of(recorded(rounds, environment=own, others=others))
    blocks = (block for section in page.sections for block in section.blocks)
    texts = next(
        each for each in blocks if isinstance(each, Bullets) and "on GPU-" in each.items[0]
    )
    first, *rest = texts.items
    assert (
        first
        == "22 rounds on GPU-aaaaaaaa, 10 rounds on GPU-bbbbbbbb and 0 rounds on GPU-cccccccc."
    )
    alone = [text for text in rest if text.startswith("GPU-")]
    assert alone == [
        "GPU-bbbbbbbb: Warning: a stranger: slow; wait.",
        "GPU-bbbbbbbb: Its clocks were held back at the start: power.",
    ]
    assert sum(text.startswith("Measured on NVIDIA H200") for text in rest) == 1


def test_arms_that_were_measured_apart_are_compared_with_the_base_alone(
    slower: list[GateRound],
) -> None:
    page = page_of(recorded(slower, apart={"fused": "it sets a flag"}))
    assert "the head against the base" in charts(page)["rounds/step/one/fused/host_us"].title


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_recording_of_a_gate_that_was_stopped_has_a_page(
    rounds: int, slower: list[GateRound]
) -> None:
    page = page_of(recorded(slower[:rounds]))
    assert "SLOWER" not in " ".join(page.answer)
    assert len(charts(page)) == (2 if rounds == 2 else 0)
    assert render_page(page)


def test_without_rules_or_a_control_it_says_so(slower: list[GateRound]) -> None:
    page = page_of(recorded(slower, judging=None))
    assert any("does not have the rules of a gate" in text for text in page.warnings)
    assert "Verdicts: 1 SLOWER, 1 SAME." in page.answer
    no_control = [
        replace(taken, values={arm: row for arm, row in taken.values.items() if arm != CONTROL})
        for taken in slower
    ]
    assert "2 INVALID" in page_of(recorded(no_control)).answer[-1]


def test_names_are_escaped() -> None:
    evil = subject("</script><b>", variant="a&b")
    page = page_of(recorded(make_rounds(12, {evil: (10.0, 10.0, 10.0)})))
    html = render_page(page)
    assert "</script><b>" not in html
    assert "&lt;/script&gt;&lt;b&gt;" in html
