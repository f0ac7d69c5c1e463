"""Estimate how long a gate or a recording of its rounds will take, before it runs."""

from __future__ import annotations

import os

from bt_bench.base.names import kind_of
from bt_bench.runs.estimate import duration_text, estimate_gate_seconds
from bt_bench.runs.gate.capacity import workers_of
from bt_bench.runs.gate.sides import RoundsRequest
from bt_bench.runs.gate.wanted import round_plan


def expected_duration(request: RoundsRequest, fewest: int, most: int) -> str:
    """Return such as `about 2 to 5 minutes for 12 to 64 rounds, an estimate from the config`.

    Args:
        request: the process-rounds.
        fewest: after how many rounds it may end.
        most: how many there are at most.
    """
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    timed = {operation: metrics for operation, metrics in request.metrics.items() if metrics}
    series = [metric.series for metrics in timed.values() for metric in metrics]
    plan = round_plan(request.spec.plan, [each for each in series if each is not None], 0)
    spec = request.spec.model_copy(update={"operations": [*timed]})
    texts = [
        duration_text(
            estimate_gate_seconds(
                spec,
                plan,
                len(request.variants),
                kind_of(request.device),
                rounds,
                request.workers or workers_of(cores),
                cores,
            )
        )
        for rounds in dict.fromkeys((fewest, most))
    ]
    return f"about {_range(texts)} for {_range([str(fewest), str(most)])} rounds, an estimate"


def _range(texts: list[str]) -> str:
    """Return `2 to 5 minutes`; the unit comes once."""
    first, last = texts[0], texts[-1]
    if first == last:
        return first
    number, _, unit = first.partition(" ")
    return f"{number} to {last}" if unit == last.partition(" ")[2] else f"{first} to {last}"
