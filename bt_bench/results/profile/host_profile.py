"""The data types of a host profile: the Python and C calls of one step, as a tree.

All times are in µs and per step, without the overhead of the handler that recorded the calls.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bt_bench.results.run.nouns import Noun

Duration = Annotated[float, Field(ge=0)]


class HostFrame(Noun):
    """A function at one place in the tree of calls.

    `self_us` is the time in the function without its children, the median over repetitions;
    `self_low_us` and `self_high_us` are the 10th and the 90th percentile. `total_us` is the median
    with all children. Work inside a C function is not broken down, but is part of its time.

    `name` is the qualified name. `file` is relative to the root that it was installed or imported
    from, and `line` is the first line of the function; both are `None` for C. `calls` is the median
    per step, and `calls_vary` is set if repetitions differ in it.
    """

    name: str
    kind: Literal["python", "c"]
    file: str | None = None
    line: int | None = Field(default=None, ge=0)
    calls: int = Field(ge=1)
    calls_vary: bool = False
    self_us: Duration
    self_low_us: Duration
    self_high_us: Duration
    total_us: Duration
    children: list[HostFrame] = []


class HandlerCost(Noun):
    """The overhead of the handler per call.

    `within_us` lies between the two events of the call, and so in the called function's time;
    `around_us` lies in the caller's.
    """

    within_us: Duration
    around_us: Duration


class HostProfile(Noun):
    """A breakdown of the host's time of one step.

    `plain_us` is the median time until the step's call returned, measured without the handler in
    the same rounds. `repetitions` counts traced repetitions with the same calls, `left_out` those
    with other ones. `frames` are the outermost functions of the step's call, mostly a single one.
    """

    plain_us: Duration
    repetitions: int = Field(ge=1)
    left_out: int = Field(default=0, ge=0)
    python_call: HandlerCost
    c_call: HandlerCost
    frames: list[HostFrame] = []

    @property
    def explained_us(self) -> float:
        """Time of all frames; it exceeds `plain_us` if too little overhead was subtracted."""
        return sum(_whole(frame) for frame in self.frames)

    @property
    def unexplained_us(self) -> float:
        """The part of `plain_us` outside of all frames; negative if they exceed it."""
        return self.plain_us - self.explained_us

    @property
    def exceeds(self) -> bool:
        """Return whether the frames take longer than the step, visibly in two decimals."""
        return self.unexplained_us < -0.005

    @property
    def whole_us(self) -> float:
        """The whole that shares refer to: the step, or all frames if they exceed it."""
        return max(self.plain_us, self.explained_us)


def _whole(frame: HostFrame) -> float:
    return frame.self_us + sum(map(_whole, frame.children))
