"""The page of a profile: pictures of a step, each with its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.timelines import a_timeline, failed, host_profile, with_host

from bt_bench.base import Document
from bt_bench.report.page import profile_page, render_page
from bt_bench.report.page.parts import BarChart, Page, Picture
from bt_bench.report.profile import explained_steps


def blocks(page: Page, kind: type) -> list:
    return [block for section in page.sections for block in section.blocks if type(block) is kind]


def test_the_step_of_each_variant_is_a_bar_a_lane_and_flames() -> None:
    timeline = with_host(a_timeline(), host_profile())
    page = profile_page(timeline, [])
    assert [text.partition(":")[0] for text in page.answer] == ["fused", "separate"]
    (chart,) = blocks(page, BarChart)
    for bar, step in zip(chart.bars, explained_steps(timeline).values(), strict=True):
        longest = max(each.step_us for each in explained_steps(timeline).values())
        total = sum(segment.share for segment in bar.segments)
        assert total == pytest.approx(step.step_us / longest, abs=0.01)
    assert [each.name for each in blocks(page, Picture)] == [
        "timeline",
        "flames/fused",
        "flames/separate",
    ]
    html = render_page(page)
    assert html.count('<svg xmlns="http://www.w3.org/2000/svg"') == 3
    assert html.count("Figures as a table") == 4
    assert "bt-bench profile quick -k one --operations step" in html


def test_a_variant_that_failed_is_named_first_and_names_are_escaped() -> None:
    timeline = a_timeline(variants=[failed("<b>evil", "it </script> broke")])
    page = profile_page(timeline, [])
    assert page.warnings == ("FAILED: <b>evil: it </script> broke",)
    html = render_page(page)
    assert "<b>evil" not in html
    assert "No step could be explained." in html


def test_reports_on_kernels_follow_or_stand_alone() -> None:
    kernels = Document("Kernels of quick", ("Two kernels.",), ())
    assert profile_page(None, [kernels]).title == "Kernels of quick"
    both = profile_page(a_timeline(), [kernels, replace(kernels, title="Counters")])
    assert [section.title for section in both.sections][-2:] == ["Kernels of quick", "Counters"]
    with pytest.raises(ValueError, match="got none of them"):
        profile_page(None, [])
