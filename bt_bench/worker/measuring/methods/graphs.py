"""Captured graphs: a step's cost without launches from Python, and device time by a slope.

A captured call reads data that the host published before the capture. Every step of every round is
therefore captured again, and replayed before anything else is published.
"""

from __future__ import annotations

import random
from typing import Any

from bt_bench.results import LaunchPath, Method, Plan, Quantity, RoundKind
from bt_bench.worker.checking.check import Spoil
from bt_bench.worker.measuring.launch_paths import supports, use
from bt_bench.worker.measuring.ports import Call, Clock, DevicePort
from bt_bench.worker.measuring.probes import eager_series
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.regions import GraphSlope, between_events, captured, host_times
from bt_bench.worker.measuring.rounds import ReplayWindow, Turns
from bt_bench.worker.measuring.timing import rewind
from bt_bench.worker.tasks.arm import Arm

REPLAYS = 3  # per capture; their median counts. A capture costs far more than a replay.
FEWEST_ROUNDS = 2
SHARE_OF_TIME = 0.3  # of `case_seconds`, for cases whose windows are long

GRAPH = LaunchPath.GRAPH
SERIES = (
    *eager_series([Quantity.HOST_US, Quantity.STEP_US], Method.HOST_CLOCK, GRAPH),
    *eager_series([Quantity.EVENT_US], Method.EVENTS, GRAPH),
    *eager_series([Quantity.GPU_US], Method.GRAPH_SLOPE, GRAPH),
)


def measure_graphs(
    window: ReplayWindow,
    plan: Plan,
    clock: Clock,
    device: DevicePort,
    records: Records,
) -> None:
    """Add the series of captured graphs to the records of the arms that support capture.

    Raises:
        ArmFailedError: when a variant raises.
    """
    started_ns = clock.now_ns()
    records.watch.begin()
    turns = Turns(window, random.Random(plan.seed + 1))
    done = 0
    while done < plan.graph_rounds:
        for turn in turns.next_pair():
            arms = [arm for arm in turn.arms if supports(arm, GRAPH, window.operation)]
            seconds = (clock.now_ns() - started_ns) / 1e9
            enough = done >= FEWEST_ROUNDS and seconds > SHARE_OF_TIME * plan.case_seconds
            if not arms or enough or done == plan.graph_rounds:
                return
            rows = _round(window, arms, clock, device)
            index = records.end_round(RoundKind.REPLAYED, turn, seconds)
            done += 1
            for name, of_steps in rows.items():
                for series, column in zip(SERIES, zip(*of_steps, strict=True), strict=True):
                    if index is not None:
                        records.books[name].add_row(index, series, list(column))


def _round(
    window: ReplayWindow, arms: list[Arm], clock: Clock, device: DevicePort
) -> dict[str, list[tuple[float, ...]]]:
    rows: dict[str, list[tuple[float, ...]]] = {arm.name: [] for arm in arms}
    rewind(arms)
    for step in window.steps:
        for arm in arms:
            with arm.guarded():
                rows[arm.name].append(_sample(arm, window, step, clock, device))
    return rows


def _sample(
    arm: Arm, window: ReplayWindow, step: Any, clock: Clock, device: DevicePort
) -> tuple[float, ...]:
    """Return host time and step time of a replay, its event time, and the slope; all in µs."""
    use(arm, GRAPH)
    call = arm.ready(window.operation, step)
    once = captured(device, call, 1)
    slope = GraphSlope(device, call)
    host_us, step_us = host_times(clock, once.replay, device.synchronize)
    between_events(device, once.replay)
    device.synchronize()
    event_us = device.elapsed_us()
    slope_us = slope.sample_us(REPLAYS)
    arm.driver.replayed(call)
    return (host_us, step_us, event_us, slope_us)


def run_captured(device: DevicePort, call: Call, spoil: Spoil) -> object:
    """Make a call by capturing and replaying it, and return the captured call's result.

    Each replay must do all of the work, so the last one has to restore the spoilt result.
    """
    returned: list[object] = []
    graph = captured(device, lambda: returned.append(call()), 1)
    spoil(returned[0])
    between_events(device, graph.replay)
    device.synchronize()
    return returned[0]
