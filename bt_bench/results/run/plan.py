"""The plan of a run: the extent, the conditions and the limits of its measurements."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from bt_bench.base.names import Operation as Operation
from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Noun


def _including(first: StrEnum) -> AfterValidator:
    """Return a validator that refuses lists without `first`, the condition to compare with."""

    def check(values: list[Any], info: ValidationInfo) -> list[Any]:
        if first not in values:
            raise PydanticCustomError(
                "incomplete",
                "{field} lacks '{first}', which all others are compared with; add it",
                {"field": info.field_name, "first": first.value},
            )
        return values

    return AfterValidator(check)


class Plan(Noun):
    """How a sweep checks and measures; the `plan:` of a config."""

    rounds: int = Field(default=4000, ge=1, le=100_000, description="timed rounds, at most")
    min_rounds: int = Field(
        default=48, ge=1, le=100_000, description="timed rounds before a case may stop early"
    )
    precision_percent: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="half-width of the 95 % intervals of `host_us` and `step_us` (without a GPU "
        "`stage_us`) at which a case stops; 0: never early",
    )
    case_seconds: float = Field(
        default=20.0, gt=0, le=86_400, description="time for the rounds of a case, at most"
    )
    warmup_rounds: int = Field(
        default=3, ge=0, le=10_000, description="untimed replays of each instance first"
    )
    instances: int = Field(
        default=8,
        ge=1,
        le=100,
        description="copies of every variant's tensors, which the rounds take in turn",
    )
    launch_paths: Annotated[list[LaunchPath], _including(LaunchPath.JIT)] = Field(
        default=[LaunchPath.JIT, LaunchPath.COMPILED, LaunchPath.GRAPH],
        min_length=1,
        description="ways to launch, of those that a variant supports",
    )
    loads: Annotated[list[Load], _including(Load.IDLE)] = Field(
        default=[Load.IDLE, Load.BUSY], min_length=1, description="load of the GPU meanwhile"
    )
    l2: Annotated[list[Cache], _including(Cache.HOT)] = Field(
        default=[Cache.HOT, Cache.COLD], min_length=1, description="state of the L2 cache"
    )
    control: bool = Field(default=True, description="measure an unchanged copy of the first arm")
    profile_rounds: int = Field(
        default=24,
        ge=0,
        le=1_000,
        description="replays under the profiler, per condition; 0: nothing is profiled",
    )
    graph_rounds: int = Field(default=48, ge=1, le=1_000, description="rounds of captured graphs")
    check_rounds: int = Field(
        default=1, ge=1, le=1_000, description="replays against the reference before timing"
    )
    hang_seconds: float = Field(
        default=120.0, gt=0, le=86_400, description="time for one call of a variant, at most"
    )
    seed: int = Field(default=0, ge=0, description="of the order of arms and the poison")
