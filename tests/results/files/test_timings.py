"""The seconds of an earlier run's cases, which shards are balanced by."""

from __future__ import annotations

import pytest
from support.factories import make_case, make_result

from bt_bench.base.errors import UsageError
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.timings import read_timing
from bt_bench.results.files.writing import ResultWriter, write_result
from bt_bench.results.run.case import Stopping, StopReason
from bt_bench.suites.block_tables import operations as ops


@pytest.fixture
def run(tmp_path):
    return RunFolder.create_exact(tmp_path / "run")


def stopping(seconds):
    return Stopping(
        reason=StopReason.ROUNDS, rounds=1, discarded={}, seconds=seconds, half_widths={}
    )


def test_seconds_of_all_operations_are_added(run):
    cases = [
        make_case("a", ops.STEP, seconds=1.5),
        make_case("a", ops.GATHER_SLOTS, seconds=2.0),
        make_case("b", ops.STEP, seconds=0.25),
    ]
    for variant in ("baseline", "fused"):  # they are of both together
        write_result(run, make_result(variant, cases))
    timing = read_timing(run.path)
    assert timing.run_id == "quick-20260102T030405Z"
    assert timing.seconds == {"a": 3.5, "b": 0.25}


def test_an_earlier_version_has_those_of_the_rounds(run):
    write_result(run, make_result(cases=[make_case("a", stopping=stopping(4.0))]))
    assert read_timing(run.path).seconds == {"a": 4.0}


def test_an_interrupted_run_has_those_of_its_journal(run):
    writer = ResultWriter(run, make_result(complete=False))
    writer.add(make_case("a", seconds=3.0))
    assert read_timing(run.path).seconds == {"a": 3.0}


@pytest.mark.parametrize("cases", [[], [make_case("a")]])
def test_a_run_without_times_is_refused(run, cases):
    write_result(run, make_result(cases=cases))
    with pytest.raises(UsageError, match=r"baseline\.json has no times"):
        read_timing(run.path)
    with pytest.raises(UsageError, match="expected the folder of"):
        read_timing(run.path / "gone")
