"""Reads the results of a run: samples added up round by round, their median and its interval."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bt_bench.analysis.statistics.samples import median, median_interval
from bt_bench.results.case import CaseResult
from bt_bench.results.nouns import LaunchPath, Quantity, Series, Status
from bt_bench.results.result import VariantResult
from bt_bench.results.series import series_of
from bt_bench.variants.vllm.source import is_opponent

STAGE, HOST, HOST_STAGE = "stage", "host", "host + stage"
DEVICE, TO_SYNC = "device", "stage to synchronize"
COLUMNS = (STAGE, HOST, HOST_STAGE, DEVICE, TO_SYNC)
JIT, COMPILED, DIRECT = LaunchPath.JIT, LaunchPath.COMPILED, LaunchPath.DIRECT

MOST_TOKENS_PER_REQUEST = 2  # of a decode-heavy step, on average


@dataclass(frozen=True)
class Estimate:
    """A figure, the ends of its 95 % interval where there is one, and of how many samples it is."""

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
        return cls({_role(result): result for result in results})

    def case(self, variant: str, name: str) -> CaseResult | None:
        """A case that is `ok`; `None` for any other."""
        result = self.results.get(variant)
        for case in result.cases if result else ():
            if case.case == name and case.status is Status.OK:
                return case
        return None

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


def estimate(case: CaseResult | None, what: str, path: LaunchPath = JIT) -> Estimate | None:
    """Median over rounds of a column of `COLUMNS`, for a case of one step.

    Args:
        case: the case; `None` if there is none.
        what: the column.
        path: by default the one by which arms are compared, whose rounds all of them took part in.
            Steps that carry writes, and replays, are launched their own way whatever the path.
    """
    if case is None:
        return None
    rows = summed(case, series_for(what, path))
    if not rows:
        return None
    values = [median(row) for row in rows]
    interval = median_interval(values)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return Estimate(median(values), low, high, len(values))


def series_for(what: str, path: LaunchPath) -> tuple[Series, ...]:
    """The series that are added up; staging launches nothing, and is taken beside Triton's call."""
    stage, device = series_of(Quantity.STAGE_US), series_of(Quantity.GPU_US)
    host = series_of(Quantity.HOST_US, launch_path=path)
    step = series_of(Quantity.STEP_US, launch_path=path)
    parts = {
        STAGE: (stage,),
        HOST: (host,),
        HOST_STAGE: (host, stage),
        DEVICE: (device,),
        TO_SYNC: (stage, step),
    }
    return parts[what]


def summed(case: CaseResult, series: Sequence[Series]) -> list[list[float]]:
    """Samples of all series added up, round by round and step by step; rounds that all have."""
    by_round = []
    for wanted in series:
        taken = case.measurement(wanted)
        if taken is None:
            return []
        by_round.append(dict(zip(taken.rounds, taken.samples, strict=True)))
    first, *rest = by_round
    common = [index for index in first if all(index in other for other in rest)]
    return [
        [sum(samples) for samples in zip(*(rows[index] for rows in by_round), strict=True)]
        for index in common
    ]


def device_operations(case: CaseResult | None) -> list[int]:
    """Device operations of each step, as the profiler counted them; none where it did not."""
    if case is None or case.launches is None or case.launches.counted_by != "cupti":
        return []
    return case.launches.totals()


def decode_heavy(case: CaseResult) -> list[int]:
    """Steps with requests, and at most two tokens for each of them on average."""
    sizes = zip(case.workload.num_reqs, case.workload.num_tokens, strict=True)
    return [
        index
        for index, (reqs, tokens) in enumerate(sizes)
        if reqs > 0 and tokens <= MOST_TOKENS_PER_REQUEST * reqs
    ]


def _role(result: VariantResult) -> str:
    """The variant's name; of an opponent that with its release, however many sources there were."""
    stated = re.fullmatch(r"BlockTables of vLLM (\S+) itself", result.variant.summary)
    if is_opponent(result.variant.name) and stated:
        return f"vllm_{stated[1]}"
    return result.variant.name
