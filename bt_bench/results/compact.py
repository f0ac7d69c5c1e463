"""What comparing needs of results, with samples in arrays, so that thousands of cases are fast.

A file is read as structs, one case at a time, and only this much is kept of each. It refuses the
same files as `bt_bench.results.reading.read_result` with the same messages, because files that are
wrong are read again by that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from pydantic import ValidationError

from bt_bench.names import Operation
from bt_bench.results.case import CaseResult
from bt_bench.results.collection import no_collection
from bt_bench.results.files import name_of, read_text
from bt_bench.results.invalid import repeated_key
from bt_bench.results.journals import has_journal, stale_journal
from bt_bench.results.metrics import Metric, metric_of
from bt_bench.results.nouns import Cache, LaunchPath, Load, Method, Quantity, Series, Status
from bt_bench.results.reading import parse_result, read_result, read_run_with
from bt_bench.results.result import VariantResult
from bt_bench.results.series import FloatArray
from bt_bench.results.soundness import MOST_COUNT, MOST_TIME_US, are_times, problems
from bt_bench.results.structs import struct_of

_CHUNK = 1000

Rounds = tuple[int, ...]
Launches = tuple[tuple[tuple[str, str, int], ...], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What was measured of one series of a case.

    Args:
        metric: the metric of the series.
        per: what a sample covers: `step` or `window`.
        rounds: indices into the case's log, ascending. [R]
        samples: in µs. [R, S], with S steps, or 1
    """

    metric: Metric
    per: str
    rounds: Rounds
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Binaries:
    """The binaries of one kernel: how many, and the most registers and spilled bytes of them."""

    count: int
    registers: int | None
    spills: int | None


@dataclass(frozen=True, slots=True)
class CompactCase:
    """A case; see `bt_bench.results.case.CaseResult`.

    Args:
        operation: its operation.
        case: its name.
        digest: digest of its workload.
        status: how it ended.
        reason: why it is not ok, if so.
        launches: per step of the window, kind, name and count of each; `None` if not counted.
        compiled: binaries by kernel name; `None` if not known.
        instances: instance of each round of the log.
        taken: samples by metric name.
        spreads: per metric, how much an unchanged copy differed, in µs.
    """

    operation: Operation
    case: str
    digest: str
    status: Status
    reason: str | None
    launches: Launches | None
    compiled: Mapping[str, Binaries] | None
    instances: Rounds
    taken: Mapping[str, Taken]
    spreads: Mapping[str, float]

    @property
    def key(self) -> str:
        """Operation and name."""
        return f"{self.operation.value}/{self.case}"


@dataclass(frozen=True)
class CompactResult:
    """A result: the header as in the file, and the cases in compact form.

    `warnings` are clauses about problems of reading it.
    """

    header: VariantResult
    cases: tuple[CompactCase, ...]
    warnings: tuple[str, ...] = ()


@functools.cache
def metric_by(
    quantity: Quantity, method: Method, launch_path: LaunchPath, load: Load, l2: Cache
) -> Metric:
    """The metric of a series, given by its parts; see `bt_bench.results.metrics.metric_of`."""
    return metric_of(
        Series(quantity=quantity, method=method, launch_path=launch_path, load=load, l2=l2)
    )


def compacted(result: VariantResult) -> CompactResult:
    """What comparing needs of a result."""
    keep = _Keeper().case
    header = result.model_copy(update={"cases": []})
    return CompactResult(header, tuple(keep(case) for case in result.cases))


def read_compact(path: Path | str) -> CompactResult:
    """Reads a result file, or standard input for `-`; with the journal of a run under way.

    Raises:
        UsageError: naming the file, what is wrong with it, and where; see `read_result`.
    """
    # Asked first, since a run that is closed moves its cases into the file before it removes the
    # journal.
    under_way = has_journal(path)
    name = name_of(path)
    result = parse_compact(read_text(path, name), name)
    if under_way and not result.header.complete:
        return compacted(read_result(path))
    if has_journal(path):
        return replace(result, warnings=(stale_journal(path),))
    return result


def parse_compact(text: str, name: str) -> CompactResult:
    """The result in a text; see `bt_bench.results.reading.parse_result`."""
    with no_collection(collect_first=False):
        result = _decode(text)
    return result or compacted(parse_result(text, name))


def read_compact_run(folder: Path) -> list[CompactResult]:
    """All results of a run, the baseline first; see `bt_bench.results.reading.read_run`."""
    return read_run_with(read_compact, lambda result: result.header, folder)


def _decode(text: str) -> CompactResult | None:
    """The result in a text, or `None` for any that is not perfectly valid."""
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        texts = msgspec.json.decode(parts["cases"], type=list[msgspec.Raw])
        parts["cases"] = msgspec.Raw(b"[]")
        header = VariantResult.model_validate_json(msgspec.json.encode(parts), strict=True)
        decode = msgspec.json.Decoder(struct_of(CaseResult)).decode
        keeper = _Keeper()
        cases, checks = [], _Checks()
        for each in texts:
            case: Any = decode(each)
            if not _is_sound(case):
                return None
            kept = keeper.case(case)
            checks.add(kept, case)
            cases.append(kept)
        checks.finish()
        sound = checks.all_possible and _is_sound_whole(header, cases)
        sound = sound and repeated_key(text) is None
    except (msgspec.MsgspecError, ValidationError, UnicodeDecodeError, KeyError, RecursionError):
        return None
    return CompactResult(header, tuple(cases)) if sound else None


def _is_sound_whole(header: VariantResult, cases: list[CompactCase]) -> bool:
    """What `read_result` checks of a result as a whole, besides types."""
    return len({case.key for case in cases}) == len(cases) and not any(problems(header))


def _is_sound(case: Any) -> bool:
    """What `read_result` checks of a case, besides types; without saying what is wrong."""
    log, num_steps = case.rounds, case.workload.num_steps
    if case.key != f"{case.operation.value}/{case.case}":
        return False
    if case.launches is not None and len(case.launches.steps) != num_steps:
        return False
    if log is None:
        return not case.measurements and not case.control
    lists = (log.instance, log.place, log.seconds, log.sm_clock_mhz, log.discarded)
    if any(len(values) != len(log.kind) for values in lists):
        return False
    counting = [why is None for why in log.discarded]
    return all(
        len({_parts(measurement) for measurement in measurements}) == len(measurements)
        and _have_sound_rounds(measurements, counting)
        and all(_has_sound_samples(measurement, num_steps) for measurement in measurements)
        for measurements in (case.measurements, case.control)
    )


class _Checks:
    """Checks of `read_result` that are quicker on many cases at once.

    They are whether times are possible and counts are valid.
    """

    def __init__(self) -> None:
        self.all_possible = True
        self._num_cases = 0
        self._samples: list[FloatArray] = []

    def add(self, kept: CompactCase, case: Any) -> None:
        """Adds a case."""
        self._samples += [taken.samples.ravel() for taken in kept.taken.values()]
        self._samples += [_flat(measurement.samples) for measurement in case.control]
        counts = [count for step in kept.launches or () for _, _, count in step]
        for kernel in case.compiled or ():
            counts += [n for n in (*kernel.registers, *kernel.spills) if n is not None]
        self.all_possible &= (
            (not counts or (min(counts) >= 0 and max(counts) <= MOST_COUNT))
            and len(kept.compiled or ()) == len(case.compiled or ())
            and max(kept.spreads.values(), default=0.0) <= MOST_TIME_US
        )
        self._num_cases += 1
        if self._num_cases % _CHUNK == 0:
            self.finish()

    def finish(self) -> None:
        """Checks the cases added since the last call."""
        if self._samples:
            self.all_possible &= bool(are_times(np.concatenate(self._samples)))
        self._samples = []


def _have_sound_rounds(measurements: list[Any], counting: list[bool]) -> bool:
    """Whether rounds ascend and are not discarded; many measurements share the same ones."""
    known: list[int] = []
    every_one_counts = all(counting)
    for measurement in measurements:
        rounds = measurement.rounds
        if rounds == known:
            continue
        if not rounds or rounds != sorted(set(rounds)) or rounds[-1] >= len(counting):
            return False
        # Usually all rounds count, which is ten times faster to check.
        if not (every_one_counts or all(counting[number] for number in rounds)):
            return False
        known = rounds
    return True


def _has_sound_samples(measurement: Any, num_steps: int) -> bool:
    samples = measurement.samples
    expected = num_steps if measurement.per == "step" else 1
    return 0 < len(samples) == len(measurement.rounds) and set(map(len, samples)) == {expected}


def _parts(series: Any) -> tuple[Quantity, Method, LaunchPath, Load, Cache]:
    return series.quantity, series.method, series.launch_path, series.load, series.l2


class _Keeper:
    """Extracts what is needed of cases, sharing equal lists of rounds."""

    def __init__(self) -> None:
        self._rounds: dict[Rounds, Rounds] = {}

    def case(self, case: Any) -> CompactCase:
        """A case, as noun or as struct."""
        return CompactCase(
            operation=case.operation,
            case=case.case,
            digest=case.workload.digest,
            status=case.status,
            reason=case.reason.message if case.reason else None,
            launches=_launches(case.launches),
            compiled=_binaries(case.compiled),
            instances=self._once(case.rounds.instance if case.rounds else ()),
            taken=dict(self._taken(case.measurements)),
            spreads=_spreads(case.control_spreads),
        )

    def _taken(self, measurements: Iterable[Any]) -> Iterator[tuple[str, Taken]]:
        for measurement in measurements:
            rows = measurement.samples
            samples = _flat(rows).reshape(len(rows), -1)
            metric = metric_by(*_parts(measurement))
            rounds = self._once(measurement.rounds)
            yield metric.name, Taken(metric, measurement.per, rounds, samples)

    def _once(self, rounds: Iterable[int]) -> Rounds:
        as_tuple = tuple(rounds)
        return self._rounds.setdefault(as_tuple, as_tuple)


def _flat(rows: list[list[float]]) -> FloatArray:
    return np.fromiter(chain.from_iterable(rows), np.float64)


def _launches(census: Any) -> Launches | None:
    if census is None:
        return None
    return tuple(
        tuple(sorted((launch.kind, launch.name, launch.count) for launch in step))
        for step in census.steps
    )


def _binaries(compiled: Any) -> dict[str, Binaries] | None:
    if compiled is None:
        return None
    return {
        kernel.name: Binaries(len(kernel.hashes), _most(kernel.registers), _most(kernel.spills))
        for kernel in compiled
    }


def _most(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _spreads(spreads: Iterable[Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for spread in spreads:
        name = metric_by(*_parts(spread.series)).name
        found[name] = max(abs(spread.difference_us), found.get(name, 0.0))
    return found
