"""What a selfcheck found, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from bt_bench.analysis import Rules, device_name
from bt_bench.report import ABSENT, Bullets, Cell, Document, Section, Table
from bt_bench.results import Recording
from bt_bench.runs.selfcheck.rates import FACTORS, Rate, Selfcheck

SCHEMA_VERSION: Final = 1


def facts_of(
    recorded: Recording, rules: Rules, looks: tuple[int, ...], gates: int
) -> tuple[str, ...]:
    """How the selfcheck was done, a sentence each."""
    name = device_name(recorded.environment) or "an unknown device"
    return (
        f"{gates} gates per row, drawn from {len(recorded.rounds)} rounds of "
        f"{len(recorded.subjects)} metrics of cases, recorded on {name}.",
        f"Looks after {', '.join(map(str, looks))} rounds; margin {rules.margin:.0%} or more, "
        f"alpha {rules.alpha:g}. In brackets: intervals at 95 %.",
    )


def selfcheck_document(result: Selfcheck, facts: tuple[str, ...]) -> Document:
    """The rates in tables."""
    equal = (
        (Cell("red builds"), Cell(_brief(result.red))),
        (Cell("some case SLOWER"), Cell(_brief(result.slower))),
        (Cell("cases without a verdict"), Cell(f"{result.undecided:.2%}".replace("%", " %"))),
        (Cell("mean number of rounds"), Cell(f"{result.mean_rounds:.1f}")),
        (
            Cell("margins: minimum, quartiles, maximum"),
            Cell(" / ".join(f"{100 * margin:.1f}" for margin in result.margins) + " %"),
        ),
    )
    columns = ("One case slower by", "found", *(f"where >= {f} x margin" for f in FACTORS))
    rows = tuple(
        (
            Cell(detection.slowdown.label),
            Cell(_brief(detection.found)),
            *(Cell(_brief(detection.beyond[factor])) for factor in FACTORS),
        )
        for detection in result.detections
    )
    promises = Bullets(
        tuple(
            f"{'kept' if promise.kept else 'NOT KEPT'}: {promise.promise}; {promise.found}"
            for promise in result.promises()
        )
    )
    return Document(
        "Selfcheck of the gate",
        facts,
        (
            Section("Equal code", (Table(("", "share of gates"), equal, 1),)),
            Section("Slowed code", (Table(columns, rows, 1),)),
            Section("Promises", (promises,)),
        ),
    )


def _brief(rate: Rate) -> str:
    if rate.share is None or rate.interval is None:
        return ABSENT
    low, high = 100 * rate.interval.low, 100 * rate.interval.high
    return f"{100 * rate.share:.1f} % ({low:.1f} to {high:.1f}) of {rate.trials}"


def selfcheck_json(result: Selfcheck, recorded: Recording, gates: int, seed: int) -> dict[str, Any]:
    """The rates as one JSON document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "gates": gates,
        "seed": seed,
        "recording": {
            "created": recorded.created,
            "rounds": len(recorded.rounds),
            "subjects": len(recorded.subjects),
            "environment": recorded.environment.model_dump(mode="json"),
        },
        "equal_code": {
            "red": _rate(result.red),
            "slower": _rate(result.slower),
            "undecided": result.undecided,
            "mean_rounds": result.mean_rounds,
            "margin_quartiles": list(result.margins),
        },
        "slowed": [
            {
                "slowdown": detection.slowdown.label,
                "amount": detection.slowdown.amount,
                "of_margin": detection.slowdown.of_margin,
                "found": _rate(detection.found),
                **{f"beyond_{n}": _rate(rate) for n, rate in detection.beyond.items()},
            }
            for detection in result.detections
        ],
        "promises": [asdict(promise) for promise in result.promises()],
    }


def _rate(rate: Rate) -> dict[str, Any]:
    interval = rate.interval
    ends = [interval.low, interval.high] if interval else None
    return {"times": rate.times, "trials": rate.trials, "rate": rate.share, "interval_95": ends}
