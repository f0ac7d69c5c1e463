"""Compact results: the fields that a comparison needs, with samples in arrays.

Thousands of cases in this form compare fast. Each case of a file is compacted as soon as it is
parsed, by the same code as in `bt_bench.results.files.reading.read_result`: both refuse the same
files, with the same messages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bt_bench.base import name_of, read_text
from bt_bench.base.names import Operation
from bt_bench.results.files.journals import has_journal, stale_journal
from bt_bench.results.files.parsing import KnownTexts
from bt_bench.results.files.reading import parse_with, read_result, read_run_with
from bt_bench.results.run.case import (
    CaseResult,
    CheckReport,
    CompiledKernel,
    ControlSpread,
    LaunchCensus,
    Measurement,
)
from bt_bench.results.run.metrics import Metric, metric_of
from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Method, Quantity, Series, Status
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.rows import typical_of
from bt_bench.results.run.series import FloatArray

Rounds = tuple[int, ...]
Launches = tuple[tuple[tuple[str, str, int], ...], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """The samples of one series of a case.

    Args:
        metric: the metric of the series.
        per: the extent of a sample: `step` or `window`.
        rounds: indices into the case's log, ascending. [R]
        samples: in µs. [R, S], with S steps, or 1
    """

    metric: Metric
    per: str
    rounds: Rounds
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Binaries:
    """The binaries of one kernel: their number, and the maxima of registers and spilled bytes."""

    count: int
    registers: int | None
    spills: int | None


@dataclass(frozen=True, slots=True)
class CompactCase:
    """A case; see `bt_bench.results.run.case.CaseResult`.

    Args:
        operation: its operation.
        case: its name.
        digest: digest of its workload.
        status: how it ended.
        reason: why it is not ok, or why part of it was not measured; `None` otherwise.
        check: the comparison with the reference; `None` if unknown.
        launches: kind, name and count of the launches in each step of the window; `None` if not
            counted.
        compiled: binaries by kernel name; `None` if unknown.
        instances: instance of each round of the log.
        taken: samples by metric name.
        spreads: by metric name, the difference of an unchanged copy, as a share.
        part: in a merged result, the index of its part.
    """

    operation: Operation
    case: str
    digest: str
    status: Status
    reason: str | None
    check: CheckReport | None
    launches: Launches | None
    compiled: Mapping[str, Binaries] | None
    instances: Rounds
    taken: Mapping[str, Taken]
    spreads: Mapping[str, float]
    part: int | None = None

    @property
    def key(self) -> str:
        """Operation and name."""
        return f"{self.operation}/{self.case}"

    def measured(self, metric: Metric) -> Taken | None:
        """Return the samples of a metric; a sum has only the rounds that all its terms have."""
        if not metric.terms:
            return self.taken.get(metric.name)
        terms = [self.taken.get(term.name) for term in metric.terms]
        return _added_up(metric, [each for each in terms if each is not None])

    def spread(self, metric: Metric) -> float | None:
        """Return the difference of an unchanged copy, as a share; for a sum, an upper bound."""
        spreads = [self.spreads.get(term.name) for term in metric.terms or (metric,)]
        known = [each for each in spreads if each is not None]
        return max(known) if len(known) == len(spreads) else None


@dataclass(frozen=True)
class CompactResult:
    """A result: the header as in the file, and the cases in compact form.

    `warnings` are clauses about problems found while reading it.
    """

    header: VariantResult
    cases: tuple[CompactCase, ...]
    warnings: tuple[str, ...] = ()


@functools.cache
def metric_by(
    quantity: Quantity, method: Method, launch_path: LaunchPath, load: Load, l2: Cache
) -> Metric:
    """Return the metric of a series given by its parts; see `metric_of`."""
    return metric_of(
        Series(quantity=quantity, method=method, launch_path=launch_path, load=load, l2=l2)
    )


def compacted(result: VariantResult) -> CompactResult:
    """Return a result in compact form."""
    keep = _Keeper().case
    header = result.model_copy(update={"cases": []})
    cases = tuple(map(keep, result.cases))
    return CompactResult(header, cases)


def read_compact(path: Path | str, known: KnownTexts | None = None) -> CompactResult:
    """Read a result file, or standard input for `-`, with the journal of a run under way.

    Args:
        path: the file.
        known: the texts that were read in other files of the run.

    Raises:
        UsageError: with the file, the problem and its place; see `read_result`.
    """
    # Checked first: closing a run puts its cases into the file before it removes the journal.
    under_way = has_journal(path)
    name = name_of(path)
    result = parse_compact(read_text(path, name), name, known)
    if under_way and not result.header.complete:
        return compacted(read_result(path))
    if has_journal(path):
        return replace(result, warnings=(stale_journal(path),))
    return result


def parse_compact(text: str, name: str, known: KnownTexts | None = None) -> CompactResult:
    """Parse a result; see `bt_bench.results.files.reading.parse_result`."""
    header, cases = parse_with(_Keeper().case, text, name, known)
    return CompactResult(header, tuple(cases))


def read_compact_run(folder: Path) -> list[CompactResult]:
    """Read all results of a run, the baseline first; see `reading.read_run`."""
    known = KnownTexts()
    return read_run_with(
        lambda path: read_compact(path, known), lambda result: result.header.variant.name, folder
    )


def _parts(series: Series) -> tuple[Quantity, Method, LaunchPath, Load, Cache]:
    return series.quantity, series.method, series.launch_path, series.load, series.l2


def _added_up(metric: Metric, terms: Sequence[Taken]) -> Taken | None:
    """Return the sum of terms; `None` if one is missing, no round has all, or steps differ."""
    shapes = {(term.per, term.samples.shape[1]) for term in terms}
    if len(terms) < len(metric.terms) or len(shapes) > 1:
        return None
    common = sorted(set(terms[0].rounds).intersection(*(term.rounds for term in terms)))
    if not common:
        return None
    rows = [term.samples[np.searchsorted(term.rounds, common)] for term in terms]
    return Taken(metric, terms[0].per, tuple(common), np.sum(rows, axis=0))


class _Keeper:
    """A converter of cases to compact form, which shares equal lists of rounds."""

    def __init__(self) -> None:
        self._rounds: dict[Rounds, Rounds] = {}

    def case(self, case: CaseResult) -> CompactCase:
        """Return the compact form of a sound case; it has the same arrays of samples."""
        taken = dict(self._taken(case.measurements))
        return CompactCase(
            operation=case.operation,
            case=case.case,
            digest=case.workload.digest,
            status=case.status,
            reason=case.reason.message if case.reason else None,
            check=case.check,
            launches=None if case.launches is None else launches_in(case.launches),
            compiled=_binaries(case.compiled),
            instances=self._once(case.rounds.instance if case.rounds else ()),
            taken=taken,
            spreads=_spreads(case.control_spreads, taken),
            part=case.part,
        )

    def _taken(self, measurements: Iterable[Measurement]) -> Iterator[tuple[str, Taken]]:
        for measurement in measurements:
            metric = metric_by(*_parts(measurement))
            rounds = self._once(measurement.rounds)
            yield metric.name, Taken(metric, measurement.per, rounds, measurement.samples.array)

    def _once(self, rounds: Iterable[int]) -> Rounds:
        as_tuple = tuple(rounds)
        return self._rounds.setdefault(as_tuple, as_tuple)


def launches_in(census: LaunchCensus) -> Launches:
    """Return the counts of a census for each step, sorted."""
    return tuple(
        tuple(sorted((launch.kind, launch.name, launch.count) for launch in step))
        for step in census.steps
    )


def _binaries(compiled: Iterable[CompiledKernel] | None) -> dict[str, Binaries] | None:
    if compiled is None:
        return None
    return {
        kernel.name: Binaries(len(kernel.hashes), _most(kernel.registers), _most(kernel.spills))
        for kernel in compiled
    }


def _most(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _spreads(spreads: Iterable[ControlSpread], taken: Mapping[str, Taken]) -> dict[str, float]:
    found: dict[str, float] = {}
    for spread in spreads:
        metric, share = metric_by(*_parts(spread.series)), spread.share
        if share is None and metric.name in taken:
            # Files of earlier versions lack the share. Take the copy for one of this variant; for a
            # variant faster than the one copied, that overestimates the share.
            scale = typical_of(taken[metric.name].samples) + metric.offset
            share = spread.difference_us / scale if scale > 0 else None
        if share is not None:
            found[metric.name] = max(abs(share), found.get(metric.name, 0.0))
    return found
