"""Several devices of one gate: each measures whole rounds, so the devices have to be alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from bt_bench.base.errors import NotComparableError, listed
from bt_bench.results import Environment, condition_texts, fallback_texts


def refuse_unlike(environments: Sequence[Environment]) -> None:
    """Refuse GPUs of several models: a change may be one thing on one, and another on the next.

    Raises:
        NotComparableError: naming the models.
    """
    models = list(dict.fromkeys(gpu.name for each in environments for gpu in each.gpus[:1]))
    if len(models) > 1:
        raise NotComparableError(
            f"--gpus names {listed(models)}: the rounds of a gate are judged together, and come "
            "from GPUs of one model; name fewer GPUs, or run a gate on each"
        )


def devices_facts(environments: Sequence[Environment], took: Collection[int]) -> Iterator[str]:
    """Yield a fact on the devices that took the rounds, if a gate has several.

    Args:
        environments: of all devices of the gate.
        took: numbers of those that took rounds; a lost device may have taken none.
    """
    if len(environments) == 1 or not took:
        return
    names = [environments[at].gpu_label or f"device {at + 1}" for at in sorted(took)]
    if len(names) == 1:
        yield f"All rounds were measured on {names[0]}: no other device of this gate took any."
    else:
        yield (
            f"The rounds were divided among {listed(names)}: each was measured on one of them, "
            "base, head and control in turns."
        )


def device_warnings(environment: Environment) -> tuple[str, ...]:
    """Return warnings about the process of a device, such as one without helpers in C."""
    return (*condition_texts(environment.conditions), *fallback_texts(environment.helpers))
