"""A thousand steps of each trace, exact: sliding windows, seven groups of unequal widths."""

from __future__ import annotations

import pytest
from support.variants import SHIPPED, classes, failures

from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import TraceParameters, Window
from bt_kernels.layout import SLIDING_WINDOW


def windowed(trace, steps, **changes):
    """A window of a trace, for groups some of which have a sliding window."""
    parameters = {
        "workload": "trace",
        "trace": trace,
        "block_size": [16, 16, 32, 64, 128, 544, 262_144],
        "sliding_window": [0, 1023, 127, 4095, 0, 511, 0],
        "max_num_reqs": 64,
        "max_num_batched_tokens": 1024,
        "max_model_len": 16_384,
        "rate": 8.0,
        "window": Window(at=40, steps=steps),
    } | changes
    workload = build_workload(TraceParameters(**parameters))
    assert len(set(workload.layout.widths)) > 5
    assert SLIDING_WINDOW in workload.features
    return workload


@pytest.mark.parametrize("steps", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_few_steps(steps, device):
    workload = windowed("azure_conv", steps, max_num_reqs=3, max_num_batched_tokens=128)
    assert failures(classes(SHIPPED), workload, [ops.STEP], device) == {}


@pytest.mark.gpu
@pytest.mark.parametrize("trace", ["azure_conv", "azure_code"])
def test_a_thousand_steps(trace, device):
    workload = windowed(trace, 1000)
    operations = [ops.STEP, ops.GATHER_SLOTS]
    assert failures(classes(SHIPPED), workload, operations, device) == {}
