"""Results of a selfcheck, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from bt_bench.analysis import Rules, Sought, device_name
from bt_bench.base import format_share
from bt_bench.report import ABSENT, Bullets, Cell, Document, Section, Table
from bt_bench.results import Recording
from bt_bench.runs.gate.loop import GatePlan
from bt_bench.runs.selfcheck.rates import FACTORS, Detection, Rate, Selfcheck

SCHEMA_VERSION: Final = 2


def facts_of(recorded: Recording, rules: Rules, plan: GatePlan, gates: int) -> tuple[str, ...]:
    """Return how the selfcheck was done, a sentence each."""
    name = device_name(recorded.environment) or "an unknown device"
    asked = Sought(plan.detect, rules.margin)
    return (
        f"{gates} gates per row, drawn from {len(recorded.rounds)} rounds of "
        f"{len(recorded.subjects)} metrics of cases, recorded on {name}.",
        f"Looks after {', '.join(map(str, plan.looks))} rounds, and up to {plan.most_rounds} where "
        f"noise may hide a slowdown of {asked.text}; margin {format_share(rules.margin)} or more, "
        f"alpha {rules.alpha:g}. In brackets: intervals at 95 %.",
        *(
            f"{variant} was measured apart: {reason}."
            for variant, reason in recorded.measured_apart().items()
        ),
    )


def selfcheck_document(result: Selfcheck, facts: tuple[str, ...]) -> Document:
    """Return the rates in tables."""
    equal = (
        (Cell("red builds"), Cell(_brief(result.red))),
        (Cell("some figure SLOWER"), Cell(_brief(result.slower))),
        (Cell("gates that could miss the slowdown they look for"), Cell(_brief(result.short))),
        (Cell("figures without a verdict"), Cell(f"{result.undecided:.2%}".replace("%", " %"))),
        (Cell("mean number of rounds"), Cell(f"{result.mean_rounds:.1f}")),
        (
            Cell("margins: minimum, quartiles, maximum"),
            Cell(" / ".join(f"{100 * margin:.1f}" for margin in result.margins) + " %"),
        ),
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
            Section("Slowed code", tuple(_tables(result.detections))),
            Section("Promises", (promises,)),
        ),
    )


def _tables(detections: Sequence[Detection]) -> Iterator[Table]:
    """Yield the tables of slowdowns, of figures that share a process and of the others."""
    paired = [each for each in detections if not each.apart]
    apart = [each for each in detections if each.apart]
    if paired:
        columns = ("One figure slower by", "found", "where the gate said so")
        yield _table(columns, paired, lambda each: (each.found, each.able))
        metrics = list(dict.fromkeys(metric for each in paired for metric in each.metrics))
        yield _table(
            ("Found, by metric", *metrics),
            paired,
            lambda each: [each.metrics.get(metric, Rate(0, 0)) for metric in metrics],
        )
    if apart:
        factors = (f"where >= {factor} x margin" for factor in FACTORS)
        yield _table(
            ("One figure that was measured apart slower by", "found", *factors),
            apart,
            lambda each: (each.found, *(each.beyond[factor] for factor in FACTORS)),
        )


def _table(
    columns: tuple[str, ...],
    detections: Sequence[Detection],
    rates: Callable[[Detection], Iterable[Rate]],
) -> Table:
    rows = tuple(
        (Cell(each.slowdown.label), *(Cell(_brief(rate)) for rate in rates(each)))
        for each in detections
    )
    return Table(columns, rows, 1)


def _brief(rate: Rate) -> str:
    if rate.share is None or rate.interval is None:
        return ABSENT
    low, high = 100 * rate.interval.low, 100 * rate.interval.high
    return f"{100 * rate.share:.1f} % ({low:.1f} to {high:.1f}) of {rate.trials}"


def selfcheck_json(
    checked: Sequence[tuple[Recording, Selfcheck]], plan: GatePlan, gates: int, seed: int
) -> dict[str, Any]:
    """Return the rates of each recording as one JSON document.

    Args:
        checked: recordings with their results.
        plan: the gate, whose looks are the same for all.
        gates: number of gates of each kind.
        seed: seed of the random draws.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "gates": gates,
        "seed": seed,
        "looks": list(plan.looks),
        "most_rounds": plan.most_rounds,
        "detect": plan.detect,
        "kept": all(promise.kept for _, result in checked for promise in result.promises()),
        "recordings": [_of_recording(recorded, result) for recorded, result in checked],
    }


def _of_recording(recorded: Recording, result: Selfcheck) -> dict[str, Any]:
    return {
        "recording": {
            "created": recorded.created,
            "rounds": len(recorded.rounds),
            "subjects": len(recorded.subjects),
            "apart": recorded.measured_apart(),
            "environment": recorded.environment.model_dump(mode="json"),
        },
        "equal_code": {
            "red": _rate(result.red),
            "slower": _rate(result.slower),
            "falls_short": _rate(result.short),
            "undecided": result.undecided,
            "mean_rounds": result.mean_rounds,
            "margin_quartiles": list(result.margins),
            "median_margin_of_long": result.long_margin,
        },
        "slowed": [
            {
                "slowdown": detection.slowdown.key,
                "kind": detection.slowdown.kind.value,
                "amount": detection.slowdown.amount,
                "apart": detection.apart,
                "found": _rate(detection.found),
                "said": _rate(detection.able),
                **{f"beyond_{n}": _rate(rate) for n, rate in detection.beyond.items()},
                "metrics": {name: _rate(rate) for name, rate in detection.metrics.items()},
            }
            for detection in result.detections
        ],
        "promises": [asdict(promise) for promise in result.promises()],
    }


def _rate(rate: Rate) -> dict[str, Any]:
    interval = rate.interval
    ends = [interval.low, interval.high] if interval else None
    return {"times": rate.times, "trials": rate.trials, "rate": rate.share, "interval_95": ends}
