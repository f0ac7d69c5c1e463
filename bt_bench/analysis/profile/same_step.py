"""Two profiles can be compared if they are of the same step, on the same kind of GPU."""

from __future__ import annotations

from bt_bench.errors import NotComparableError
from bt_bench.results import Counters, Timeline


def refuse_another_step(
    before: Counters | Timeline, after: Counters | Timeline, labels: tuple[str, str]
) -> None:
    """Refuses profiles that say nothing about each other.

    Args:
        before: the first profile.
        after: the second one, of the same kind.
        labels: what messages call them.

    Raises:
        NotComparableError: when they are of different GPUs, steps or conditions, or have no variant
            in common.
    """
    first, second = _conditions(before), _conditions(after)
    for what, value in first.items():
        other = second[what]
        if value != other:
            raise NotComparableError(
                f"{what} is {value} in {labels[0]} and {other} in {labels[1]}; profiles are "
                "compared only if it is the same"
            )
    if not any(before.variant(variant.name) for variant in after.variants):
        raise NotComparableError(f"{labels[0]} and {labels[1]} have no variant in common")


def _conditions(profile: Counters | Timeline) -> dict[str, str]:
    """What has to be the same, by what messages call it."""
    conditions = {
        "the GPU": ", ".join(gpu.name for gpu in profile.environment.gpus),
        "the operation": str(profile.operation),
        "the workload": f"{profile.case} ({profile.digest[:12]})",
        "the step": str(profile.step),
    }
    if isinstance(profile, Counters):
        conditions["the L2 cache"] = profile.l2.value
    return conditions
