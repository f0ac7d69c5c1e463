"""The counters as Prometheus metrics, in a process whose metrics vLLM shows.

This is a process that has loaded `prometheus_client`, or has `PROMETHEUS_MULTIPROC_DIR`.

They are counters in its default registry. vLLM's `/metrics` shows this registry if tables and front
end are in one process, else the files in `PROMETHEUS_MULTIPROC_DIR`, to which `prometheus_client`
writes in every process. A thread updates them each second, so steps take no longer.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from bt_kernels.engines.plugin.counting import counters, host_times
from bt_kernels.engines.plugin.messages import describe, warn_once

_INTERVAL_S = 1.0

_PLAIN = {
    "tables": "Block tables of bt_kernels that were built",
    "steps": "Steps of the engine",
    "launches": "Kernels that were launched for block tables",
    "deferred": "Steps whose staged writes waited for the gather",
    "fused": "Steps that took one call",
    "prepared": "Steps whose whole batch was prepared, inputs included",
    "compared": "Steps that shadow mode compared",
    "differences": "Tables in which shadow mode found a difference",
    "failures": "Tables that were handed back to vLLM's class",
}
_LABELLED = {
    "settled": ("reader", "Waiting work that something else than a whole step finished"),
    "calls": ("operation", "Calls of operations"),
    "fallbacks": ("reason", "Batches that were not prepared by one launch"),
}
_HOST_SECONDS = "host_seconds"

_lock = threading.Lock()
_published: _Published | None = None


class _Published:
    """Metrics of this process, and the values that they have by now."""

    def __init__(self, client: Any) -> None:
        self.pid, self.stop = os.getpid(), threading.Event()
        self._client = client
        self._metrics = {
            name: client.Counter(f"bt_kernels_{name}", text) for name, text in _PLAIN.items()
        }
        for name, (label, text) in _LABELLED.items():
            self._metrics[name] = client.Counter(f"bt_kernels_{name}", text, [label])
        self._metrics[_HOST_SECONDS] = client.Counter(
            f"bt_kernels_{_HOST_SECONDS}", "Host time of measured steps, with BT_KERNELS_COUNTERS=1"
        )
        self._values: dict[tuple[str, str | None], float] = {}

    def update(self) -> None:
        """Add to each metric what was counted since the last time."""
        for name, label, value in _values():
            metric = self._metrics[name]
            more = value - self._values.get((name, label), 0)
            if more > 0:
                (metric if label is None else metric.labels(label)).inc(more)
            self._values[name, label] = value

    def update_for_ever(self) -> None:
        """Update until stopped, or until something fails."""
        try:
            while not self.stop.wait(_INTERVAL_S):
                self.update()
            self.update()
        except Exception as error:
            warn_once(f"Prometheus metrics are no longer updated: {describe(error)}")

    def unregister(self) -> None:
        """Take the metrics out of the registry."""
        for metric in self._metrics.values():
            self._client.REGISTRY.unregister(metric)


def publish() -> None:
    """Register the metrics once per process, if vLLM shows them; never raise."""
    global _published
    try:
        client = _client()
        if client is None:
            return
        with _lock:
            if _published is not None and _published.pid == os.getpid():
                return
            if _published is not None:  # from before a fork, which has no thread
                _published.unregister()
                _published = None
            _published = _Published(client)
        update = _published.update_for_ever
        threading.Thread(target=update, name="bt_kernels metrics", daemon=True).start()
    except Exception as error:
        warn_once(f"there are no Prometheus metrics: {describe(error)}")


def withdraw() -> None:
    """Unregister the metrics, and end their thread; never raise."""
    global _published
    try:
        with _lock:
            if _published is not None:
                _published.stop.set()
                _published.unregister()
                _published = None
    except Exception as error:
        warn_once(f"Prometheus metrics were not taken out: {describe(error)}")


def _client() -> Any:
    """Return `prometheus_client`, or `None` where nobody would see the metrics."""
    client = sys.modules.get("prometheus_client")
    if client is None and os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        try:
            client = importlib.import_module("prometheus_client")
        except ImportError:
            return None
    return client


def _values() -> Iterator[tuple[str, str | None, float]]:
    counted = counters()
    for name in _PLAIN:
        yield name, None, counted[name]
    for name in _LABELLED:
        for label, value in counted[name].items():
            yield name, label, value
    yield _HOST_SECONDS, None, host_times().total_ns / 1e9
