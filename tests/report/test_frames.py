"""The pandas table of a run."""

from __future__ import annotations

import sys

import pytest
from support import scenarios
from support.factories import (
    make_calibration,
    make_case,
    make_measurement,
    make_required,
    make_result,
)

from bt_bench.base.errors import UsageError
from bt_bench.report.frames import (
    ROOFLINE_COLUMNS,
    SUMMARY_COLUMNS,
    roofline_frame,
    summary_frame,
)
from bt_bench.results.run.calibration import PlainCopies
from bt_bench.results.run.nouns import Quantity


def test_a_row_per_variant_case_and_series() -> None:
    frame = summary_frame(scenarios.gpu_run())
    assert tuple(frame.columns) == SUMMARY_COLUMNS
    assert len(frame) == 3 * 6 * 27  # variants, cases, series
    events = frame[(frame["quantity"] == "event_us") & (frame["operation"] == "step")]
    conditions = ["launch_path", "load", "l2", "method"]
    assert set(map(tuple, events[conditions].to_numpy())) == {
        ("jit", "idle", "hot", "events"),
        ("jit", "busy", "hot", "events"),
        ("jit", "busy", "cold", "events"),
        ("graph", "idle", "hot", "events"),
    }
    idle = events[(events["load"] == "idle") & (events["launch_path"] == "jit")]
    medians = idle.pivot_table(index="case", columns="variant", values="median_us")
    assert medians.loc["large_4grp", "fused"] == pytest.approx(40.5, rel=0.02)


def test_one_step_is_summarized_over_rounds() -> None:
    samples = {Quantity.HOST_US: [[float(value)] for value in (4, 1, 3, 2, 6, 5)]}
    row = summary_frame([make_result(cases=[make_case(samples=samples)])]).iloc[0]
    assert (row["rounds"], row["steps"], row["median_us"]) == (6, 1, 3.5)
    assert (row["median_low_us"], row["median_high_us"]) == (1.0, 6.0)
    assert row["iqr_us"] == 2.5
    assert row["p99_us"] == pytest.approx(5.95)


def test_a_window_is_summarized_over_its_steps_and_has_no_interval() -> None:
    samples = {Quantity.HOST_US: [[1.0, 9.0], [3.0, 11.0]]}
    frame = summary_frame([make_result(cases=[make_case(samples=samples, num_steps=2)])])
    assert frame["median_us"].tolist() == [6.0]
    assert frame["median_low_us"].isna().all()


def test_samples_of_a_window_as_a_whole_are_summarized_over_rounds() -> None:
    samples = [[float(value)] for value in (4, 1, 3, 2, 6, 5)]
    measurement = make_measurement(Quantity.PIPELINED_US, samples, per="window")
    case = make_case(num_steps=3).model_copy(update={"measurements": [measurement]})
    row = summary_frame([make_result(cases=[case])]).iloc[0]
    assert (row["per"], row["median_us"], row["median_low_us"]) == ("window", 3.5, 1.0)


def test_nothing_measured_is_an_empty_frame_with_columns() -> None:
    frame = summary_frame([make_result(cases=[make_case()])])
    assert frame.empty
    assert tuple(frame.columns) == SUMMARY_COLUMNS


def test_what_cases_must_move_has_a_row_per_variant_and_case() -> None:
    copies = PlainCopies(moved_bytes=[1000, 2000], samples=[[0.75], [1.5]])
    calibration = make_calibration({"null_gpu": [0.5]}, copies=copies)
    samples = {Quantity.GPU_US: [[3.0]]}
    known = make_case("a", samples=samples, workload=make_required(1000, name="a"))
    unknown = make_case("b", samples=samples)
    frame = roofline_frame([make_result(cases=[known, unknown], calibration=calibration)])
    assert tuple(frame.columns) == ROOFLINE_COLUMNS
    (row,) = frame.to_dict("records")
    assert (row["case"], row["required_bytes"], row["binds"]) == ("a", 1000, "launch")
    assert type(row["binds"]) is str
    assert (row["bound_us"], row["times_bound"]) == (0.75, 4.0)


def test_without_pandas_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"needs pandas.*pip install 'bt-bench\[pandas\]'"):
        summary_frame(scenarios.gpu_run())
    with pytest.raises(UsageError, match=r"roofline_frame needs pandas"):
        roofline_frame(scenarios.gpu_run())
