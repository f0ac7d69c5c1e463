"""Simulate a sweep on many GPUs: how its cases are divided, what fails, and what it costs.

    python studies/scale.py --out reports/scale

Needs no GPU and takes half a minute. Nothing in it is measured on many GPUs. The lengths and the
sizes of cases are those of the runs in `reports/` that say how long their rounds took; starts are
those that `bt-bench sweep` announces a sweep's length by. Rates of failures, slow GPUs and waits
are assumptions, and options.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import lzma
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import ROOT, table, write_report

from bt_bench.report import Document, Section
from bt_bench.results import CONFIG_NAME, RunFolder, read_run
from bt_bench.runs.estimate import COMPILING_S, CONFORMANCE_S, START_S

Seconds = npt.NDArray[np.float64]

ARMS = 4  # of a sweep: three variants and a baseline
SMALL = (4, 16, 64)  # shards per GPU
RATES = (0.01, 0.1, 1.0)  # failures per GPU and hour


@dataclass(frozen=True)
class Fleet:
    """GPUs, and their misfortunes.

    Args:
        gpus: their number.
        rate: failures per GPU and hour of work, at random moments.
        away_s: from a failure to the moment when its GPU and its shard may start again.
        slow_share: share of GPUs that are slow.
        slow_factor: how many times as long a slow GPU takes for everything.
        start_s: from the start of a shard, or of its continuation, to its first case.
        anew: a shard that failed is begun anew, as `sweep --cluster` has to on another GPU;
            otherwise it goes on from the case that was cut off, as on its own GPU.
    """

    gpus: int = 1000
    rate: float = 0.01
    away_s: float = 180.0
    slow_share: float = 0.02
    slow_factor: float = 1.5
    start_s: float = START_S + ARMS * CONFORMANCE_S
    anew: bool = True

    def factors(self) -> list[float]:
        """Return how many times as long each GPU takes; slow ones are spread evenly."""
        slow = round(self.gpus * self.slow_share)
        return [
            self.slow_factor if (index * slow) % self.gpus < slow else 1.0
            for index in range(self.gpus)
        ]


@dataclass(frozen=True)
class Lengths:
    """A lognormal distribution of the seconds that a case takes.

    Args:
        median_s: its median.
        sigma: standard deviation of the logarithm.
        cases: number of cases that it was fitted to.
    """

    median_s: float
    sigma: float
    cases: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Lengths:
        """Fit the distribution to lengths."""
        logs = np.log(seconds)
        return cls(float(np.exp(logs.mean())), float(logs.std(ddof=1)), len(seconds))

    def draw(self, cases: int, seed: int) -> Seconds:
        """Draw the lengths of cases."""
        drawn = np.random.default_rng(seed).standard_normal(cases)
        return np.asarray(self.median_s * np.exp(self.sigma * drawn))


@dataclass(frozen=True)
class Outcome:
    """Hold the figures of a simulated sweep.

    Args:
        makespan_s: until its last case is done.
        ideal_s: the least possible: one start, then all GPUs at work until all end together.
        starts: number of starts of workers.
        failures: number of workers that failed.
        lost_s: seconds of GPUs for cases that a failure cut off, and for starts in vain.
        starting_s: seconds of GPUs for starts.
        gpus: number of GPUs.
    """

    makespan_s: float
    ideal_s: float
    starts: int
    failures: int
    lost_s: float
    starting_s: float
    gpus: int

    @property
    def of_all(self) -> float:
        """The GPUs' seconds, from the start to the end."""
        return self.makespan_s * self.gpus


def by_hash(lengths: Seconds, shards: int, seed: int) -> list[Seconds]:
    """Divide cases as `--shard K/N` does: each by itself, evenly at random."""
    chosen = np.random.default_rng([seed, 1]).integers(shards, size=len(lengths))
    order = np.argsort(chosen, kind="stable")
    bounds = np.searchsorted(chosen[order], np.arange(1, shards))
    return np.split(lengths[order], bounds)


def balanced(lengths: Seconds, shards: int, seed: int, noise: float = 0.1) -> list[Seconds]:
    """Divide cases as `--balance RUN` does: the longest first, each to the emptiest shard.

    Args:
        lengths: seconds of the cases.
        shards: number of shards.
        seed: of the noise.
        noise: how far, as a share, a case took longer or shorter in the earlier run.
    """
    normal = np.random.default_rng([seed, 2]).standard_normal(len(lengths))
    earlier = lengths * np.exp(noise * normal)
    filled = [(0.0, shard) for shard in range(shards)]
    chosen = np.empty(len(lengths), dtype=np.int64)
    for case in np.argsort(-earlier, kind="stable"):
        seconds, shard = filled[0]
        chosen[case] = shard
        heapq.heapreplace(filled, (seconds + float(earlier[case]), shard))
    order = np.argsort(chosen, kind="stable")
    bounds = np.searchsorted(chosen[order], np.arange(1, shards))
    return np.split(lengths[order], bounds)


def play(shards: Sequence[Seconds], fleet: Fleet, seed: int) -> Outcome:
    """Play a sweep: whichever GPU is free takes the next shard, and keeps it until it fails.

    A shard that failed waits, then is taken by whichever GPU is free. Shards are taken in their
    order.
    """
    rng = np.random.default_rng([seed, 3])
    ends = [np.concatenate([[0.0], np.cumsum(shard)]) for shard in shards]
    factors = fleet.factors()
    waiting = deque((shard, 0) for shard in range(len(shards)) if len(shards[shard]))
    idle = list(range(fleet.gpus))
    heapq.heapify(idle)
    # By time: a GPU that is free again, and a shard with its next case to be continued, if any.
    events: list[tuple[float, int, tuple[int, int] | None]] = []
    now = lost_s = starting_s = makespan_s = 0.0
    starts = failures = 0
    while waiting or events:
        while waiting and idle:
            gpu = heapq.heappop(idle)
            shard, case = waiting.popleft()
            starts += 1
            start_s, factor = fleet.start_s * factors[gpu], factors[gpu]
            whole_s = start_s + factor * float(ends[shard][-1] - ends[shard][case])
            fails_s = rng.exponential(3600 / fleet.rate) if fleet.rate else math.inf
            if fails_s >= whole_s:
                makespan_s = max(makespan_s, now + whole_s)
                starting_s += start_s
                heapq.heappush(events, (now + whole_s, gpu, None))
                continue
            failures += 1
            worked_s = 0.0 if fleet.anew else max(0.0, fails_s - start_s) / factor
            done = int(np.searchsorted(ends[shard], ends[shard][case] + worked_s, "right")) - 1
            lost_s += fails_s - factor * float(ends[shard][done] - ends[shard][case])
            if done > case:
                starting_s, lost_s = starting_s + start_s, lost_s - start_s
            heapq.heappush(events, (now + fails_s + fleet.away_s, gpu, (shard, done)))
        if events:
            now, gpu, again = heapq.heappop(events)
            heapq.heappush(idle, gpu)
            if again is not None:
                waiting.appendleft(again)
    speed = sum(1 / factor for factor in factors)
    ideal_s = fleet.start_s + sum(float(each[-1]) for each in ends) / speed
    return Outcome(makespan_s, ideal_s, starts, failures, lost_s, starting_s, fleet.gpus)


def strategies(lengths: Seconds, gpus: int, seed: int) -> Mapping[str, list[Seconds]]:
    """Return the shards of each way to divide cases, by its name."""
    small = {
        f"{gpus * each:,} by hash, to whichever GPU is free": by_hash(lengths, gpus * each, seed)
        for each in SMALL
    }
    return {
        f"{gpus:,} by hash": by_hash(lengths, gpus, seed),
        f"{gpus:,} balanced by an earlier run": balanced(lengths, gpus, seed),
        **small,
        f"{gpus * SMALL[1]:,} balanced, to whichever GPU is free": balanced(
            lengths, gpus * SMALL[1], seed
        ),
    }


@dataclass(frozen=True)
class Committed:
    """Facts of the runs in `reports/`.

    Args:
        seconds: of each case with all of its operations, on one GPU.
        bytes_of: size of a case of one variant in the result file, in each run.
        packed: size of all result files by `xz`, as a share of their size.
    """

    seconds: Sequence[float]
    bytes_of: Sequence[float]
    packed: float

    @classmethod
    def read(cls, reports: Path) -> Committed:
        """Read all runs on a GPU that say how long the rounds of their cases took."""
        seconds: list[float] = []
        bytes_of: list[float] = []
        sizes = [0, 0]
        for config in sorted(reports.glob(f"**/{CONFIG_NAME}")):
            folder = RunFolder(config.parent)
            results = read_run(folder)
            if results[0].environment.device != "cuda":
                continue
            packed = [path.read_bytes() for path in folder.result_paths()]
            plain = sum(len(lzma.decompress(each)) for each in packed)
            sizes[0] += plain
            sizes[1] += sum(map(len, packed))
            cases = sum(len(result.cases) for result in results)
            bytes_of.append(plain / cases)
            compiling_s = len(results) * COMPILING_S["cuda"]
            by_name: dict[str, float] = {}
            for case in results[0].cases:
                if case.stopping is not None:
                    rounds_s = by_name.get(case.case, 0.0)
                    by_name[case.case] = rounds_s + case.stopping.seconds + compiling_s
            seconds += by_name.values()
        return cls(seconds, bytes_of, sizes[1] / sizes[0])


def _row(name: str, outcome: Outcome) -> list[str]:
    return [
        name,
        _minutes(outcome.makespan_s),
        f"{outcome.makespan_s / outcome.ideal_s:.2f}",
        f"{outcome.failures:,}",
        _minutes(outcome.lost_s),
        f"{100 * outcome.starting_s / outcome.of_all:.1f} %",
    ]


HEAD = ("time", "× ideal", "failures", "lost, of all GPUs", "starts, of their time")


def report(
    committed: Committed, fleet: Fleet, counts: Sequence[int], seed: int
) -> tuple[Document, dict[str, object]]:
    """Play all strategies, and all rates of failures for one of them.

    Returns:
        The page, and what was found as data.
    """
    fitted = Lengths.of(committed.seconds)
    sections: list[Section] = []
    found: dict[str, object] = {}
    for cases in counts:
        lengths = fitted.draw(cases, seed)
        outcomes = {
            name: play(shards, fleet, seed)
            for name, shards in strategies(lengths, fleet.gpus, seed).items()
        }
        found[f"{cases} cases"] = {
            name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()
        }
        ideal = _minutes(next(iter(outcomes.values())).ideal_s)
        rows = [_row(name, outcome) for name, outcome in outcomes.items()]
        made = table(("shards", *HEAD), rows, 1)
        title = f"{cases:,} cases on {fleet.gpus:,} GPUs; ideal: {ideal}"
        sections.append(Section(title, (made,)))
    cases = counts[-1]
    shards = by_hash(fitted.draw(cases, seed), fleet.gpus * SMALL[1], seed)
    rates = {
        f"{rate:g}, then {'anew' if anew else 'on from that case'}": play(
            shards, dataclasses.replace(fleet, rate=rate, anew=anew), seed
        )
        for rate in RATES
        for anew in (True, False)
    }
    found["rates"] = {name: dataclasses.asdict(outcome) for name, outcome in rates.items()}
    rows = [_row(name, outcome) for name, outcome in rates.items()]
    made = table(("failures per GPU and hour", *HEAD), rows, 1)
    title = f"{cases:,} cases in {fleet.gpus * SMALL[1]:,} shards by hash, by rate of failures"
    sections.append(Section(title, (made,)))
    smallest, largest = min(committed.bytes_of), max(committed.bytes_of)
    rows = [
        [f"{cases:,}", *(_size(cases * ARMS * each) for each in (smallest, largest)),
         *(_size(cases * ARMS * each * committed.packed) for each in (smallest, largest))]
        for cases in counts
    ]  # fmt: skip
    columns = ("cases", "plain, brief plan", "plain, full plan", "by xz, brief", "by xz, full")
    sections.append(Section(f"Size of the results of {ARMS} variants", (table(columns, rows, 1),)))
    lead = (
        f"Simulated, seed {seed}. Lengths: lognormal, median {fitted.median_s:.1f} s, sigma "
        f"{fitted.sigma:.2f}, fitted to {fitted.cases} cases. A start takes {fleet.start_s:.0f} s. "
        f"{100 * fleet.slow_share:g} % of the GPUs take {fleet.slow_factor:g} times as long. A "
        f"worker fails {fleet.rate:g} times per GPU and hour; after {fleet.away_s:g} s its shard "
        f"is {'begun anew' if fleet.anew else 'continued from the case that was cut off'}.",
    )
    found |= {"fleet": dataclasses.asdict(fleet), "lengths": dataclasses.asdict(fitted)}
    return Document("Sweeps on many GPUs, simulated", lead, tuple(sections)), found


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=Path("reports/scale"))
    parser.add_argument("--cases", type=int, nargs="+", default=[20_000, 1_000_000])
    parser.add_argument("--seed", type=int, default=0)
    for field in dataclasses.fields(Fleet):
        option = f"--{field.name.replace('_', '-')}"
        if field.name == "anew":
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=True)
        else:
            parser.add_argument(option, type=type(field.default), default=field.default)
    chosen = vars(parser.parse_args(arguments))
    fleet = Fleet(**{field.name: chosen[field.name] for field in dataclasses.fields(Fleet)})
    committed = Committed.read(ROOT / "reports")
    page, found = report(committed, fleet, chosen["cases"], chosen["seed"])
    write_report(chosen["out"], "scale", page, found)


if __name__ == "__main__":
    main()
