"""The metrics that a gate takes of each operation, and a plan that takes only these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bt_bench.base.errors import UsageError
from bt_bench.base.names import DeviceKind
from bt_bench.protocol import Operation
from bt_bench.results import (
    COUNTED,
    Cache,
    LaunchPath,
    Load,
    Method,
    Metric,
    Plan,
    Quantity,
    Series,
    metric_of,
    select,
    series_of,
    sums_in,
)

# On H200s half of a ratio's noise or more is white within a process: more rounds reduce it as more
# processes do, but processes take seconds to set up. The rest comes from the copies of the code.
MAX_ROUNDS = 150
MAX_ROUNDS_FOR_STAGING = 126  # which the interpreter may have to run
# The place of its buffers in GPU memory moves the device time of a step by 2 to 3 %, for as long
# as they live.
MAX_INSTANCES = 8
MAX_INSTANCES_FOR_STAGING = 2  # which runs on the host alone
MAX_WARMUPS = 1  # before the last process is ready; each process warms up again when its turn comes
MAX_PROFILED = 12  # one or two passes for each instance
MAX_REPLAYED = 24
MAX_SECONDS_OF_UNIT = 2.0

_PROFILED = [each for each in Quantity if each.traits.method is Method.PROFILER]
_BY_CALL = [each for each in Quantity if each not in (*_PROFILED, Quantity.STAGE_US)]


LAUNCHES = COUNTED["launches"]


def offered(operation: Operation, device: DeviceKind) -> list[Metric]:
    """Return all metrics that a gate can take of an operation.

    Without a GPU only staging can be timed; launches are counted, which is exact.
    """
    timed = [metric_of(series) for series in _timed(operation)]
    if device == "cuda":
        return timed
    return [*(timed if operation.traits.on_host else ()), LAUNCHES]


def _timed(operation: Operation) -> list[Series]:
    """Return all series that can be timed of an operation, on the host or on a GPU."""
    found = [series_of(Quantity.STAGE_US)] if operation.traits.stages else []
    if operation.traits.on_host:
        return found
    for path in (LaunchPath.JIT, LaunchPath.COMPILED, LaunchPath.DIRECT):
        found += [series_of(quantity, launch_path=path) for quantity in _BY_CALL]
    found += [series_of(quantity) for quantity in _PROFILED]
    for l2 in Cache:
        of_device = [each for each in _PROFILED if each is not Quantity.LAST_US]
        busy = (Quantity.HOST_US, Quantity.EVENT_US, *of_device)
        found += [series_of(quantity, load=Load.BUSY, l2=l2) for quantity in busy]
    graph = LaunchPath.GRAPH
    for quantity in (Quantity.HOST_US, Quantity.STEP_US, Quantity.EVENT_US):
        found.append(series_of(quantity, launch_path=graph))
    return [*found, series_of(Quantity.GPU_US, launch_path=graph, method=Method.GRAPH_SLOPE)]


def choose_metrics(
    patterns: Sequence[str], operations: Iterable[Operation], device: DeviceKind
) -> dict[Operation, tuple[Metric, ...]]:
    """Choose the metrics that a gate takes, by operation.

    Args:
        patterns: names or patterns; without any, the primary metrics of each operation.
        operations: the operations to time.
        device: the device to time them on.

    Raises:
        UsageError: for a pattern that no operation has a metric for, and for sums of metrics.
    """
    if sums := sums_in(patterns):
        raise UsageError(
            f"--metric {sums[0].name}: a gate of two revisions takes no sums; expected names of "
            "metrics, or use `bt-bench compare` on results"
        )
    by_operation = {operation: offered(operation, device) for operation in operations}
    names = list(dict.fromkeys(metric.name for found in by_operation.values() for metric in found))
    chosen = select(names, list(patterns))
    wanted = {
        operation: tuple(
            metric
            for metric in found
            if (metric.name in chosen if patterns else metric.is_primary(operation, device))
        )
        for operation, found in by_operation.items()
    }
    if not any(wanted.values()):
        raise UsageError("no metric is left to compare; expected some of " + ", ".join(names))
    return wanted


def round_plan(plan: Plan, wanted: Iterable[Series], seed: int) -> Plan:
    """Shorten a config's plan: only the wanted conditions, and few rounds.

    Args:
        plan: the config's; numbers that are already smaller stay.
        wanted: all series that a process-round takes.
        seed: seed of the process-round.
    """
    series = list(wanted)
    on_host = all(one.quantity is Quantity.STAGE_US for one in series)
    instances = MAX_INSTANCES_FOR_STAGING if on_host else MAX_INSTANCES
    rounds = MAX_ROUNDS_FOR_STAGING if on_host else MAX_ROUNDS
    changes = {
        "rounds": min(plan.rounds, rounds),
        "precision_percent": 0.0,
        "case_seconds": min(plan.case_seconds, MAX_SECONDS_OF_UNIT),
        "warmup_rounds": min(plan.warmup_rounds, MAX_WARMUPS),
        "instances": min(plan.instances, instances),
        "profile_rounds": min(plan.profile_rounds, MAX_PROFILED),
        "graph_rounds": min(plan.graph_rounds, MAX_REPLAYED),
        "launch_paths": _with(LaunchPath.JIT, [one.launch_path for one in series]),
        "loads": _with(Load.IDLE, [one.load for one in series]),
        "l2": [l2 for l2 in Cache if l2 is Cache.HOT or any(one.l2 is l2 for one in series)],
        "control": False,
        "seed": seed,
    }
    return plan.model_copy(update=changes)


def _with(first: object, others: Sequence[object]) -> list[object]:
    return list(dict.fromkeys([first, *others]))
