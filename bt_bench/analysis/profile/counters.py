"""The hardware counters of each kernel, and their changes from one profile to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bt_bench.analysis.code.kernels import numbered
from bt_bench.analysis.profile.same_step import refuse_another_step
from bt_bench.analysis.statistics.samples import median
from bt_bench.base import format_number
from bt_bench.results import Counter, Counters, KernelCounters, VariantCounters

DRAM = (Counter.DRAM_READ_BYTES, Counter.DRAM_WRITTEN_BYTES)
PCIE = (Counter.PCIE_READ_BYTES, Counter.PCIE_WRITTEN_BYTES)
L2 = (Counter.L2_BYTES,)

SMALLEST_CHANGE = 0.05
"""Figures that scatter count as changed from this share on.

No value of one profile may then lie among the values of the other.
"""

_LIMITS = {
    Counter.LIMIT_REGISTERS: "registers",
    Counter.LIMIT_SHARED: "shared memory",
    Counter.LIMIT_WARPS: "warps",
    Counter.LIMIT_BARRIERS: "barriers",
    Counter.LIMIT_BLOCKS: "programs per SM",
}
# Compared figures, and whether all runs of the same code have equal values.
_COMPARED = {
    Counter.DURATION_NS: ("duration in ns", False),
    Counter.DRAM_READ_BYTES: ("bytes read from DRAM", False),
    Counter.DRAM_WRITTEN_BYTES: ("bytes written to DRAM", False),
    Counter.L2_BYTES: ("bytes moved through the L2", False),
    Counter.PCIE_READ_BYTES: ("bytes read from host memory", False),
    Counter.PCIE_WRITTEN_BYTES: ("bytes written to host memory", False),
    Counter.WARPS_PERCENT: ("% of warps active", False),
    Counter.PROGRAMS: ("programs", True),
    Counter.THREADS: ("threads of a program", True),
    Counter.REGISTERS: ("registers of a thread", True),
}
# Smaller differences of bytes and ns come from the tool itself.
_FLOORS = {Counter.DURATION_NS: 100.0, Counter.WARPS_PERCENT: 2.0}
_FLOOR_BYTES = 1024.0


@dataclass(frozen=True)
class CounterRow:
    """One kernel of a variant's step.

    Args:
        label: its name, with a number if the step launches it several times.
        kernel: its counters.
    """

    label: str
    kernel: KernelCounters

    def median(self, counter: Counter) -> float | None:
        """Return the median over the calls; `None` if the counter was not taken."""
        values = self.kernel.values.get(counter)
        return median(values) if values else None

    def sum(self, counters: Sequence[Counter]) -> float | None:
        """Return the sum of the medians of some counters; `None` if one was not taken."""
        return _sum(self.median(counter) for counter in counters)

    @property
    def us(self) -> float | None:
        """Return its running time, in µs."""
        duration = self.median(Counter.DURATION_NS)
        return None if duration is None else duration / 1e3

    def gb_per_s(self, counters: Sequence[Counter]) -> float | None:
        """Return the bytes of some counters by the duration, in GB/s."""
        moved, duration = self.sum(counters), self.median(Counter.DURATION_NS)
        return None if moved is None or not duration else moved / duration

    @property
    def limiters(self) -> tuple[str, ...]:
        """Return the bounds on resident warps: too few programs, or resources of an SM.

        It is empty if the tool does not report them.
        """
        waves = self.median(Counter.WAVES)
        if waves is not None and waves < 1:
            return ("too few programs",)
        limits = {name: self.median(counter) for counter, name in _LIMITS.items()}
        known = {name: limit for name, limit in limits.items() if limit is not None}
        return tuple(name for name, limit in known.items() if limit == min(known.values()))


@dataclass(frozen=True)
class StallShare:
    """A reason why warps waited at a line.

    Args:
        reason: such as `long scoreboard`.
        place: file and line; `None` if that is not known.
        share: of all samples of the kernel's warps.
    """

    reason: str
    place: str | None
    share: float


def counter_rows(variant: VariantCounters) -> list[CounterRow]:
    """Return the kernels of a variant's step in the order of their launches."""
    labels = numbered([kernel.name for kernel in variant.kernels])
    return list(map(CounterRow, labels, variant.kernels))


def total(rows: Sequence[CounterRow], counters: Sequence[Counter]) -> float | None:
    """Return the sum over all kernels; `None` without kernels, or if one lacks a counter."""
    return _sum(row.sum(counters) for row in rows) if rows else None


def times_required(moved: float | None, counters: Counters) -> float | None:
    """Return bytes as a multiple of the required bytes; `None` where one is not known."""
    required = counters.required_bytes
    return None if moved is None or not required else moved / required


def stall_shares(kernel: KernelCounters, most: int) -> list[StallShare]:
    """Return the main stalls of a kernel's warps, and their places.

    Args:
        kernel: its counters.
        most: the largest number of stalls.
    """
    return [
        StallShare(stall.reason.replace("_", " "), stall.place, stall.samples / kernel.samples)
        for stall in kernel.stalls[:most]
    ]


@dataclass(frozen=True)
class CounterChange:
    """One figure that changed.

    Args:
        variant: the variant of the kernel.
        where: the kernel.
        what: the figure.
        before: its value in the first profile.
        after: its value in the second one.
        more: whether it grew; `None` where it is not a number.
    """

    variant: str
    where: str
    what: str
    before: str
    after: str
    more: bool | None = None


def counter_changes(
    before: Counters, after: Counters, labels: tuple[str, str] = ("before", "now")
) -> list[CounterChange]:
    """Return all changes, growth first.

    Args:
        before: the first profile.
        after: the second one.
        labels: their names in messages.

    Raises:
        NotComparableError: when they are of different GPUs, steps or conditions, or have no variant
            in common.
    """
    refuse_another_step(before, after, labels)
    changes = [
        change
        for variant in after.variants
        if (old := before.variant(variant.name)) is not None
        for change in _of_variant(old, variant)
    ]
    return sorted(changes, key=lambda change: change.more is not True)


def _of_variant(old: VariantCounters, new: VariantCounters) -> Iterator[CounterChange]:
    if old.reason is not None or new.reason is not None:
        if old.reason is None and new.reason is not None:
            yield CounterChange(new.name, "–", "fails", "no", "yes", more=True)
        return
    before = {row.label: row for row in counter_rows(old)}
    after = {row.label: row for row in counter_rows(new)}
    for label in dict.fromkeys((*after, *before)):
        place = CounterChange(new.name, label, "is launched", "no", "yes", more=True)
        if label not in before:
            yield place
        elif label not in after:
            yield replace(place, before="yes", after="no", more=False)
        else:
            yield from _of_kernel(place, before[label], after[label])


def _of_kernel(place: CounterChange, old: CounterRow, new: CounterRow) -> Iterator[CounterChange]:
    for counter, (what, is_exact) in _COMPARED.items():
        was, now = old.median(counter), new.median(counter)
        if was is None or now is None or was == now:
            continue
        if is_exact or _has_changed(counter, old, new):
            shown = [f"{value:.0f}" if is_exact else format_number(value) for value in (was, now)]
            yield replace(place, what=what, before=shown[0], after=shown[1], more=now > was)
    limits = [", ".join(row.limiters) for row in (old, new)]
    if limits[0] != limits[1]:
        yield replace(
            place, what="occupancy limited by", before=limits[0], after=limits[1], more=None
        )


def _has_changed(counter: Counter, old: CounterRow, new: CounterRow) -> bool:
    """Return whether values differ by more than they scatter, and by enough to matter."""
    was, now = old.kernel.values[counter], new.kernel.values[counter]
    apart = max(was) < min(now) or max(now) < min(was)
    difference = abs(median(now) - median(was))
    floor = _FLOORS.get(counter, _FLOOR_BYTES)
    return apart and difference >= max(floor, SMALLEST_CHANGE * median(was))


def _sum(values: Iterable[float | None]) -> float | None:
    result = 0.0
    for value in values:
        if value is None:
            return None
        result += value
    return result
