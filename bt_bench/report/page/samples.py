"""Samples of a case for the page's script, packed small."""

from __future__ import annotations

import base64
import json
import math
import zlib
from typing import Any

import numpy as np

from bt_bench.report.page.speed_ups import metric_title
from bt_bench.report.run.arranged import Arms, CaseId, primary_series
from bt_bench.results import (
    CaseResult,
    FloatArray,
    Measurement,
    Quantity,
    Series,
    metric_of,
    series_of,
)

MOST_SAMPLES = 1_000_000
"""Most samples of a page; with more, only every k-th round is in it."""

_DIGITS = 4
_MOST_DECIMALS = 6


def shown_series(arms: Arms, case_id: CaseId) -> list[Series]:
    """Return the series whose samples are shown: the primary ones, and the whole step."""
    found = [*primary_series(arms, case_id.operation), series_of(Quantity.STEP_US)]
    return list(dict.fromkeys(found))


def count_samples(arms: Arms) -> int:
    """Return the number of samples that a page of all rounds would have."""
    return sum(
        len(measurement.rounds)
        for case_id in arms.case_ids
        for arm in arms.all
        if (case := arm.ok_case(case_id)) is not None
        for series in shown_series(arms, case_id)
        if (measurement := case.measurement(series)) is not None
    )


def packed_samples(arms: Arms, case_id: CaseId, stride: int = 1) -> str:
    """Return the samples of a case as JSON, deflated, in base64; empty without any.

    Times are whole numbers with a factor to divide them by, and lists of rounds, which arms and
    times share, are stored once: both make the page smaller, and quicker to write.

    Args:
        arms: the run.
        case_id: the case.
        stride: take every `stride`-th round.
    """
    rounds: dict[tuple[int, ...], int] = {}
    titles, times = [], []
    for series in shown_series(arms, case_id):
        of_series: list[dict[str, Any]] = []
        for arm in arms.all:
            case = arm.ok_case(case_id)
            measurement = None if case is None else case.measurement(series)
            if measurement is None:
                continue
            taken, means = _means(measurement, stride)
            if taken:
                index = rounds.setdefault(taken, len(rounds))
                of_series.append({"arm": arm.name, "rounds": index, **_scaled(means)})
        if of_series:
            titles.append(f"{metric_title(metric_of(series).name)}, µs")
            times.append(of_series)
    if not times:
        return ""
    case = next(found for arm in arms.all if (found := arm.ok_case(case_id)) is not None)
    content = {
        "titles": titles,
        "rounds": list(rounds),
        "times": times,
        "discarded": _discarded(case),
    }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _means(measurement: Measurement, stride: int) -> tuple[tuple[int, ...], FloatArray]:
    """Return every `stride`-th round, and its time; a window has the mean of its steps."""
    rounds, samples = measurement.rounds[::stride], measurement.samples
    if samples.width == 1:
        return tuple(rounds), samples.flat[::stride]
    taken = [(index, row) for index, row in zip(rounds, samples[::stride], strict=False) if row]
    means = np.array([sum(row) / len(row) for _, row in taken])
    return tuple(index for index, _ in taken), means


def _scaled(times: FloatArray) -> dict[str, Any]:
    """Return times as whole numbers, the smallest of four digits, and the factor that did it."""
    smallest = float(times.min(where=times > 0, initial=math.inf))
    digits = _DIGITS - 1 - math.floor(math.log10(smallest if smallest < math.inf else 1.0))
    factor = 10.0 ** min(max(digits, 0), _MOST_DECIMALS)
    return {"us": np.rint(times * factor).astype(np.int64).tolist(), "factor": factor}


def _discarded(case: CaseResult) -> list[list[Any]]:
    """Return index and reason of each round that does not count."""
    log = case.rounds
    if log is None:
        return []
    return [[index, code.value] for index, code in enumerate(log.discarded) if code is not None]
