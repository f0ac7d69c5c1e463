"""Names of metrics say what was measured, and are read back."""

from __future__ import annotations

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.base.names import DeviceKind, Operation
from bt_bench.results.run.metrics import COUNTED, DEVICE_TICK_US, metric_named, metric_of, sums_in
from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Method, Quantity, Series
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops

ALL = [
    Series(quantity=quantity, method=method, launch_path=path, load=load, l2=l2)
    for quantity in Quantity
    for method in Method
    for path in LaunchPath
    for load in Load
    for l2 in Cache
]


def test_names_are_read_back() -> None:
    for series in ALL:
        metric = metric_of(series)
        assert metric_named(metric.name) == metric


def test_plain_names_are_of_the_usual_conditions() -> None:
    for quantity in Quantity:
        assert metric_of(series_of(quantity)).name == quantity.value
    assert metric_named("gpu_us").tick == DEVICE_TICK_US
    assert metric_named("host_us").tick == 0
    assert metric_named("gpu_us/graph").series == Series(
        quantity=Quantity.GPU_US, method=Method.GRAPH_SLOPE, launch_path=LaunchPath.GRAPH
    )


def test_only_clocks_of_the_device_tick() -> None:
    """Both the profiler's and that of events; a graph slope has many replays for one tick."""
    ticks = {
        method: {metric_of(series).tick for series in ALL if series.method is method}
        for method in Method
    }
    assert ticks == {
        Method.HOST_CLOCK: {0.0},
        Method.EVENTS: {DEVICE_TICK_US},
        Method.PROFILER: {DEVICE_TICK_US},
        Method.GRAPH_SLOPE: {0.0},
    }


def test_counts_have_names_too() -> None:
    for name, metric in COUNTED.items():
        assert metric_named(name) is metric


def test_a_sum_is_of_its_terms() -> None:
    metric = metric_named("event_us/busy + stage_us")
    assert [term.name for term in metric.terms] == ["stage_us", "event_us/busy"]
    assert metric == metric_named(metric.name)
    assert (metric.name, metric.unit, metric.series) == ("stage_us+event_us/busy", "us", None)
    assert (metric.floor, metric.tick) == (0.2, DEVICE_TICK_US)
    assert not metric.is_primary(ops.STEP, "cuda")
    assert sums_in(["host_us", "a*", "host_us+stage_us", "stage_us+host_us"]) == [
        metric_named("host_us+stage_us")
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("host_ms", r"no metric 'host_ms'; did you mean 'host_us'\?"),
        ("", "no metric ''; expected one of host_us"),
        ("stage_us+host_ms", r"no metric 'host_ms'; did you mean 'host_us'\?"),
        ("stage_us+", "has an empty term; expected names of times"),
        ("stage_us+launches", "launches is counted; expected a sum of times"),
        ("stage_us+stage_us", "has a term twice; expected each term once"),
        ("gpu_us/clod", r"no metric 'gpu_us/clod': 'clod'; did you mean 'cold'\?"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        metric_named(name)


@pytest.mark.parametrize(
    ("operation", "device", "primary"),
    [
        (ops.STEP, "cuda", {"host_us", "gpu_us"}),
        (ops.APPLY, "cuda", {"host_us", "gpu_us"}),
        (ops.STAGE, "cuda", {"stage_us"}),
        (ops.STEP, "cpu", {"stage_us"}),
    ],
)
def test_few_metrics_are_primary(
    operation: Operation, device: DeviceKind, primary: set[str]
) -> None:
    found = {metric_of(each).name for each in ALL if metric_of(each).is_primary(operation, device)}
    assert found == primary
    assert all(metric.is_primary(operation, device) for metric in COUNTED.values())
