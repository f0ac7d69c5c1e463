"""Measure the error rates of `bt-bench compare` on simulated runs of known noise.

    python studies/compare_rates.py --out reports/compare-rates

Each run has ten cases of two arms and a control copy, with the two primary metrics of a step and
four exploratory ones. In an unchanged run, every `SLOWER` or `FASTER` is false. Then one primary
figure is slowed, by one amount at a time, and the `SLOWER` verdicts on it are counted. Writes
`compare-rates.json` and `compare-rates.md`. Exits with 1 if a rate of false verdicts is certainly
above alpha. Needs no GPU, and takes half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import Noise

from bt_bench.analysis import Rules, Verdict, wilson_interval
from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.judge import Criteria, entries_of
from bt_bench.analysis.judging import Entry, judge_entries
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.report import (
    Cell,
    Document,
    Section,
    Table,
    print_document,
    render_document,
)
from bt_bench.results import (
    CompactCase,
    CompactResult,
    Environment,
    FloatArray,
    Plan,
    Status,
    Taken,
    Tool,
    VariantInfo,
    VariantResult,
    metric_named,
)
from bt_bench.suites.block_tables import operations as ops

CASES = 10
ROUNDS, INSTANCES = 96, 8
METRICS = ("host_us", "gpu_us", "step_us", "pipelined_us", "event_us", "event_us/busy")
ARMS = 3  # base, other, and the unchanged copy of the base
BASE_US = (4.0, 100.0)  # times of the shortest and the longest case

WHITE = (0.005, 0.05)  # relative noise of a round: the quietest and the loudest figure
DRIFT, DRIFT_KEPT = 0.03, 0.9  # shared by all arms; each arm's own drift is a third as large
INSTANCE = 0.01  # of an arm in an instance, due to the placement of its buffers
SPIKE_SHARE, SPIKE_SIZE = 0.03, 0.5

FAR = 8
TITLES = {noise: noise.value for noise in Noise} | {Noise.PER_COPY: "per instance"}
SLOWDOWNS = (0.03, 0.05, 0.07, 0.10, 0.20)

FALSE = ("SLOWER", "FASTER")


@dataclass(frozen=True)
class Counts:
    """Counts of verdicts in some runs.

    Args:
        runs: number of runs.
        false: runs with a false verdict, by verdict and whether the metric is primary.
        verdicts: verdicts on the primary metrics of unchanged runs.
        found: by slowdown, how often the slowed figure was called `SLOWER`.
        far: by slowdown and whether it was found, the runs whose slowdown exceeded the figure's
            margin by `FAR` standard errors or more.
    """

    runs: int
    false: Counter[tuple[str, bool]]
    verdicts: Counter[str]
    found: Counter[float]
    far: Counter[tuple[float, bool]]

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.runs + other.runs,
            self.false + other.false,
            self.verdicts + other.verdicts,
            self.found + other.found,
            self.far + other.far,
        )


def draw(noise: Noise, generator: np.random.Generator) -> FloatArray:
    """Draw the times of a run in µs [arms, metrics, cases, rounds]; arms differ only by noise."""
    shape = (ARMS, len(METRICS), CASES, ROUNDS)
    base = np.geomspace(*BASE_US, CASES)[:, None]
    loud = np.random.default_rng(0).permutation(np.geomspace(*WHITE, len(METRICS) * CASES))
    logs = generator.normal(size=shape) * loud.reshape(len(METRICS), CASES, 1)
    if noise is Noise.AUTOCORRELATED:
        logs += _drift(generator, (1, *shape[1:])) + _drift(generator, shape) / 3
    if noise is Noise.PER_COPY:  # a run has instances where a gate has processes
        of_instances = generator.normal(size=(*shape[:3], INSTANCES)) * INSTANCE
        logs += of_instances[..., _instances()]
    if noise is Noise.SPIKY:
        spikes = np.log1p(generator.exponential(SPIKE_SIZE, shape))
        logs += np.where(generator.random(shape) < SPIKE_SHARE, spikes, 0.0)
    times: FloatArray = base * np.exp(logs)
    for index, name in enumerate(METRICS):
        if tick := metric_named(name).tick:
            times[:, index] = np.round(times[:, index] / tick) * tick
    return times


def entries(times: FloatArray) -> list[Entry]:
    """Return the entries of `compare` for the second arm against the first, in every metric."""
    base, other, copy = times
    # As `control_difference` does for cases of one step, from pairs of rounds.
    changes = np.expm1(np.median(np.log(copy / base), axis=-1))
    spreads = np.abs(changes)
    sides = [
        Side(name, CompactResult(_header(name), tuple(_cases(arm, spreads))))
        for name, arm in (("baseline", base), ("other", other))
    ]
    found, _ = entries_of([Matchup(*sides)], Criteria())
    return found


def try_runs(noise: Noise, seed: Sequence[int], runs: int) -> Counts:
    """Simulate runs and judge each, unchanged and with one figure slowed."""
    generator = np.random.default_rng(list(seed))
    rules = Rules()
    false: Counter[tuple[str, bool]] = Counter()
    verdicts: Counter[str] = Counter()
    found: Counter[float] = Counter()
    far: Counter[tuple[float, bool]] = Counter()
    for _ in range(runs):
        all_entries = entries(draw(noise, generator))
        judgements = judge_entries(all_entries, rules.correction, rules.alpha)
        for verdict in (Verdict.SLOWER, Verdict.FASTER):
            for primary in (True, False):
                false[verdict.value, primary] += any(
                    each.verdict is verdict and each.exploratory is not primary
                    for each in judgements
                )
        verdicts.update(each.verdict.value for each in judgements if not each.exploratory)
        primary_places = [i for i, each in enumerate(all_entries) if not each.exploratory]
        place = primary_places[int(generator.integers(len(primary_places)))]
        for slowdown in SLOWDOWNS:
            slowed, is_far = _slowed(all_entries, place, slowdown)
            judgement = judge_entries(slowed, rules.correction, rules.alpha)[place]
            hit = judgement.verdict is Verdict.SLOWER
            found[slowdown] += hit
            if is_far:
                far[slowdown, hit] += 1
    return Counts(runs, false, verdicts, found, far)


def _slowed(all_entries: Sequence[Entry], place: int, slowdown: float) -> tuple[list[Entry], bool]:
    """Return the entries with one slowed by a share, and whether that is far beyond its margin.

    A factor on every sample adds its logarithm to the estimate and changes nothing else.
    """
    entry = all_entries[place]
    slowed = list(all_entries)
    outcome, margin = entry.outcome, entry.margin
    if not isinstance(outcome, Estimate) or margin is None:
        return slowed, False
    shift = math.log1p(slowdown)
    moved = replace(outcome, location=outcome.location + shift)
    changed = Entry(**{name: getattr(entry, name) for name in Entry.__slots__})
    changed.outcome = moved
    slowed[place] = changed
    (_, end), (below, _) = margin.logs, entry.systematic.reach(margin)
    return slowed, shift >= end + below + FAR * outcome.error


def _drift(generator: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    steps = generator.normal(size=shape) * DRIFT
    level = np.empty_like(steps)
    level[..., 0] = steps[..., 0]
    for index in range(1, shape[-1]):
        kept = DRIFT_KEPT * level[..., index - 1]
        level[..., index] = kept + (1 - DRIFT_KEPT**2) ** 0.5 * steps[..., index]
    return level


def _instances() -> list[int]:
    """Return the instance of each round; instances take turns, two rounds each."""
    return [index // 2 % INSTANCES for index in range(ROUNDS)]


def _cases(times: FloatArray, spreads: FloatArray) -> list[CompactCase]:
    """Convert times [metrics, cases, rounds] and control differences [metrics, cases] to cases."""
    rounds, instances = tuple(range(ROUNDS)), tuple(_instances())
    return [
        CompactCase(
            operation=ops.STEP,
            case=f"case{case}",
            digest=str(case),
            status=Status.OK,
            reason=None,
            check=None,
            launches=None,
            compiled=None,
            instances=instances,
            taken={
                name: Taken(metric_named(name), "step", rounds, times[index, case][:, None])
                for index, name in enumerate(METRICS)
            },
            spreads={name: float(spreads[index, case]) for index, name in enumerate(METRICS)},
        )
        for case in range(CASES)
    ]


def _header(variant: str) -> VariantResult:
    unknown = dict.fromkeys(Environment.model_fields)
    known = {"device": "cuda", "python": "", "platform": "", "interpreted": False}
    environment = unknown | known | {"gpu_count": 0, "gpus": [], "bt_bench": ""}
    return VariantResult(
        run_id="simulated",
        created="",
        complete=True,
        tool=Tool(version="", command=[]),
        environment=Environment.model_validate(environment),
        config="simulated",
        plan=Plan(),
        variant=VariantInfo(name=variant, summary="", source_sha256=""),
        cases=[],
    )


def simulate(runs: int, seed: int, processes: int) -> dict[Noise, Counts]:
    """Simulate runs of every kind of noise, in several processes."""
    chunks = max(1, min(runs, 8 * processes))
    sizes = [runs // chunks + (index < runs % chunks) for index in range(chunks)]
    found: dict[Noise, Counts] = {}
    with ProcessPoolExecutor(processes) as pool:
        for kind, noise in enumerate(Noise):
            seeds = [(seed, kind, index) for index in range(chunks)]
            counted = list(pool.map(try_runs, [noise] * chunks, seeds, sizes))
            total = counted[0]
            for counts in counted[1:]:
                total = total + counts
            found[noise] = total
            print(f"{noise}: {runs} runs", file=sys.stderr)
    return found


def document(found: dict[Noise, Counts], seed: int) -> dict[str, object]:
    """Return all counts, for `compare-rates.json`."""
    return {
        "schema_version": 1,
        "seed": seed,
        "alpha": Rules().alpha,
        "cases": CASES,
        "metrics": list(METRICS),
        "rounds": ROUNDS,
        "instances": INSTANCES,
        "noises": [
            {
                "noise": TITLES[noise],
                "runs": counts.runs,
                "false": [
                    {"verdict": verdict, "primary": primary, "runs": count}
                    for (verdict, primary), count in sorted(counts.false.items())
                ],
                "verdicts": dict(sorted(counts.verdicts.items())),
                "found": [
                    {
                        "slowdown": slowdown,
                        "found": counts.found[slowdown],
                        "far": counts.far[slowdown, True] + counts.far[slowdown, False],
                        "far_found": counts.far[slowdown, True],
                    }
                    for slowdown in SLOWDOWNS
                ],
            }
            for noise, counts in found.items()
        ],
    }


def read(counted: Mapping[str, Any]) -> dict[Noise, Counts]:
    """Return the counts stored by `document`."""
    noises = {title: noise for noise, title in TITLES.items()}
    found = {}
    for each in counted["noises"]:
        far: Counter[tuple[float, bool]] = Counter()
        for of in each["found"]:
            far[of["slowdown"], True] = of["far_found"]
            far[of["slowdown"], False] = of["far"] - of["far_found"]
        found[noises[each["noise"]]] = Counts(
            runs=each["runs"],
            false=Counter({(of["verdict"], of["primary"]): of["runs"] for of in each["false"]}),
            verdicts=Counter(each["verdicts"]),
            found=Counter({of["slowdown"]: of["found"] for of in each["found"]}),
            far=far,
        )
    return found


def page(found: dict[Noise, Counts]) -> Document:
    """Return the page `compare-rates.md`."""
    runs = next(iter(found.values())).runs
    columns = [(verdict, primary) for primary in (True, False) for verdict in FALSE]
    false = [
        [_rate(counts.false[column], counts.runs) for column in columns]
        for counts in found.values()
    ]
    slowed, verdicts = [], []
    for counts in found.values():
        hits = sum(counts.far[each, True] for each in SLOWDOWNS)
        total = hits + sum(counts.far[each, False] for each in SLOWDOWNS)
        rates = [_rate(counts.found[each], counts.runs) for each in SLOWDOWNS]
        slowed.append([*rates, _rate(hits, total)])
        total = sum(counts.verdicts.values())
        same, unknown = (100 * counts.verdicts[name] / total for name in ("SAME", "INCONCLUSIVE"))
        verdicts.append([f"{same:.1f}", f"{unknown:.1f}", f"{abs(100 - same - unknown):.2f}"])
    sections = (
        (
            "False verdicts",
            "Runs of equal code with a false verdict, in percent; alpha is "
            f"{100 * Rules().alpha:g} % for each column.",
            [f"{kind} {verdict}" for kind in ("primary", "exploratory") for verdict in FALSE],
            false,
        ),
        (
            "What is found",
            "One primary figure slowed: how often it is called SLOWER, in percent of the runs; and "
            "of those runs in which the slowdown is beyond the figure's margin by "
            f"{FAR} standard errors.",
            [*(f"+{100 * each:g} %" for each in SLOWDOWNS), "beyond"],
            slowed,
        ),
        (
            "Verdicts",
            "On the primary figures of equal code, in percent.",
            ["SAME", "INCONCLUSIVE", "other"],
            verdicts,
        ),
    )
    lead = (
        f"{runs:,} simulated runs of each kind of noise, by python studies/compare_rates.py: "
        f"{CASES} cases with {ROUNDS} rounds of {INSTANCES} instances, two primary metrics and "
        f"{len(METRICS) - 2} exploratory ones, and a control. In brackets: intervals at 95 %."
    )
    titles = [TITLES[noise] for noise in found]
    return Document(
        "How often compare errs",
        (lead,),
        tuple(
            Section(title, (about, _table(titles, columns, rows)))
            for title, about, columns, rows in sections
        ),
    )


def _table(titles: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    lines = zip(titles, rows, strict=True)
    cells = tuple(tuple(map(Cell, (title, *row))) for title, row in lines)
    return Table(("noise", *columns), cells, 1)


def _rate(count: int, total: int) -> str:
    if not total:
        return "–"
    interval = wilson_interval(count, total)
    return f"{100 * count / total:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def main() -> int:
    """Simulate, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="of each kind of noise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--render", action="store_true", help="simulate nothing; read DIR")
    args = parser.parse_args()
    stored = args.out / "compare-rates.json"
    if not args.render:
        counted = document(simulate(args.runs, args.seed, args.processes), args.seed)
        args.out.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")
    found = read(json.loads(stored.read_text(encoding="utf-8")))
    text = render_document(page(found))
    (args.out / "compare-rates.md").write_text(text, encoding="utf-8")
    print_document(page(found))
    certain = [
        wilson_interval(count, counts.runs).low > Rules().alpha
        for counts in found.values()
        for count in counts.false.values()
    ]
    return 1 if any(certain) else 0


if __name__ == "__main__":
    sys.exit(main())
