"""An explained step in sentences."""

from __future__ import annotations

from bt_bench.analysis.profile import Explained, RowKind, read_step
from bt_bench.base import ABSENT, format_percent

LEAST_US = 0.05  # smallest time that is mentioned: less is printed as 0.0


def sentences(step: Explained) -> tuple[str, ...]:
    """Return the step in sentences: the binding side, the host, the GPU, and the floor."""
    if not step.launches and not step.busy_us:
        return (f"The step takes {us(step.step_us)}, all of it on the host: it launches nothing.",)
    return (_binds(step), _of_host(step), _of_device(step), _of_floor(step))


def _binds(step: Explained) -> str:
    returned = f"the step takes {us(step.step_us)}, its call returns after {us(step.host_us)}"
    if read_step(step).binds == "host":
        return f"The host binds: {returned}, and the GPU waits for the launches."
    operations = sum(row.what is RowKind.OPERATION for row in step.rows)
    waited = "last operation waits for those before it" if operations > 1 else "work outlasts that"
    return f"The GPU binds: {returned}, and the GPU's {waited}."


def _of_host(step: Explained) -> str:
    """Return a sentence on the overhead of launches, and the host's own code."""
    others = (
        f", and other calls of CUDA take {us(step.other_calls_us)}"
        if step.other_calls_us >= LEAST_US
        else ""
    )
    return (
        f"The launch overhead is {us(step.launch_us)} ({percent(step.launch_us, step.step_us)} "
        f"of the step) in {step.launches} launch{'es' * (step.launches != 1)}; the host's own code "
        f"takes {us(step.code_us)}{others}."
    )


def _of_device(step: Explained) -> str:
    """Return a sentence on the GPU's work, its hidden part, and the time after the return."""
    reading = read_step(step)
    hidden = f"{us(step.hidden_us)} of that"
    if step.hidden_us < LEAST_US:
        hidden = "none of it"
    elif step.busy_us - step.hidden_us < LEAST_US:
        hidden = "all of it"
    idle = (
        f", and is idle for {us(reading.gaps_us)} in between" if reading.gaps_us >= LEAST_US else ""
    )
    tail = (
        f", {us(step.tail_us)} of them when the GPU is done"
        if LEAST_US <= step.tail_us < reading.after_us
        else ""
    )
    return (
        f"The GPU works for {us(step.busy_us)}, {hidden} hidden behind the host{idle}; "
        f"{us(reading.after_us)} pass after the return{tail}."
    )


def _of_floor(step: Explained) -> str:
    """Return a sentence on the least time of a step that launches something."""
    spare_us = read_step(step).spare_us
    floor = f"The floor, an empty launch and the wait for it, is {us(step.floor_us)}"
    if spare_us < LEAST_US:
        return f"{floor}: the step takes no longer than that."
    return f"{floor}: {us(spare_us)} of the step could be saved at most."


def us(value: float) -> str:
    """Return a time with its unit."""
    return f"{unsigned_zero(value, 1)} µs"


def percent(part: float, whole: float) -> str:
    """Return a part as a share of the whole, in percent."""
    return f"{format_percent(100 * part / whole)} %" if whole > 0 else ABSENT


def unsigned_zero(value: float, digits: int = 2) -> str:
    """Return a number as text, never as -0.00."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def residual_error(step: Explained) -> str:
    """Return half the 95 % interval of the residual, to stand after it; empty if unknown."""
    return "" if step.error_us is None else f"± {step.error_us:.2f}"
