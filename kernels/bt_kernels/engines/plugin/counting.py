"""Counters of the plugin, one set per process."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from bt_kernels.engines.plugin import settings
from bt_kernels.engines.plugin.host_times import HostTimes


@dataclass
class Counts:
    """Counts since the process began, over all tables in it.

    Args:
        tables: tables of ours that were built for the engine.
        steps: calls of `apply_staged_writes`, one in each step of an engine.
        fused: steps whose apply, gather and slots became one call, of `prepare_step` or `prepare`.
        deferred: calls of `apply_staged_writes` that waited for the gather.
        prepared: steps whose whole batch ours prepared, inputs included.
        compared: steps that shadow mode compared.
        differences: tables in which shadow mode found a difference.
        failures: tables that were handed back to vLLM's class after a failure, and runners that
            prepare their batches again after one.
        settled: deferred work that something else than `prepare_step` finished, by reader.
        calls: calls of our operations, each of them usually one launch, by operation.
        fallbacks: batches that ours could not prepare, or not by one launch, by reason.
        pid: the process.

    `counters` adds launches and host time, and the calls that C made; they are counted elsewhere.
    """

    tables: int = 0
    steps: int = 0
    fused: int = 0
    deferred: int = 0
    prepared: int = 0
    compared: int = 0
    differences: int = 0
    failures: int = 0
    settled: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    pid: int = field(default_factory=os.getpid)


COUNTS = Counts()

HOST_TIMES = HostTimes()
"""Of steps that Python measured; see `host_times`."""

_PRINTING: set[int] = set()
_PLACES: list[tuple[_Place, int]] = []
_IN_C: list[_Launcher] = []


class _Place(Protocol):
    """A `bt_kernels.launches.Place`, whose module is not imported here."""

    @property
    def launches(self) -> int: ...


class _Launcher(Protocol):
    """`bt_kernels.native.Launcher`, likewise."""

    def counts(self) -> tuple[int, int, int]: ...
    def step_times(self) -> tuple[int, int, int, dict[int, int]]: ...
    def forget_counts(self) -> None: ...


def count_in_c(launcher: _Launcher) -> None:
    """Count the calls that C makes, too, from the first tables on."""
    if launcher not in _IN_C:
        launcher.forget_counts()
        _IN_C.append(launcher)


def count_launches(place: _Place) -> None:
    """Count the launches of tables from now on, by the place that their kernels run in."""
    _PLACES.append((place, place.launches))


def counters() -> dict[str, Any]:
    """Return a copy of the plugin's counters in this process.

    Beside the fields of `Counts` it has `launches`, the kernels that were launched, and
    `host_time_us`, as `HostTimes.summary` returns it.
    """
    steps = deferred = fused = 0
    for launcher in _IN_C:
        steps, deferred, fused = launcher.counts()
    return vars(COUNTS) | {
        "steps": COUNTS.steps + steps,
        "deferred": COUNTS.deferred + deferred,
        "fused": COUNTS.fused + fused,
        "settled": dict(COUNTS.settled),
        "fallbacks": dict(COUNTS.fallbacks),
        "calls": dict(COUNTS.calls + Counter(prepare_step=fused)),
        "launches": sum(place.launches - before for place, before in _PLACES),
        "host_time_us": host_times().summary(),
    }


def host_times() -> HostTimes:
    """Return the times of all measured steps of this process, whoever measured them."""
    times = HostTimes()
    times.merge(HOST_TIMES)
    for launcher in _IN_C:
        times.add_all(*launcher.step_times())
    return times


def reset() -> None:
    """Begin to count anew, as a forked process does."""
    vars(COUNTS).update(vars(Counts()))
    HOST_TIMES.clear()
    _PLACES[:] = [(place, place.launches) for place, _ in _PLACES]
    for launcher in _IN_C:
        launcher.forget_counts()


def print_at_exit() -> None:
    """Have this process print its counters when it ends, if `BT_KERNELS_COUNTERS` asks for it."""
    if not settings.prints_counters() or os.getpid() in _PRINTING:
        return
    _PRINTING.add(os.getpid())
    # Not `atexit`, whose functions a process of multiprocessing does not call.
    from multiprocessing.util import Finalize

    Finalize(None, _print, exitpriority=0)


def _print() -> None:
    sys.stderr.write(f"bt_kernels counters: {counters()}\n")
    sys.stderr.flush()


os.register_at_fork(after_in_child=reset)
