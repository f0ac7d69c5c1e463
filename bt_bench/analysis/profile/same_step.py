"""The conditions for comparing two profiles: the same step, on the same kind of GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bt_bench.analysis.statistics.samples import median
from bt_bench.base.errors import NotComparableError
from bt_bench.results import Counters, Timeline, Tracing

SPEED_CHANGED_SHARE = 0.1
"""Empty calls of two timelines may differ by this share of the shorter ones without a warning."""


def refuse_another_step(
    before: Counters | Timeline, after: Counters | Timeline, labels: tuple[str, str]
) -> None:
    """Refuse profiles that cannot be compared with each other.

    Args:
        before: the first profile.
        after: the second one, of the same kind.
        labels: their names in messages.

    Raises:
        NotComparableError: when they are of different GPUs, steps or conditions, or have no variant
            in common.
    """
    names = [variant.name for variant in after.variants]
    refuse_another_plan(before, _conditions(after), names, labels)


def refuse_another_plan(
    before: Counters | Timeline,
    planned: Mapping[str, str],
    names: Sequence[str],
    labels: tuple[str, str],
) -> None:
    """Refuse like `refuse_another_step`, before a profile is taken, by the plan for it.

    Args:
        before: the first profile.
        planned: of `plan_of`.
        names: of the variants that are to be profiled.
        labels: names of both in messages.

    Raises:
        NotComparableError: as `refuse_another_step`.
    """
    known = _conditions(before)
    for what, other in planned.items():
        if known[what] != other:
            raise NotComparableError(
                f"{what} is {known[what]} in {labels[0]} and {other} in {labels[1]}; profiles are "
                "compared only if it is the same"
            )
    if not any(before.variant(name) for name in names):
        raise NotComparableError(f"{labels[0]} and {labels[1]} have no variant in common")


def plan_of(operation: str, case: str, digest: str, step: int) -> dict[str, str]:
    """Return the facts of a step that must be equal, by their names in messages."""
    return {
        "the operation": operation,
        "the workload": f"{case} ({digest[:12]})",
        "the step": str(step),
    }


def other_speed(before: Timeline, after: Timeline) -> tuple[float, float] | None:
    """Return the times of the same empty CUDA calls in two timelines, in µs, if they differ.

    They run beside the steps, so they show whether the machine has become slower or faster. The
    result is `None` also where this is unknown: a timeline has none, or their calls differ in
    number.
    """
    times, counts = [], set()
    for timeline in (before, after):
        plain, traced = (timeline.empty_calls("query", tracing) for tracing in Tracing)
        if plain is None or traced is None or not plain.host_us:
            return None
        times.append(median(plain.host_us))
        counts.add(traced.records)
    if len(counts) > 1 or max(times) <= (1 + SPEED_CHANGED_SHARE) * min(times):
        return None
    return times[0], times[1]


def _conditions(profile: Counters | Timeline) -> dict[str, str]:
    """Return the facts of a profile that must be equal, by their names in messages."""
    conditions = plan_of(str(profile.operation), profile.case, profile.digest, profile.step)
    conditions["the GPU"] = ", ".join(gpu.name for gpu in profile.environment.gpus)
    if isinstance(profile, Counters):
        conditions["the L2 cache"] = profile.l2.value
    else:
        # Profilers name calls and operations differently, and torch's leaves some out.
        conditions["the profiler"] = profile.source.partition(" ")[0]
    return conditions
