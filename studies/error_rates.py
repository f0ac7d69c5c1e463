"""Count how often verdicts err, in simulated gates and comparisons of known noise.

    python studies/error_rates.py gate --out reports/gate-rates
    python studies/error_rates.py compare --out reports/compare-rates

`gate` draws the rounds of gates of 60 figures, and `compare` runs of ten cases of two arms and a
control copy, with the two primary metrics of a step and four exploratory ones
(`studies/synthetic.py`). Each goes through the tool's own code, unchanged and with figures slowed.
Writes `NAME.json` and `NAME.md`. Exits with 1 if a rate breaks a promise. Needs no GPU, and takes
half an hour on two cores.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from counting import Outcome, Promises, once, page_of, quartiles, rate, report, total
from scipy.stats import mannwhitneyu
from synthetic import (
    RUN_CASES,
    RUN_INSTANCES,
    RUN_METRICS,
    RUN_ROUNDS,
    Noise,
    SyntheticPopulation,
    draw_run,
    run_instances,
)

from bt_bench.analysis import DEFAULT_DETECT, GATE_MARGIN, Rules, Verdict, exit_code
from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.judge import Criteria, entries_of
from bt_bench.analysis.judging import Entry, judge_entries
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.base.errors import ExitCode
from bt_bench.base.limits import cores_here
from bt_bench.report import Document
from bt_bench.results import (
    CompactCase,
    CompactResult,
    Environment,
    FloatArray,
    Plan,
    Status,
    Taken,
    VariantInfo,
    VariantResult,
    metric_named,
)
from bt_bench.runs.gate.loop import DEFAULT_LOOKS
from bt_bench.runs.selfcheck.rates import (
    LEAST_ASKED,
    LEAST_SAID,
    MOST_RED,
    SAID,
    Rate,
    Slowdown,
    SlowdownSize,
    is_found,
    plan_for,
    try_gate,
)
from bt_bench.suites.block_tables import operations as ops

# Gates

RULES_OF_GATE = Rules(margin=GATE_MARGIN)
SLOWDOWNS_OF_GATE = {
    f"found {share:g}": Slowdown(share, SlowdownSize.ASKED) for share in LEAST_ASKED
}
SLOWDOWNS_OF_GATE["found said"] = SAID
PROMISES_OF_GATE = {
    "red": (0.0, MOST_RED),
    "at margin": (0.0, RULES_OF_GATE.alpha),
    **{f"found {share:g}": (least, 1.0) for share, least in LEAST_ASKED.items()},
    "found said": (LEAST_SAID, 1.0),
}


def _mann_whitney(base: FloatArray, head: FloatArray) -> FloatArray:
    found = mannwhitneyu(head, base, axis=0, nan_policy="omit", method="asymptotic").pvalue < 0.05
    return found & (np.nanmedian(head, axis=0) > np.nanmedian(base, axis=0))


OTHER_RULES = {
    "Mann-Whitney on raw samples, p below .05": _mann_whitney,
    "mean + 5 %": lambda b, h: np.nanmean(h, axis=0) > 1.05 * np.nanmean(b, axis=0),
    "minimum + 2 %": lambda b, h: np.nanmin(h, axis=0) > 1.02 * np.nanmin(b, axis=0),
}
"""Functions of both sides' samples [samples, cases] that return whether each case is slower."""


def simulate_gate(noise: Noise, generator: np.random.Generator) -> Outcome:
    """Simulate a gate of equal code, and the same rounds with one figure slowed."""
    population = SyntheticPopulation(noise)
    plan = plan_for(population)
    # The rounds that the gate draws next, sample by sample.
    samples = population.draw_samples(copy.deepcopy(generator), plan.most_rounds)
    slowdowns = tuple(SLOWDOWNS_OF_GATE.values())
    trial = try_gate(population, plan, RULES_OF_GATE, generator, slowdowns)
    judged = trial.unchanged.judged
    evidence = [each.evidence for each in judged.judgements if each.evidence]
    everywhere = dict.fromkeys(plan.subjects, RULES_OF_GATE.margin)
    hits = {
        "red": exit_code(judged) is not ExitCode.OK,
        "slower": judged.count(Verdict.SLOWER) > 0,
        "short": judged.power is not None and judged.power.falls_short,
        **{name: trial.found[slowdown] for name, slowdown in SLOWDOWNS_OF_GATE.items()},
        "at margin": is_found(trial.values, plan, RULES_OF_GATE, everywhere),
    }
    shares = {
        name: slowdown.share(trial.judgement)
        for name, slowdown in SLOWDOWNS_OF_GATE.items()
        if slowdown is not SAID
    }
    place = plan.subjects.index(trial.subject)
    hits |= by_other_rules(samples[: trial.unchanged.rounds], place, shares)
    undecided = Rate(judged.count(Verdict.INCONCLUSIVE), len(judged.judgements))
    return Outcome(
        {name: once(hit) for name, hit in hits.items()} | {"undecided": undecided},
        {
            "margin": [each.needed for each in evidence],
            "detectable": [each.detectable for each in evidence],
            "rounds": [trial.unchanged.rounds],
        },
    )


def by_other_rules(
    samples: FloatArray, place: int, shares: Mapping[str, float | None]
) -> dict[str, bool]:
    """Apply the rules of other tools to the rounds of a gate; return their hits by name.

    Args:
        samples: of equal code [rounds, arms, subjects, samples]; the first arms are base and head.
        place: the subject to slow.
        shares: slowdowns by name; `None` is not tried.
    """
    base, head = (
        np.moveaxis(samples[:, arm], -1, 1).reshape(-1, samples.shape[2]) for arm in (0, 1)
    )
    one = slice(place, place + 1)
    hits = {}
    for name, rule in OTHER_RULES.items():
        hits[f"{name}: red"] = bool(rule(base, head).any())
        for title, share in shares.items():
            if share is not None:
                hits[f"{name}: {title}"] = bool(rule(base[:, one], head[:, one] * (1 + share))[0])
    return hits


def page_of_gate(found: Mapping[str, Any]) -> Document:
    """Return the page `gate-rates.md`, from the contents of `gate-rates.json`."""
    labels = {name: slowdown.label for name, slowdown in SLOWDOWNS_OF_GATE.items()}
    events = {
        "red builds of equal code": rate("red"),
        "of these, some figure SLOWER": rate("slower"),
        **{f"found: one figure slowed by {label}": rate(name) for name, label in labels.items()},
        f"any SLOWER: all figures slowed by the margin, {100 * GATE_MARGIN:g} %": rate("at margin"),
        f"gates that said they could miss {100 * DEFAULT_DETECT:g} %": rate("short"),
        "margins, quartiles with both ends": quartiles("margin"),
        "what figures say they find, likewise": quartiles("detectable"),
        "rounds that a gate of equal code took": lambda kind: (
            f"{kind['figures']['rounds']['mean']:.1f}"
        ),
        "figures of equal code without a verdict": rate("undecided", digits=2),
    }
    others = {}
    for rule in OTHER_RULES:
        others[f"{rule}: equal code red"] = rate(f"{rule}: red")
        for name in ("found 0.05", "found 0.03"):
            others[f"{rule}: {labels[name]} found"] = rate(f"{rule}: {name}")
    lead = (
        "Simulated gates, by python studies/error_rates.py gate, "
        f"{found['kinds']['white']['runs']:,} for each kind of noise and effect: looks after "
        f"{', '.join(map(str, found['looks']))} rounds. In brackets Wilson's intervals at 95 %."
    )
    sections = {"The gate": events, "Rules of other tools, on the same data": others}
    return page_of(found, "Error rates of the gate", lead, sections)


# Comparisons

FAR = 8
SLOWDOWNS = (0.03, 0.05, 0.07, 0.10, 0.20)
ALARMS = {
    f"{kind} {verdict}": (verdict, kind == "primary")
    for kind in ("primary", "exploratory")
    for verdict in (Verdict.SLOWER, Verdict.FASTER)
}
OF_EQUAL_CODE = (Verdict.SAME, Verdict.INCONCLUSIVE)


def simulate_compare(noise: Noise, generator: np.random.Generator) -> Outcome:
    """Simulate a run, and judge it unchanged and with one primary figure slowed."""
    rules = Rules()
    entries = entries_from(draw_run(noise, generator))
    judgements = judge_entries(entries, rules.correction, rules.alpha)
    rates = {
        name: once(any(j.verdict is verdict and j.exploratory is not primary for j in judgements))
        for name, (verdict, primary) in ALARMS.items()
    }
    verdicts = [judgement.verdict for judgement in judgements if not judgement.exploratory]
    rates |= {each.value: Rate(verdicts.count(each), len(verdicts)) for each in OF_EQUAL_CODE}
    primary_places = [i for i, entry in enumerate(entries) if not entry.exploratory]
    place = primary_places[int(generator.integers(len(primary_places)))]
    far = []
    for slowdown in SLOWDOWNS:
        slowed, is_far = _slowed(entries, place, slowdown)
        judgement = judge_entries(slowed, rules.correction, rules.alpha)[place]
        rates[f"found {slowdown:g}"] = once(judgement.verdict is Verdict.SLOWER)
        far += [judgement.verdict is Verdict.SLOWER] * is_far
    return Outcome(rates | {"beyond": Rate(sum(far), len(far))})


def entries_from(times: FloatArray) -> list[Entry]:
    """Return the entries of `compare` for the second arm against the first, in every metric.

    Args:
        times: [arms, metrics, cases, rounds] as `draw_run` draws them.
    """
    base, other, unchanged = times
    # As `control_difference` does for cases of one step, from pairs of rounds.
    spreads = np.abs(np.expm1(np.median(np.log(unchanged / base), axis=-1)))
    sides = [
        Side(name, CompactResult(_header(name), tuple(_cases(arm, spreads))))
        for name, arm in (("baseline", base), ("other", other))
    ]
    found, _ = entries_of([Matchup(*sides)], Criteria())
    return found


def _slowed(entries: Sequence[Entry], place: int, slowdown: float) -> tuple[list[Entry], bool]:
    """Return the entries with one slowed by a share, and whether that is far beyond its margin.

    A factor on every sample adds its logarithm to the estimate and changes nothing else.
    """
    slowed = list(entries)
    entry = slowed[place] = copy.copy(entries[place])
    outcome, margin = entry.outcome, entry.margin
    if not isinstance(outcome, Estimate) or margin is None:
        return slowed, False
    shift = math.log1p(slowdown)
    entry.outcome = replace(outcome, location=outcome.location + shift)
    (_, end), (below, _) = margin.logs, entry.systematic.reach(margin)
    return slowed, shift >= end + below + FAR * outcome.error


def _cases(times: FloatArray, spreads: FloatArray) -> Iterator[CompactCase]:
    """Yield the cases of times [metrics, cases, rounds] and spreads [metrics, cases]."""
    rounds = tuple(range(RUN_ROUNDS))
    unknown = dict.fromkeys(("reason", "check", "launches", "compiled"))
    for case in range(RUN_CASES):
        yield CompactCase(
            operation=ops.STEP,
            case=f"case{case}",
            digest=str(case),
            status=Status.OK,
            **unknown,
            instances=tuple(run_instances()),
            taken={
                name: Taken(metric_named(name), "step", rounds, of_metric[case][:, None])
                for name, of_metric in zip(RUN_METRICS, times, strict=True)
            },
            spreads=dict(zip(RUN_METRICS, spreads[:, case].tolist(), strict=True)),
        )


def _header(variant: str) -> VariantResult:
    """Return a header with all that `compare` reads to judge sides of one run."""
    return VariantResult.model_construct(
        run_id="simulated",
        complete=True,
        environment=Environment.model_construct(device="cuda", gpus=()),
        plan=Plan(),
        variant=VariantInfo(name=variant, summary="", source_sha256=""),
    )


def page_of_compare(found: Mapping[str, Any]) -> Document:
    """Return the page `compare-rates.md`, from the contents of `compare-rates.json`."""
    slowed = {f"slower by {100 * share:g} %": rate(f"found {share:g}") for share in SLOWDOWNS}
    slowed[f"slower by its margin and {FAR} standard errors, or more"] = rate("beyond")
    lead = (
        "Simulated runs, by python studies/error_rates.py compare, "
        f"{found['kinds']['white']['runs']:,} for each kind of noise: {RUN_CASES} cases with "
        f"{RUN_ROUNDS} rounds of {RUN_INSTANCES} instances, two primary metrics and "
        f"{len(RUN_METRICS) - 2} exploratory ones, and a control. Noise per copy differs by "
        "instance here. In brackets Wilson's intervals at 95 %."
    )
    sections = {
        f"Runs of equal code with a false verdict; alpha is {100 * found['alpha']:g} % for each": {
            name: rate(name) for name in ALARMS
        },
        "One primary figure slowed, and called SLOWER": slowed,
        "Verdicts on primary figures of equal code": {
            verdict.value: rate(verdict, digits=1) for verdict in OF_EQUAL_CODE
        },
    }
    return page_of(found, "How often compare errs", lead, sections)


# Both


class Study(NamedTuple):
    """Describe a simulation.

    Args:
        simulate: function that simulates one run.
        promises: by name of a rate, the least and the most that is promised.
        page: function from the stored outcome to its page.
        facts: what else is stored.
        seed: default seed.
        chunks: number of each chunk that the runs of a kind of noise are divided into. Each has a
            generator of its own, whatever the number of processes.
    """

    simulate: Callable[[Noise, np.random.Generator], Outcome]
    promises: Promises
    page: Callable[[Mapping[str, Any]], Document]
    facts: Mapping[str, Any]
    seed: int
    chunks: range


STUDIES = {
    "gate": Study(
        simulate_gate,
        PROMISES_OF_GATE,
        page_of_gate,
        {"looks": DEFAULT_LOOKS, "rules": vars(RULES_OF_GATE), "detect": DEFAULT_DETECT},
        seed=0,
        chunks=range(0, 1000, 50),
    ),
    "compare": Study(
        simulate_compare,
        dict.fromkeys(ALARMS, (0.0, Rules().alpha)),
        page_of_compare,
        {"alpha": Rules().alpha},
        seed=1,
        chunks=range(16),
    ),
}


def simulate_chunk(study: str, noise: Noise, seed: Sequence[int], runs: int) -> Outcome:
    """Simulate runs one after the other, by one generator."""
    generator = np.random.default_rng(list(seed))
    return total(STUDIES[study].simulate(noise, generator) for _ in range(runs))


def simulate_all(study: str, runs: int, seed: int, workers: int) -> dict[str, Outcome]:
    """Simulate runs of every kind of noise, in several processes."""
    chunks = STUDIES[study].chunks
    sizes = [len(chunk) for chunk in np.array_split(range(runs), len(chunks))]
    found: dict[str, Outcome] = {}
    with ProcessPoolExecutor(workers) as pool:
        for kind, noise in enumerate(Noise):
            seeds = [(seed, kind, chunk) for chunk in chunks]
            outcomes = pool.map(simulate_chunk, repeat(study), repeat(noise), seeds, sizes)
            found[noise.value] = total(outcomes)
            print(f"{noise}: {runs} runs", file=sys.stderr)
    return found


def main() -> int:
    """Simulate, and write both files; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--runs", type=int, default=1000, help="of each kind of noise")
    parser.add_argument("--seed", type=int, help="default: that of the committed reports")
    parser.add_argument("--workers", type=int, default=cores_here())
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    study = STUDIES[args.study]
    seed = study.seed if args.seed is None else args.seed
    outcomes = simulate_all(args.study, args.runs, seed, args.workers)
    facts = {"schema_version": 2, "seed": seed, **study.facts}
    return report(args.out, f"{args.study}-rates", facts, outcomes, study.page, study.promises)


if __name__ == "__main__":
    sys.exit(main())
