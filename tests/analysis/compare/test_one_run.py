"""A run compared with itself: what is compared with what, under which labels."""

from __future__ import annotations

import pytest
from support.factories import make_case, make_environment, make_result

from bt_bench.analysis.compare.labels import unique_labels
from bt_bench.analysis.compare.one_run import baseline_index, judge_run
from bt_bench.base.errors import UsageError
from bt_bench.results.run.nouns import Quantity


def test_the_base_is_the_first_where_no_variant_is_named_baseline() -> None:
    assert baseline_index([make_result("b"), make_result("a")]) == 0
    assert baseline_index([make_result("b"), make_result("baseline")]) == 1


def test_labels() -> None:
    results = [
        make_result("fused", run_id="monday"),
        make_result("fused", run_id="tuesday"),
        make_result("fused", run_id="tuesday"),
        make_result("baseline"),
    ]
    assert unique_labels(results) == [
        "fused (monday)",
        "fused (tuesday)",
        "fused (tuesday) #2",
        "baseline",
    ]
    assert unique_labels(results, ["x", "x", "x #2", "y"]) == ["x", "x #2", "x #2 #2", "y"]
    with pytest.raises(UsageError, match="got 1 labels for 4 results"):
        unique_labels(results, ["x"])


def test_all_variants_are_compared_with_the_baseline() -> None:
    cases = [make_case(samples={Quantity.HOST_US: [[10.0]]})]
    found = judge_run([make_result(name, cases) for name in ("fused", "baseline", "other")])
    assert (found.base, found.others) == ("baseline", ("fused", "other"))
    assert judge_run([make_result("baseline", cases)]) is None


def test_a_run_is_shown_whatever_its_results_differ_in() -> None:
    """A report says what it is of; it refuses nothing that `compare` would."""
    cases = [make_case(samples={Quantity.HOST_US: [[10.0]]})]
    results = [
        make_result("baseline", cases, complete=False),
        make_result("fused", cases, environment=make_environment("cpu")),
    ]
    found = judge_run(results)
    assert any("differ, as allowed: device cuda against cpu" in each for each in found.warnings)
