"""Windows: the consecutive steps of a sequence that are replayed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from bt_bench.base.errors import UsageError
from bt_bench.results import Noun
from bt_bench.suites.block_tables.workloads.steps import Int64Array


class Window(Noun):
    """The steps of a sequence that are replayed."""

    name: str = Field(default="start", min_length=1, description="in tables; default: `at`")
    at: Literal["start", "middle", "busiest"] | Annotated[int, Field(ge=0)] = Field(
        default="start",
        description="first step: its number, or `start` (0), `middle`, or `busiest`: the window "
        "of this many steps in which the most tokens are computed",
    )
    steps: int = Field(default=64, ge=1, le=100_000, description="consecutive steps replayed")

    @model_validator(mode="before")
    @classmethod
    def _name_after_place(cls, data: Any) -> Any:
        if isinstance(data, dict) and "name" not in data and "at" in data:
            at = data["at"]
            return {"name": at if isinstance(at, str) else f"step{at}", **data}
        return data


def first_step(window: Window, tokens: Int64Array) -> int:
    """Locate the first step of a window in a sequence, given the tokens of each step.

    Raises:
        UsageError: if the window does not fit into the sequence.
    """
    start = known_start(window)
    if start is None and window.steps <= len(tokens):
        if window.at == "middle":
            return (len(tokens) - window.steps) // 2
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(tokens)))
        return int((before[window.steps :] - before[: -window.steps]).argmax())
    if start is None or start + window.steps > len(tokens):
        raise beyond_the_end(window, start or 0, len(tokens))
    return start


def known_start(window: Window) -> int | None:
    """Return the first step of a window; `None` if it depends on the sequence."""
    if window.at == "start":
        return 0
    return window.at if isinstance(window.at, int) else None


def beyond_the_end(window: Window, start: int, num_steps: int) -> UsageError:
    """Return the error for a window that a sequence of so many steps does not have."""
    return UsageError(
        f"window {window.name!r} needs {window.steps} steps from step {start}, which is "
        f"{start + window.steps}, but the sequence has {num_steps}; choose an earlier or a shorter "
        "window"
    )
