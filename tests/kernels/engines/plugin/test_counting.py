"""Launches, host times, and metrics for Prometheus."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, messages, metrics
from bt_kernels.engines.plugin.host_times import HostTimes


@pytest.fixture(autouse=True)
def _fresh():
    messages.forget()
    counting.reset()
    yield
    metrics.withdraw()
    counting.reset()


def test_quantiles_are_at_most_a_little_too_high():
    times, rng = HostTimes(), np.random.default_rng(0)
    durations = np.exp(rng.normal(10, 1, 5000)).astype(int)
    for duration in durations:
        times.add(int(duration))
    found = times.summary()
    assert found["steps"] == 5000
    assert found["mean"] == pytest.approx(durations.mean() / 1000, abs=0.01)
    assert found["max"] == pytest.approx(durations.max() / 1000, abs=0.01)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        exact = np.quantile(durations, share, method="inverted_cdf") / 1000
        assert exact - 0.01 <= found[name] <= exact * 1.045
    assert len(times._buckets) < 300


def test_a_single_step_and_none():
    times = HostTimes()
    assert times.summary() == {}
    times.add(0)
    assert times.summary() == {"steps": 1, "mean": 0, "p50": 0, "p99": 0, "max": 0}


def test_launches_are_of_all_tables_since_they_were_built(monkeypatch):
    monkeypatch.setattr(counting, "_PLACES", [])
    target, drafter = SimpleNamespace(launches=7), SimpleNamespace(launches=2)
    counting.count_launches(target)
    counting.count_launches(drafter)
    assert plugin.counters()["launches"] == 0
    target.launches, drafter.launches = 10, 7
    assert plugin.counters()["launches"] == 8
    counting.reset()
    assert plugin.counters()["launches"] == 0


class Registry(set):
    def unregister(self, metric):
        self.remove(metric)


class Metric:
    def __init__(self, registry, name, text, labels=()):
        if name in {other.name for other in registry}:
            raise ValueError(f"Duplicated timeseries: {name}")
        self.name, self.values = name, {}
        registry.add(self)

    def labels(self, label):
        return SimpleNamespace(inc=lambda more: self.inc(more, label))

    def inc(self, more, label=None):
        assert more > 0
        self.values[label] = self.values.get(label, 0) + more


class Client:
    """As much of `prometheus_client` as is used."""

    def __init__(self):
        self.REGISTRY = Registry()
        self.Counter = partial(Metric, self.REGISTRY)

    def values(self):
        return {metric.name: metric.values for metric in self.REGISTRY if metric.values}


@pytest.fixture
def client(monkeypatch):
    found = Client()
    monkeypatch.setitem(sys.modules, "prometheus_client", found)
    monkeypatch.setattr(metrics, "_INTERVAL_S", 3600)
    return found


def test_metrics_follow_the_counters(client):
    metrics.publish()
    metrics.publish()  # as for the tables of a drafter
    counts = counting.COUNTS
    counts.steps, counts.settled["num_blocks"] = 3, 2
    metrics._published.update()
    counts.steps, counts.calls["prepare_step"] = 5, 1
    counting.HOST_TIMES.add(2_000_000_000)
    metrics._published.update()
    assert client.values() == {
        "bt_kernels_steps": {None: 5},
        "bt_kernels_settled": {"num_blocks": 2},
        "bt_kernels_calls": {"prepare_step": 1},
        "bt_kernels_host_seconds": {None: 2.0},
    }
    metrics.withdraw()
    assert not client.REGISTRY


def test_what_c_counts_is_in_the_metrics_too(client, monkeypatch):
    in_c = SimpleNamespace(
        counts=lambda: (3, 2, 1),
        step_times=lambda: (1, 500_000_000, 9, {5: 1}),
        forget_counts=lambda: None,
    )
    monkeypatch.setattr(counting, "_IN_C", [in_c])
    counting.HOST_TIMES.add(2_000_000_000)
    metrics.publish()
    metrics._published.update()
    assert client.values() == {
        "bt_kernels_steps": {None: 3},
        "bt_kernels_deferred": {None: 2},
        "bt_kernels_fused": {None: 1},
        "bt_kernels_calls": {"prepare_step": 1},
        "bt_kernels_host_seconds": {None: 2.5},
    }
    metrics.withdraw()


def test_every_counter_is_a_metric():
    counted = set(plugin.counters()) - {"pid", "host_time_us"}
    assert counted == {*metrics._PLAIN, *metrics._LABELLED}


def test_after_a_fork_metrics_begin_anew(client, monkeypatch):
    metrics.publish()
    before = metrics._published
    monkeypatch.setattr(metrics.os, "getpid", lambda: 1)
    metrics.publish()
    assert metrics._published is not before
    assert len(client.REGISTRY) == len(before._metrics)
    before.stop.set()


def test_metrics_that_cannot_be_had_are_warned_of(client, caplog):
    client.Counter("bt_kernels_steps", "of somebody else")
    metrics.publish()
    (record,) = caplog.records
    assert "there are no Prometheus metrics: ValueError: Duplicated timeseries" in record.message
    metrics.withdraw()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_rank_without_the_client_imports_it_for_the_front_end(monkeypatch, tmp_path, is_there):
    """Where every process writes into a folder."""
    found = Client()

    def import_module(name):
        if not is_there:
            raise ModuleNotFoundError(name)
        return {"prometheus_client": found}[name]

    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(metrics.importlib, "import_module", import_module)
    monkeypatch.setattr(metrics, "_INTERVAL_S", 3600)
    metrics.publish()
    assert bool(found.REGISTRY) == is_there
    metrics.withdraw()


def test_without_the_client_nothing_is_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    metrics.publish()
    assert metrics._published is None
    assert "prometheus_client" not in sys.modules
