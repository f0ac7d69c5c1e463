"""What `bt-bench compare` prints, in each format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import scenarios
from factories import make_case, make_failed_case, make_launches, make_result
from goldens import assert_golden

from bt_bench.compare import Comparison, compare
from bt_bench.errors import UsageError
from bt_bench.model import Plan, Quantity, VariantResult
from bt_bench.report.cells import NOT_RESOLVABLE
from bt_bench.report.compare_report import COMPARE_FORMATS, render_compare

GOLDEN = Path(__file__).parent / "golden"


def _mixed_comparison() -> Comparison:
    """Pairs, a side without a quantity, a failed case, missing ones, and an allowed difference."""
    times = {Quantity.EVENT_US: [[50.0], [52.0], [51.0]], Quantity.HOST_US: [[30.0]]}
    base = [
        make_case("small", samples=times, launches=make_launches(["gather", "slots"])),
        make_case("large", samples=times),
        make_case("gone", samples=times),
    ]
    other = [
        make_case("small", samples={Quantity.EVENT_US: [[20.0]]}, launches=make_launches(["all"])),
        make_failed_case("large", message="slot 3 is wrong"),
        make_case("new", samples=times),
    ]
    results = [
        make_result("baseline", base),
        make_result("fused", other, plan=Plan(rounds=4, warmup_rounds=1), complete=False),
    ]
    return compare(results, ignore_plan=True)


@pytest.mark.parametrize(("kind", "suffix"), [("table", "txt"), ("md", "md"), ("json", "json")])
def test_whole_text(kind: str, suffix: str) -> None:
    text = render_compare(_mixed_comparison(), kind)
    assert_golden(text, GOLDEN / f"compare.{suffix}")


def test_three_results_are_named_in_each_row_case_by_case() -> None:
    lines = render_compare(compare(scenarios.gpu_run()), "md").splitlines()
    header = next(line for line in lines if line.startswith("| Config"))
    assert [cell.strip() for cell in header.split("|")[3:5]] == ["baseline", "Other"]
    configs = [line.split("|")[1].strip() for line in lines if line.startswith(("| s", "| l"))]
    assert list(dict.fromkeys(configs)) == [
        "small · fused",
        "small · fused_apply",
        "large_4grp · fused",
        "large_4grp · fused_apply",
    ]


def test_json_has_a_schema_version_and_null_for_what_does_not_exist() -> None:
    document = json.loads(render_compare(_mixed_comparison(), "json"))
    assert document["schema_version"] == 2
    host = document["pairs"][0]["series"][0]
    assert (host["quantity"], host["launch_path"], host["load"]) == ("host_us", "jit", "idle")
    assert (host["other"], host["savings"], host["savings_percent"]) == (None, None, None)
    assert (host["resolved"], host["resolution"]) == (None, None)


def test_json_has_every_part_of_the_smallest_resolvable_difference() -> None:
    document = json.loads(render_compare(compare(scenarios.gpu_run()), "json"))
    series = document["pairs"][0]["series"]
    (step,) = (
        each for each in series if each["quantity"] == "step_us" and each["launch_path"] == "jit"
    )
    resolution = step["resolution"]
    assert step["resolved"] is True
    assert set(resolution) == {
        *("smallest", "limit", "interval", "interval_instances", "interval_blocks"),
        *("control", "ticks", "floor", "instances", "rounds"),
    }
    assert resolution["smallest"] == resolution[resolution["limit"]]
    assert (resolution["instances"], resolution["rounds"]) == (8, scenarios.NUM_ROUNDS)


def test_json_has_the_checks_of_both_sides() -> None:
    document = json.loads(render_compare(compare(scenarios.gpu_run()), "json"))
    (pair,) = (
        pair
        for pair in document["pairs"]
        if (pair["operation"], pair["case"], pair["other"]) == ("step", "large_4grp", "fused_apply")
    )
    assert [check["agrees"] for check in pair["crosschecks"]["base"]] == [True] * 3
    hot, cold, graph = pair["crosschecks"]["other"]
    assert [check["agrees"] for check in (hot, cold, graph)] == [False, False, True]
    assert hot["first"]["method"] == "events"
    assert hot["first"]["corrected"] == pytest.approx(
        hot["first"]["reported"] - scenarios.EVENTS_ADD_US
    )


def test_savings_that_are_not_resolved_and_methods_that_disagree() -> None:
    text = render_compare(compare(scenarios.gpu_run()))
    rows = [line for line in text.splitlines() if line.startswith("small · fused_apply")]
    assert any(line.endswith(NOT_RESOLVABLE) for line in rows)
    assert "methods disagree: " in text
    assert "large_4grp · fused_apply  event (busy, cold)" in text


def test_an_insufficient_case_is_listed_with_its_reason() -> None:
    text = render_compare(compare([scenarios.failed_run()[0], _third_case_insufficient()]))
    assert "Insufficient cases" in text or "Failures and insufficient cases" in text
    assert "insufficient, disturbed: 40 of 48 rounds were discarded: throttled" in text


def _third_case_insufficient() -> VariantResult:
    result = scenarios.failed_run()[1]
    small = scenarios.failed_run()[0].cases[0]
    return result.model_copy(update={"cases": [small, *result.cases[1:]]})


def test_as_many_launches_of_other_kernels_are_pointed_out() -> None:
    results = [
        make_result(name, [make_case(launches=make_launches([kernel]))])
        for name, kernel in (("baseline", "a"), ("other", "b"))
    ]
    assert "as many launches, but not the same" in render_compare(compare(results))


@pytest.mark.parametrize("kind", COMPARE_FORMATS)
def test_hostile_names_are_harmless(kind: str) -> None:
    text = render_compare(compare(scenarios.hostile_run()), kind)
    assert "\x1b" not in text
    if kind == "md":
        assert "<img" not in text
        assert "<script" not in text
    if kind == "json":
        assert json.loads(text)["pairs"][0]["case"] == scenarios.HOSTILE_NAME


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(UsageError, match="unknown format 'xml'; expected one of table, md, json"):
        render_compare(_mixed_comparison(), "xml")
