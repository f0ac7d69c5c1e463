"""The arms and quantities of a comparison with vLLM, judged as `bt-bench compare` does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bt_bench.analysis import (
    Criteria,
    Judgement,
    Matchup,
    Side,
    judge,
)
from bt_bench.results import (
    Metric,
    VariantResult,
    metric_named,
)
from bt_bench.suites.block_tables.vllm.source import is_opponent

HOST_STAGE, DEVICE, TO_SYNC = "host + stage", "device", "stage to synchronize"
# Launched by Triton's call, since all arms take part in its rounds; steps that carry writes are
# launched their own way.
METRICS = {
    HOST_STAGE: metric_named("host_us+stage_us"),
    DEVICE: metric_named("gpu_us"),
    TO_SYNC: metric_named("stage_us+step_us"),
}

OLD, NEW = "vllm_0.16.0", "vllm_0.33.0"
TITLES = {OLD: "vLLM 0.16.0", NEW: "vLLM 0.33.0"}
ONE_LAUNCH = "one_launch"
EACH = "one_launch_each"  # one_launch, with one staging call per request


@dataclass(frozen=True)
class Figure:
    """A figure, the ends of its interval if it has one, and its number of samples."""

    value: float
    low: float | None
    high: float | None
    count: int


def judge_sides(base: Side, others: Sequence[Side], metrics: Iterable[Metric]) -> list[Judgement]:
    """Judge others against a base as `bt-bench compare` does, in the metrics that were measured.

    If nothing in a case can be judged, the case has a single judgement, with metric `WHOLE_CASE`.

    Args:
        base: the side that all others are compared with.
        others: sides of the same run; without any there is no judgement.
        metrics: sums and series.
    """
    compared = [case for side in (base, *others) for case in side.result.cases]
    names = [
        metric.name
        for metric in metrics
        if any(case.measured(metric) is not None for case in compared)
    ]
    if not names or not others:
        return []
    criteria = Criteria(metrics=names, allow_partial=True)
    return list(judge([Matchup(base, other) for other in others], criteria).judgements)


def factor_of(found: Judgement | None) -> Figure | None:
    """Return the base's time over the other's, with its interval; `None` if unknown."""
    if found is None or found.evidence is None:
        return None
    if not (found.ratio and found.low and found.high):
        return None
    return Figure(1 / found.ratio, 1 / found.high, 1 / found.low, found.evidence.observations)


def role_of(result: VariantResult) -> str:
    """Return the variant's name; an opponent's includes its release, even with a single source."""
    stated = re.fullmatch(r"BlockTables of vLLM (\S+) itself", result.variant.summary)
    if is_opponent(result.variant.name) and stated:
        return f"vllm_{stated[1]}"
    return result.variant.name
