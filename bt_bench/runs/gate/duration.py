"""Estimated duration of a gate or of a recording of its rounds, before it runs."""

from __future__ import annotations

from bt_bench.base.limits import cores_here
from bt_bench.base.names import kind_of
from bt_bench.results import Method
from bt_bench.runs.estimate import duration_text, estimate_gate_seconds
from bt_bench.runs.gate.capacity import workers_of
from bt_bench.runs.gate.sides import RoundsRequest

_OF_DEVICES = {Method.PROFILER, Method.GRAPH_SLOPE}  # passes that need no turn at timing the host


def expected_duration(request: RoundsRequest, fewest: int, most: int) -> str:
    """Return a text such as `about 2 to 5 minutes for 12 to 64 rounds, an estimate`.

    Args:
        request: the process-rounds.
        fewest: number of rounds after which it may end.
        most: the most rounds.
    """
    cores = cores_here()
    timed = [operation for operation, metrics in request.metrics.items() if metrics]
    spec = request.spec.model_copy(update={"operations": timed})
    methods = {each.series.method for of in request.metrics.values() for each in of if each.series}
    texts = [
        duration_text(
            estimate_gate_seconds(
                spec,
                request.plan(),
                len(request.variants),
                kind_of(request.device),
                rounds,
                request.workers or max(len(request.devices), workers_of(cores)),
                cores,
                len(request.devices),
                times_host=bool(methods - _OF_DEVICES),
            )
        )
        for rounds in dict.fromkeys((fewest, most))
    ]
    return f"about {_range(texts)} for {_range([str(fewest), str(most)])} rounds, an estimate"


def _range(texts: list[str]) -> str:
    """Return a range such as `2 to 5 minutes`; a common unit comes once."""
    first, last = texts[0], texts[-1]
    if first == last:
        return first
    number, _, unit = first.partition(" ")
    return f"{number} to {last}" if unit == last.partition(" ")[2] else f"{first} to {last}"
