"""What the engine says of the two runs of `headline.py`: times, sums of times, and factors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bt_bench.analysis import (
    Criteria,
    Judgement,
    Matchup,
    Side,
    judge,
    median,
    median_interval,
)
from bt_bench.results import (
    CaseResult,
    CompactResult,
    LaunchPath,
    Metric,
    Status,
    Taken,
    VariantResult,
    compacted,
    metric_named,
)
from bt_bench.suites.block_tables.vllm.source import is_opponent

JIT, COMPILED, DIRECT = LaunchPath.JIT, LaunchPath.COMPILED, LaunchPath.DIRECT

STAGE, HOST, HOST_STAGE = "stage", "host", "host + stage"
DEVICE, TO_SYNC = "device", "stage to synchronize"
# Staging launches nothing, and the profiler takes Triton's call alone: they have no launch path.
COLUMNS = {
    STAGE: "stage_us",
    HOST: "host_us{path}",
    HOST_STAGE: "host_us{path}+stage_us",
    DEVICE: "gpu_us",
    TO_SYNC: "stage_us+step_us{path}",
}

OLD, NEW = "vllm_0.16.0", "vllm_0.33.0"
ONE_LAUNCH, GRAPH = "one_launch", "one_launch_graph"
EACH = "one_launch_each"  # one_launch, with a call per request to stage

MOST_TOKENS_PER_REQUEST = 2  # of a decode-heavy step, on average


@dataclass(frozen=True)
class Figure:
    """A figure, the ends of its interval where it has one, and of how many samples it is."""

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Run:
    """The results of a run, by what they are of: vLLM's by their release."""

    results: Mapping[str, VariantResult]

    @classmethod
    def of(cls, results: Sequence[VariantResult]) -> Run:
        """Those of a run's folder."""
        return cls({role_of(result): result for result in results})

    def case(self, variant: str, name: str) -> CaseResult | None:
        """A case that is `ok`; `None` for any other."""
        result = self.results.get(variant)
        for case in result.cases if result else ():
            if case.case == name and case.status is Status.OK:
                return case
        return None

    def taken(self, variant: str, name: str, what: str, path: LaunchPath = JIT) -> Taken | None:
        """The samples of a column of `COLUMNS`.

        Args:
            variant: the arm.
            name: of the case.
            what: the column.
            path: by default the one by which arms are compared, whose rounds all of them took part
                in. Steps that carry writes, and replays, are launched their own way whatever the
                path.
        """
        side = self._compact.get(variant)
        for case in side.cases if side else ():
            if case.case == name and case.status is Status.OK:
                return case.measured(metric_for(what, path))
        return None

    def factor(self, variant: str, name: str, what: str) -> Figure | None:
        """How many times as long vLLM 0.33.0 takes, as `bt-bench compare` answers that."""
        return factor_of(self._judgements.get((variant, name, metric_for(what).name)))

    def problems(self) -> list[str]:
        """What is not `ok`, or was not reached."""
        found = []
        for name, result in self.results.items():
            found += [f"{name}: the run did not come to its end"] * (not result.complete)
            for case in result.cases:
                if case.status is not Status.OK:
                    why = case.reason.message if case.reason else "no reason given"
                    found.append(f"{name}, {case.key}: {case.status.value}: {why}")
        return found

    @cached_property
    def _compact(self) -> dict[str, CompactResult]:
        return {name: compacted(result) for name, result in self.results.items()}

    @cached_property
    def _judgements(self) -> dict[tuple[str, str, str], Judgement]:
        """Of both variants of ours against vLLM 0.33.0, by variant, case and metric."""
        sides = {name: Side(name, result) for name, result in self._compact.items()}
        base, others = sides.get(NEW), [sides[n] for n in (ONE_LAUNCH, GRAPH) if n in sides]
        if base is None or not others:
            return {}
        judged = judge_sides(base, others, map(metric_for, COLUMNS))
        return {(each.other, each.case, each.metric): each for each in judged}


def judge_sides(base: Side, others: Sequence[Side], metrics: Iterable[Metric]) -> list[Judgement]:
    """What `bt-bench compare` says of others against a base, in those metrics that were measured.

    A case of which nothing can be judged has a judgement as a whole, as `WHOLE_CASE`.

    Args:
        base: what all others are compared with.
        others: of the same run; without any there is no judgement.
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
    """How many times as long the base takes, with its interval; `None` where that is not known."""
    if found is None or found.evidence is None:
        return None
    if not (found.ratio and found.low and found.high):
        return None
    return Figure(1 / found.ratio, 1 / found.high, 1 / found.low, found.evidence.observations)


def figure(taken: Taken | None) -> Figure | None:
    """Median over rounds of a case of one step, with its 95 % interval."""
    if taken is None:
        return None
    values = np.median(taken.samples, axis=1)
    interval = median_interval(values)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return Figure(median(values), low, high, len(values))


def metric_for(what: str, path: LaunchPath = JIT) -> Metric:
    """The metric of a column of `COLUMNS`, as `bt-bench compare --metric` has it."""
    return metric_named(COLUMNS[what].format(path="" if path is JIT else f"/{path.value}"))


def device_operations(case: CaseResult | None) -> list[int]:
    """Device operations of each step, as the profiler counted them; none where it did not."""
    if case is None or case.launches is None or case.launches.counted_by != "cupti":
        return []
    return case.launches.totals()


def decode_heavy(case: CaseResult) -> list[int]:
    """Steps with requests, and at most two tokens for each of them on average."""
    sizes = case.workload.sizes
    pairs = zip(sizes["num_reqs"], sizes["num_tokens"], strict=True)
    return [
        index
        for index, (reqs, tokens) in enumerate(pairs)
        if reqs > 0 and tokens <= MOST_TOKENS_PER_REQUEST * reqs
    ]


def role_of(result: VariantResult) -> str:
    """The variant's name; of an opponent that with its release, however many sources there were."""
    stated = re.fullmatch(r"BlockTables of vLLM (\S+) itself", result.variant.summary)
    if is_opponent(result.variant.name) and stated:
        return f"vllm_{stated[1]}"
    return result.variant.name
