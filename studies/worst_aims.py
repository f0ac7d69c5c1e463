"""The results of `worst.py` over all cases: the table of aims, and whether they are reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from measured import Measured
from worst_arms import DEVICE, HOST_STAGE, NEW, ONE_LAUNCH, TO_SYNC
from worst_figures import DELAY_US, CaseFigures, Ratio, figures_of
from worst_runs import Left

from bt_bench.analysis import PlainCopy, median
from bt_bench.results import Status

SHORT_US = (0, 12, 14, 18)  # bounds of host + stage, for the rates of delays
SHOWN = 5  # case names listed in a line


@dataclass(frozen=True)
class Row:
    """A line of the table of aims.

    Args:
        title: name of the quantity.
        values: value of each case to which the aim applies.
        lower_is_better: whether lower values are better.
        worst_aim: aim of the worst case; `None`: no case may be resolved as slower.
        median_aim: aim of the median; `None`: there is none.
        missing: number of cases without a value.
        unknown: cases that lack a value they should have; the opponent's unsupported cases may
            lack one.
        slower: cases resolved as slower, where these decide.
        optional: whether the aim is met when it applies to no case.
    """

    title: str
    values: Mapping[str, float]
    lower_is_better: bool = False
    worst_aim: float | None = None
    median_aim: float | None = None
    missing: int = 0
    unknown: Sequence[str] = ()
    slower: Sequence[str] | None = None
    optional: bool = False

    @property
    def worst(self) -> tuple[str, float] | None:
        """The worst case and its value; `None` without any."""
        choose = max if self.lower_is_better else min
        return choose(self.values.items(), key=lambda item: item[1], default=None)

    @property
    def best(self) -> tuple[str, float] | None:
        """The best case and its value; `None` without any."""
        choose = min if self.lower_is_better else max
        return choose(self.values.items(), key=lambda item: item[1], default=None)

    @property
    def median(self) -> float | None:
        """The median over all cases; `None` without any."""
        return median(list(self.values.values())) if self.values else None

    def worst_met(self) -> bool | None:
        """Return whether the worst case reaches its aim; `None` without any case."""
        if self.worst is None:
            return None
        if self.worst_aim is None:
            return not self.slower
        return self._reaches(self.worst[1], self.worst_aim)

    def median_met(self) -> bool | None:
        """Return whether the median reaches its aim; `None` without a case, or an aim."""
        if self.median is None or self.median_aim is None:
            return None
        return self._reaches(self.median, self.median_aim)

    def _reaches(self, value: float, aim: float) -> bool:
        return value <= aim if self.lower_is_better else value >= aim

    def met(self) -> bool:
        """Return whether all values are known and all aims reached."""
        if self.unknown:
            return False
        if not self.values and not self.missing:
            return self.optional
        return bool(self.worst_met()) and (self.median_aim is None or bool(self.median_met()))


@dataclass(frozen=True)
class Worst:
    """All results.

    Args:
        variant: the judged variant.
        opponent: the variant that it is compared with.
        cases: figures by case name.
        rows: the table of aims.
        measured: provenance of the runs; `None` without any.
        facts: lines about runs and machine.
        problems: lines about failures.
    """

    variant: str
    opponent: str
    cases: Mapping[str, CaseFigures]
    rows: Sequence[Row]
    measured: Measured | None = None
    facts: Sequence[str] = ()
    problems: Sequence[str] = ()

    def succeeded(self) -> bool:
        """Return whether every aim is reached and nothing went wrong; unknown is not reached."""
        reached = all(row.met() for row in self.rows)
        return bool(self.cases) and reached and not self.problems


def worst_of(
    runs: Sequence[Left],
    copy: PlainCopy | None,
    variant: str = ONE_LAUNCH,
    opponent: str = NEW,
    problems: Sequence[str] = (),
    expected: Collection[str] = (),
) -> Worst:
    """Compute all results.

    Args:
        runs: results of the sweeps.
        copy: times of plain copies; `None` if unknown.
        variant: the judged variant.
        opponent: the variant that it is compared with.
        problems: problems so far.
        expected: cases that the runs must have, as `CONFIG/CASE`.
    """
    problems = [*problems, *_mixed(runs)]
    unsupported = {
        f"{left.config}/{case.case}"
        for left in runs
        for case in (left.results[opponent].cases if opponent in left.results else ())
        if case.status is Status.UNSUPPORTED
    }
    cases: dict[str, CaseFigures] = {}
    for left in runs:
        if not all(result.header.complete for result in left.results.values()):
            problems.append(f"{left.name}: the run did not come to its end")
        problems += _problems_of(left, variant, opponent)
        for figures in figures_of(left, copy, variant, opponent):
            if figures.name in cases:
                problems.append(f"{left.name}: {figures.name} is in another run, too")
            cases.setdefault(figures.name, figures)
    if not cases:
        problems.append(f"no run has a case of {variant}")
    if copy is None:
        problems.append("how long plain copies take is not known")
    lacking = sorted(set(expected) - set(cases))
    if lacking:
        shown = ", ".join(lacking[:SHOWN]) + ", …" * (len(lacking) > SHOWN)
        problems.append(f"{len(lacking)} cases have not been measured: {shown}")
    rows = rows_of(list(cases.values()), opponent, unsupported)
    facts = [*_facts(runs, copy), *_tails_in_us(list(cases.values()), variant, opponent)]
    headers = [result.header for left in runs for result in left.results.values()]
    measured = Measured.of(headers) if headers else None
    return Worst(variant, opponent, cases, rows, measured, facts, problems)


def rows_of(
    cases: Sequence[CaseFigures], opponent: str, unsupported: Collection[str] = ()
) -> list[Row]:
    """Return the table of aims over all cases.

    Args:
        cases: figures of the cases.
        opponent: name of the opponent.
        unsupported: cases that the opponent does not support; they may lack its ratios.
    """

    def ratios(chosen: Callable[[CaseFigures], Ratio]) -> dict[str, float]:
        found = {each.name: chosen(each).value for each in cases}
        return {name: value for name, value in found.items() if value is not None}

    host = ratios(lambda each: each.against[HOST_STAGE])
    device = ratios(lambda each: each.against[DEVICE])
    beside = ratios(lambda each: each.beside[TO_SYNC])
    by_name = {each.name: each for each in cases}
    bound = {name: by_name[name].is_copy_bound for name in device}
    speeds = {name: by_name[name].copy_speed for name, at in bound.items() if at}
    tails = {each.name: each.tail.ratio for each in cases if each.tail is not None}
    unknown = [name for name, at in bound.items() if at is None]
    unknown += [name for name, speed in speeds.items() if speed is None]
    no_device = len(cases) - len(device) + len(unknown)

    def lacking(found: Collection[str]) -> list[str]:
        return [each.name for each in cases if each.name not in {*found, *unsupported}]

    return [
        Row(
            f"host + stage: times less than {opponent}",
            host,
            worst_aim=8,
            median_aim=13,
            missing=len(cases) - len(host),
            unknown=lacking(host),
        ),
        Row(
            f"GPU: times less than {opponent}, where a plain copy of the bytes takes less than a "
            "third of its time",
            {name: value for name, value in device.items() if bound[name] is False},
            worst_aim=1.8,
            median_aim=3,
            missing=no_device,
            unknown=[*lacking(device), *unknown],
        ),
        Row(
            "GPU elsewhere: speed by that of a plain copy",
            {name: value for name, value in speeds.items() if value is not None},
            worst_aim=0.85,
            missing=len(unknown),
            unknown=unknown,
            optional=True,
        ),
        Row(
            "stage to synchronize: times less than the best other shipped variant",
            beside,
            median_aim=1.7,
            missing=len(cases) - len(beside),
            unknown=[each.name for each in cases if each.name not in beside],
            slower=[each.name for each in cases if each.slower_than[TO_SYNC]],
        ),
        Row(
            f"host + stage: p99 over median within a case, over that of {opponent}",
            tails,
            lower_is_better=True,
            worst_aim=1.2,
            median_aim=1,
            missing=len(cases) - len(tails),
            unknown=lacking(tails),
        ),
    ]


def _mixed(runs: Sequence[Left]) -> list[str]:
    """Return the differences in machine, versions or commit between runs judged together."""
    known: dict[str, set[str]] = {}
    for left in runs:
        for result in left.results.values():
            env = result.header.environment
            facts = {
                "device": env.gpus[0].name if env.gpus else "a CPU",
                "driver": env.driver,
                "torch": env.torch,
                "Triton": env.triton,
                "commit": f"{env.commit}{' with changes' * bool(env.dirty)}",
            }
            for name, value in facts.items():
                known.setdefault(name, set()).add(str(value))
    return [
        f"runs are not of one {name}: {', '.join(sorted(values))}"
        for name, values in known.items()
        if len(values) > 1
    ]


def _problems_of(left: Left, variant: str, opponent: str) -> list[str]:
    """Return missing variants, failed cases, and cases whose workload has changed since."""
    result = left.results.get(variant)
    if result is None:
        return [f"{left.name}: has no results of {variant}"]
    wanted = {*left.variants, opponent} - left.results.keys()
    found = [f"{left.name}: has no results of {name}" for name in sorted(wanted)]
    for name, other in left.results.items():
        found += [
            f"{left.name}, {case.key}: {name} failed: {case.reason}"
            for case in other.cases
            if case.status is Status.FAILED
        ]
        found += [
            f"{left.name}, {case.key}: {name} has no measurements"
            for case in other.cases
            if case.status is Status.OK and not case.taken
        ]
    for case in result.cases:
        if case.digest != left.sizes[case.case].digest:
            found.append(f"{left.name}, {case.key}: left out, as its workload has changed since")
    return found


def _tails_in_us(cases: Sequence[CaseFigures], variant: str, opponent: str) -> list[str]:
    """Return how far 99th percentiles lie above medians in µs, to complement the aims' ratios.

    The duration of a host disturbance does not depend on the step, which makes it a greater share
    of a shorter time.
    """
    found: dict[str, list[float]] = {variant: [], opponent: []}
    for each in cases:
        us = each.us[HOST_STAGE]
        if each.tail is not None and found.keys() <= us.keys():
            found[variant].append(us[variant] * (each.tail.ours - 1))
            found[opponent].append(us[opponent] * (each.tail.theirs - 1))
    if not found[variant]:
        return []
    ours, theirs = median(found[variant]), median(found[opponent])
    return [
        *_delays(cases, variant),
        f"99th percentiles of host + stage lie {ours:.3g} µs above the median with {variant}, and "
        f"{theirs:.3g} µs with {opponent} (medians over {len(found[variant])} cases)",
    ]


def _delays(cases: Sequence[CaseFigures], variant: str) -> Iterator[str]:
    """Yield the rates of delayed steps, per step and per measured millisecond.

    Outside disturbances, such as a system timer, occur at a constant rate per millisecond, and so
    hit more of the longer steps.
    """
    for low, high in pairwise(SHORT_US):
        tails = [
            each.tail
            for each in cases
            if each.tail is not None and low <= each.us[HOST_STAGE].get(variant, 0.0) < high
        ]
        measured_ms = sum(tail.measured_us for tail in tails) / 1000
        if measured_ms:
            delayed, samples = (sum(getattr(t, n) for t in tails) for n in ("delayed", "samples"))
            yield (
                f"Of {samples:,} steps with {variant} in cases of {low:g} to {high:g} µs, "
                f"{delayed / samples:.2%} take {DELAY_US:g} µs or more above the median of their "
                f"case: {delayed / measured_ms:.2f} for each ms that was measured"
            )


def _facts(runs: Sequence[Left], copy: PlainCopy | None) -> list[str]:
    facts = []
    for left in runs:
        header = next(iter(left.results.values())).header
        env = header.environment
        where = env.gpus[0].name if env.gpus else "a CPU"
        facts.append(
            f"{left.name}: {len(left.order)} cases, {header.run_id} on {where}, driver "
            f"{env.driver}, torch {env.torch}, Triton {env.triton}, Python {env.python}, commit "
            f"{(env.commit or 'unknown')[:12]}{' with changes' * bool(env.dirty)}"
        )
    if copy is not None:
        facts.append(
            "A plain copy is destination.copy_(source) of half the bytes that a step must read and "
            f"write at least, so that it moves as many in all; its time is {copy.source}"
        )
    return facts
