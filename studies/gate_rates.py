"""Measure the gate's error rates and power, beside the rules of other tools on the same data.

    python studies/gate_rates.py --out reports/gate-rates
    python studies/gate_rates.py --recording recording.json --out reports/h200/gate-rates

Each run draws the rounds of a gate of 60 figures of equal code: from synthetic machines with four
kinds of noise (`studies/synthetic.py` has their sizes), or from a recording. They go through the
whole gate as they are, and with one figure slowed. Writes `gate-rates.json` and `gate-rates.md`.
Exits with 1 if a rate breaks a promise of the gate.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu
from synthetic import Noise, SyntheticPopulation, value_of

from bt_bench.analysis.deciding import Rules, exit_code
from bt_bench.analysis.power import DEFAULT_DETECT
from bt_bench.analysis.rounds import GATE_MARGIN
from bt_bench.analysis.verdicts import Verdict
from bt_bench.base import Cell, Document, Section, Table
from bt_bench.base.errors import ExitCode
from bt_bench.report.markdown import render_document
from bt_bench.results.gate.recording import read_recording
from bt_bench.results.gate.rounds import Subject
from bt_bench.results.run.series import FloatArray
from bt_bench.runs.gate.loop import DEFAULT_LOOKS
from bt_bench.runs.selfcheck.rates import (
    LEAST_ASKED,
    LEAST_SAID,
    MOST_RED,
    SAID,
    Kind,
    Rate,
    Slowdown,
    is_found,
    plan_for,
    rate_of,
    spelled,
    try_gate,
)
from bt_bench.runs.selfcheck.resampled import RecordedPopulation

CHUNK = 50
BASE, HEAD = 0, 1
RULES_OF_GATE = Rules(margin=GATE_MARGIN)
ASKED = {share: Slowdown(share, Kind.ASKED) for share in LEAST_ASKED}
NAMES = {slowdown: f"found {share:g}" for share, slowdown in ASKED.items()} | {SAID: "found said"}
LEAST = {f"found {share:g}": least for share, least in LEAST_ASKED.items()}
LEAST |= {"found said": LEAST_SAID}
RECORDED = "recorded"


class Sampled:
    """A population that keeps the samples behind its latest values."""

    def __init__(self, source: str) -> None:
        self._machine = SyntheticPopulation(Noise(source)) if source in list(Noise) else None
        self._recorded = None if self._machine else RecordedPopulation(read_recording(source))
        population = self._machine or self._recorded
        self.subjects: tuple[Subject, ...] = population.subjects
        self.apart = population.apart
        self.samples: FloatArray = np.empty(0)

    def draw(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """Draw the values of one gate; a recording's samples are its values."""
        if self._machine:
            self.samples = self._machine.draw_samples(generator, rounds)
        else:
            self.samples = self._recorded.draw(generator, rounds)[..., None]
        return value_of(self.samples)


@dataclass(frozen=True)
class Trial:
    """The outcome of a run: booleans by name, and shares and rounds of the gate of equal code.

    `detectable` holds the detection limits of its figures, as shares.
    """

    hits: dict[str, bool]
    margins: list[float]
    detectable: list[float]
    rounds: int
    undecided: float


def _mann_whitney(base: FloatArray, head: FloatArray) -> FloatArray:
    found = mannwhitneyu(head, base, axis=0, nan_policy="omit", method="asymptotic").pvalue < 0.05
    return found & (np.nanmedian(head, axis=0) > np.nanmedian(base, axis=0))


RULES = {
    "Mann-Whitney on raw samples, p below .05": _mann_whitney,
    "mean + 5 %": lambda b, h: np.nanmean(h, axis=0) > 1.05 * np.nanmean(b, axis=0),
    "minimum + 2 %": lambda b, h: np.nanmin(h, axis=0) > 1.02 * np.nanmin(b, axis=0),
}
"""Functions of both sides' samples [samples, cases] that return whether each case is slower."""


def run_chunk(source: str, seed: list[int], count: int) -> list[Trial]:
    """Simulate `count` runs, one after the other."""
    generator = np.random.default_rng(seed)
    population = Sampled(source)
    plan = plan_for(population)
    rules = RULES_OF_GATE
    trials = []
    for _ in range(count):
        trial = try_gate(population, plan, rules, generator, (*ASKED.values(), SAID))
        judged = trial.unchanged.judged
        evidence = [each.evidence for each in judged.judgements if each.evidence]
        hits = {
            "red": exit_code(judged) is not ExitCode.OK,
            "slower": judged.count(Verdict.SLOWER) > 0,
            "short": judged.power is not None and judged.power.falls_short,
        }
        hits |= {name: trial.found[slowdown] for slowdown, name in NAMES.items()}
        everywhere = dict.fromkeys(plan.subjects, rules.margin)
        hits["at margin"] = is_found(trial.values, plan, rules, everywhere)
        place = plan.subjects.index(trial.subject)
        shares = {name: slowdown.share(trial.judgement) for slowdown, name in NAMES.items()}
        hits |= _by_rules(population.samples, trial.unchanged.rounds, place, shares)
        trials.append(
            Trial(
                hits,
                [each.needed for each in evidence],
                [each.detectable for each in evidence],
                trial.unchanged.rounds,
                judged.count(Verdict.INCONCLUSIVE) / len(judged.judgements),
            )
        )
    return trials


def _by_rules(
    samples: FloatArray, rounds: int, place: int, shares: dict[str, float | None]
) -> dict[str, bool]:
    """Apply the rules of other tools to the same rounds; return their hits by name."""
    by_case = np.moveaxis(samples[:rounds], 2, -1)  # [rounds, arms, samples, cases]
    base, head = (by_case[:, arm].reshape(-1, by_case.shape[-1]) for arm in (BASE, HEAD))
    hits = {}
    one = slice(place, place + 1)
    for name, rule in RULES.items():
        hits[f"{name}: red"] = bool(rule(base, head).any())
        for title, share in shares.items():
            if share is not None and title in LEAST:
                hits[f"{name}: {title}"] = bool(rule(base[:, one], head[:, one] * (1 + share))[0])
    return hits


def rates(trials: Sequence[Trial]) -> dict[str, Rate]:
    """Return the rate of each hit, over the trials that have it."""
    names = dict.fromkeys(name for trial in trials for name in trial.hits)
    return {
        name: rate_of([trial.hits[name] for trial in trials if name in trial.hits])
        for name in names
    }


def missed(found: dict[str, Rate], runs: int) -> list[str]:
    """Return the promises that the rates break."""
    problems = []
    if found["red"].share > MOST_RED:
        problems.append(f"red builds: {spelled(found['red'])}; promised at most {MOST_RED:.0%}")
    at_margin = found["at margin"]
    alpha = RULES_OF_GATE.alpha
    if at_margin.interval.low > alpha:
        problems.append(f"within the margin: {spelled(at_margin)}; promised {alpha:.0%}")
    for name, least in LEAST.items():
        rate = found[name]
        if rate.share < least or rate.trials < runs:
            problems.append(f"{name}: {spelled(rate)}; promised at least {least:.0%}")
    return problems


def main() -> int:
    """Run the gates and write their rates; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="per kind of noise")
    parser.add_argument("--recording", help="draw rounds from this file instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    began = time.monotonic()
    sources = [args.recording] if args.recording else [noise.value for noise in Noise]
    found = _run_all(sources, args.runs, args.seed, args.workers)
    names = {source: RECORDED if args.recording else source for source in sources}
    by_kind = {names[source]: trials for source, trials in found.items()}
    seconds = time.monotonic() - began
    problems = {kind: missed(rates(trials), args.runs) for kind, trials in by_kind.items()}
    args.out.mkdir(parents=True, exist_ok=True)
    summary = _summary(by_kind, problems, args.seed, seconds)
    (args.out / "gate-rates.json").write_text(json.dumps(summary, indent=1) + "\n")
    text = render_document(_document(by_kind, seconds))
    (args.out / "gate-rates.md").write_text(text, encoding="utf-8")
    print(text)
    for kind, texts in problems.items():
        for problem in texts:
            print(f"not as promised: {kind}: {problem}", file=sys.stderr)
    return 1 if any(problems.values()) else 0


def _run_all(sources: Sequence[str], runs: int, seed: int, workers: int) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    with ProcessPoolExecutor(workers) as pool:
        chunks = [
            (
                source,
                pool.submit(run_chunk, source, [seed, number, begin], min(CHUNK, runs - begin)),
            )
            for number, source in enumerate(sources)
            for begin in range(0, runs, CHUNK)
        ]
        for source, chunk in chunks:
            found.setdefault(source, []).extend(chunk.result())
            print(f"{source}: {len(found[source])} of {runs}", file=sys.stderr)
    return found


def _summary(
    by_kind: dict[str, list[Trial]], problems: dict[str, list[str]], seed: int, seconds: float
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "seed": seed,
        "seconds": round(seconds, 1),
        "looks": DEFAULT_LOOKS,
        "rules": vars(RULES_OF_GATE),
        "detect": DEFAULT_DETECT,
        "kinds": {
            kind: {
                "runs": len(trials),
                "missed": problems[kind],
                "margin_quartiles": _quartiles([m for trial in trials for m in trial.margins]),
                "detectable_quartiles": _quartiles([d for t in trials for d in t.detectable]),
                "mean_rounds": float(np.mean([trial.rounds for trial in trials])),
                "undecided": float(np.mean([trial.undecided for trial in trials])),
                "rates": {name: _plain(rate) for name, rate in rates(trials).items()},
            }
            for kind, trials in by_kind.items()
        },
    }


def _plain(rate: Rate) -> dict[str, Any]:
    ends = [rate.interval.low, rate.interval.high]
    return {"times": rate.times, "trials": rate.trials, "rate": rate.share, "interval_95": ends}


def _quartiles(shares: Sequence[float]) -> list[float]:
    return np.percentile(shares, (0, 25, 50, 75, 100)).round(5).tolist()


TITLES = {f"found {share:g}": slowdown.label for share, slowdown in ASKED.items()}
TITLES |= {"found said": SAID.label}

GATE_ROWS = {
    "red builds of equal code": "red",
    "of these, some figure SLOWER": "slower",
    **{f"found: one figure slowed by {title}": name for name, title in TITLES.items()},
    f"any SLOWER: all figures slowed by the margin, {100 * GATE_MARGIN:g} %": "at margin",
    f"gates that said they could miss {100 * DEFAULT_DETECT:g} %": "short",
}


def _document(by_kind: dict[str, list[Trial]], seconds: float) -> Document:
    found = {kind: rates(trials) for kind, trials in by_kind.items()}
    gate = tuple(_row(title, key, found) for title, key in GATE_ROWS.items())
    about = (
        _texts("margins, quartiles with both ends", by_kind, _margins),
        _texts("what figures say they find, likewise", by_kind, _detectable),
        _texts("rounds that a gate of equal code took", by_kind, _mean_rounds),
        _texts("figures of equal code without a verdict", by_kind, _undecided),
    )
    others = tuple(
        _row(f"{name}: {title}", f"{name}: {key}", found)
        for name in RULES
        for title, key in (
            ("equal code red", "red"),
            *((f"{TITLES[key]} found", key) for key in ("found 0.05", "found 0.03")),
        )
    )
    runs = {len(trials) for trials in by_kind.values()}
    lead = (
        f"{', '.join(map(str, runs))} simulated gates for each kind of noise and effect, looks "
        f"after {', '.join(map(str, DEFAULT_LOOKS))} rounds; in brackets Wilson's intervals at "
        f"95 %. Took {seconds:.0f} s.",
        f"Promised: at most {MOST_RED:.0%} red, "
        + ", ".join(f"{least:.0%} of {TITLES[name]} found" for name, least in LEAST.items())
        + ".",
    )
    columns = ("", *by_kind)
    sections = (
        Section("The gate", (Table(columns, gate, 1), Table(columns, about, 1))),
        Section("Rules of other tools, on the same data", (Table(columns, others, 1),)),
    )
    return Document("Error rates of the gate", lead, sections)


def _row(title: str, key: str, found: dict[str, dict[str, Rate]]) -> tuple[Cell, ...]:
    absent = Rate(0, 0)
    return (Cell(title), *(Cell(_brief(of.get(key, absent))) for of in found.values()))


def _brief(rate: Rate) -> str:
    if rate.share is None:
        return "not tried"
    low, high = 100 * rate.interval.low, 100 * rate.interval.high
    return f"{100 * rate.share:.1f} % ({low:.1f}-{high:.1f})"


def _texts(title: str, by_kind: dict[str, list[Trial]], spell: Any) -> tuple[Cell, ...]:
    return (Cell(title), *(Cell(spell(trials)) for trials in by_kind.values()))


def _margins(trials: Sequence[Trial]) -> str:
    return _spelled_quartiles([margin for trial in trials for margin in trial.margins])


def _detectable(trials: Sequence[Trial]) -> str:
    return _spelled_quartiles([share for trial in trials for share in trial.detectable])


def _spelled_quartiles(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in _quartiles(shares)) + " %"


def _mean_rounds(trials: Sequence[Trial]) -> str:
    return f"{np.mean([trial.rounds for trial in trials]):.1f}"


def _undecided(trials: Sequence[Trial]) -> str:
    return f"{100 * np.mean([trial.undecided for trial in trials]):.2f} %"


if __name__ == "__main__":
    sys.exit(main())
