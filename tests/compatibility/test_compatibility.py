"""Files of users that were written for 4254f69, before the rooms were made: they still load."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.variants import classes, failures

from bt_bench.analysis import parse_given
from bt_bench.results import read_compact, read_result
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import conformance_workloads

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["chunked_gather", "all_modules"])
def test_a_variant_file_still_passes(name, device):
    workload = conformance_workloads(0)["corners"]
    found = classes([name], [HERE / "variants"])
    operations = [ops.STEP, ops.GATHER_SLOTS]
    assert failures(found, workload, operations, device) == {}


def test_a_result_file_is_still_read():
    path = HERE / "result_4254f69.json"
    result = read_result(path)
    assert (result.variant.name, result.complete, len(result.cases)) == ("fused", True, 1)
    assert read_compact(str(path)).header.run_id == result.run_id
    assert parse_given(str(path)).path == str(path)
