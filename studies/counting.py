"""Count how often events happen; store and show it, with intervals and promises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import table, write_report

from bt_bench.report import ABSENT, Document, Section
from bt_bench.runs.selfcheck.rates import Rate, spelled

Promises = Mapping[str, tuple[float, float]]
"""By name of a rate, the least and the most that is promised of every run."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of runs: rates of events by name, figures by name, and how many runs."""

    rates: dict[str, Rate]
    figures: dict[str, list[float]] = field(default_factory=dict)
    runs: int = 1


def once(happened: bool) -> Rate:
    """Return the rate of an event that was tried once."""
    return Rate(int(happened), 1)


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of all runs together."""
    rates: dict[str, Rate] = {}
    figures: dict[str, list[float]] = {}
    runs = 0
    for outcome in outcomes:
        runs += outcome.runs
        for name, rate in outcome.rates.items():
            before = rates.get(name, Rate(0, 0))
            rates[name] = Rate(before.times + rate.times, before.trials + rate.trials)
        for name, values in outcome.figures.items():
            figures.setdefault(name, []).extend(values)
    return Outcome(rates, figures, runs)


def report(
    out: Path,
    name: str,
    facts: Mapping[str, Any],
    outcomes: Mapping[str, Outcome],
    page: Callable[[Mapping[str, Any]], Document],
    promises: Promises,
) -> int:
    """Write outcomes as `name.json` and `name.md`, and print broken promises.

    Args:
        out: folder for both files.
        name: their name.
        facts: what else is stored.
        outcomes: the outcomes by kind.
        page: function from the contents of the JSON file to the page.
        promises: what is promised of each kind.

    Returns:
        1 if a promise is broken, otherwise 0.
    """
    found = {**facts, "kinds": {kind: _stored(outcome) for kind, outcome in outcomes.items()}}
    write_report(out, name, page(found), found)
    problems = [f"{kind}: {text}" for kind, of in outcomes.items() for text in broken(promises, of)]
    for problem in problems:
        print(f"not as promised: {problem}", file=sys.stderr)
    return 1 if problems else 0


def broken(promises: Promises, outcome: Outcome) -> list[str]:
    """Return the promises that rates break, or that not all runs have tried."""
    return [
        f"{name}: {spelled(rate)}; promised {least:.0%} to {most:.0%}"
        for name, (least, most) in promises.items()
        if (rate := outcome.rates[name]).trials < outcome.runs or not least <= rate.share <= most
    ]


def _stored(outcome: Outcome) -> dict[str, Any]:
    rates = {
        name: {
            "times": rate.times,
            "trials": rate.trials,
            "rate": rate.share,
            "interval_95": [rate.interval.low, rate.interval.high] if rate.trials else None,
        }
        for name, rate in outcome.rates.items()
    }
    figures = {
        name: {
            "mean": float(np.mean(values)),
            "quartiles": np.percentile(values, (0, 25, 50, 75, 100)).tolist(),
        }
        for name, values in outcome.figures.items()
    }
    return {"runs": outcome.runs, "rates": rates, "figures": figures}


def page_of(
    found: Mapping[str, Any],
    title: str,
    lead: str,
    sections: Mapping[str, Mapping[str, Callable[[Any], str]]],
) -> Document:
    """Return a page of tables with a column for each kind.

    Args:
        found: the contents of the JSON file.
        title: title of the page.
        lead: paragraph below it.
        sections: by heading, the lines of its table: functions that spell a kind, by their titles.
    """
    kinds = found["kinds"]
    tables = {
        heading: table(
            ("", *kinds), ((line, *map(spell, kinds.values())) for line, spell in lines.items()), 1
        )
        for heading, lines in sections.items()
    }
    return Document(title, (lead,), tuple(Section(name, (of,)) for name, of in tables.items()))


def rate(name: str, digits: int | None = None) -> Callable[[Any], str]:
    """Return a function that spells a kind's rate: with its interval, or with so many digits."""

    def spell(kind: Any) -> str:
        found = kind["rates"].get(name, {"rate": None})
        if found["rate"] is None:
            return ABSENT
        if digits is not None:
            return f"{100 * found['rate']:.{digits}f} %"
        low, high = (100 * end for end in found["interval_95"])
        return f"{100 * found['rate']:.1f} % ({low:.1f}-{high:.1f})"

    return spell


def quartiles(name: str) -> Callable[[Any], str]:
    """Return a function that spells the quartiles of a kind's shares, with both ends."""

    def spell(kind: Any) -> str:
        found = kind["figures"].get(name, {"quartiles": ()})["quartiles"]
        return " / ".join(f"{100 * share:.1f}" for share in found) + " %" if found else ABSENT

    return spell
