"""Several devices of one gate: each measures whole rounds, so the devices have to be alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from bt_bench.base.errors import NotComparableError, counted, listed
from bt_bench.results import Environment, condition_texts, fallback_texts
from bt_bench.runs.gate.crews import LostDevice


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
    names = [_name(environments, at) for at in sorted(took)]
    if len(names) == 1:
        yield f"All rounds were measured on {names[0]}: no other device of this gate took any."
    else:
        yield (
            f"The rounds were divided among {listed(names)}: each was measured on one of them, "
            "base, head and control in turns."
        )


def lost_warnings(
    environments: Sequence[Environment], lost: Mapping[int, LostDevice]
) -> Iterator[str]:
    """Yield a warning for each device that was given up while rounds were taken.

    Args:
        environments: of all devices of the gate.
        lost: those that were given up, by their numbers.
    """
    for at, device in lost.items():
        anew = f"{counted(device.rounds, 'round')} of it measured anew on another device"
        yield (
            f"{_name(environments, at)} was given up, with "
            f"{anew if device.rounds else 'no round to measure anew'}: {device.why}"
        )


def _name(environments: Sequence[Environment], at: int) -> str:
    return environments[at].gpu_label or f"device {at + 1}"


def device_warnings(environment: Environment) -> tuple[str, ...]:
    """Return warnings about the process of a device, such as one without helpers in C."""
    return (*condition_texts(environment.conditions), *fallback_texts(environment.helpers))
