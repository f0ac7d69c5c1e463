"""Say how sure measured claims are: rounds, their spread, and differences of equal code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bt_bench.analysis import interquartile_range, median
from bt_bench.base import format_share
from bt_bench.base.errors import counted, listed
from bt_bench.report.formats.phrases import noun_of
from bt_bench.report.run.arranged import Arms, primary_series
from bt_bench.report.run.facts import measuring_facts
from bt_bench.results import CaseResult, Quantity, Series, operations_of


def certainty_of(arms: Arms) -> Iterator[str]:
    """Yield texts on the checks and rounds of a run, and on its noise.

    Args:
        arms: the results of one run.
    """
    yield from measuring_facts(arms)
    instances = counted(arms.baseline.result.plan.instances, "instance")
    yield f"Each variant had {instances} of its data, used in turns."
    decisive = decisive_series(arms)
    for series in decisive:
        yield from _spread_text(arms, series)
    yield from _equal_code_text(arms, decisive)


def decisive_series(arms: Arms) -> list[Series]:
    """Return the series that decide any measured operation of a run, in order."""
    operations = operations_of(arms.baseline.result.suite).values()
    taken = (operation for operation in operations if arms.cases_of(operation))
    found = (each for operation in taken for each in primary_series(arms, operation))
    return [*dict.fromkeys(found)]


def _spread_text(arms: Arms, series: Series) -> Iterator[str]:
    found = {
        f"{arm.name} in {case_id.key}": spread
        for arm in arms.all
        for case_id, case in arm.cases.items()
        if (spread := _spread(case, series)) is not None
    }
    if found:
        where, largest = max(found.items(), key=lambda item: item[1])
        yield (
            f"Spread of {noun_of(series)} over the rounds: half of the rounds lie within "
            f"± {format_share(median([*found.values()]), 2)} of their median in a typical case, "
            f"and within ± {format_share(largest, 2)} in the noisiest ({where})."
        )


def _spread(case: CaseResult, series: Series) -> float | None:
    """Return half the interquartile range of the rounds, as a share of their median."""
    measurement = case.measurement(series)
    rounds = [float(np.median(steps)) for steps in measurement.samples] if measurement else []
    middle = median(rounds) if rounds else 0.0
    return interquartile_range(rounds) / 2 / middle if middle > 0 else None


def _equal_code_text(arms: Arms, decisive: list[Series]) -> Iterator[str]:
    largest: dict[Quantity, float] = {}
    names: dict[str, None] = {}
    for arm in arms.all:
        for case in arm.cases.values():
            for each in case.control_spreads:
                if each.series in decisive and each.share is not None:
                    quantity = each.series.quantity
                    largest[quantity] = max(abs(each.share), largest.get(quantity, 0.0))
                    names[each.arm] = None
    if largest:
        sizes = [
            f"{format_share(largest[series.quantity], 2)} in {noun_of(series)}"
            for series in decisive
            if series.quantity in largest
        ]
        yield (
            f"Equal code: an unchanged copy of {listed([*names])}, timed in the same rounds, "
            f"differed by at most {listed(sizes)}."
        )
