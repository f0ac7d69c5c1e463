"""The results of a running sweep, which are stored case by case.

A run on one device names it once. A run on several has a part for each, and each case names its
own: all GPUs of a host at once, or one that goes on where another has left off.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from threading import RLock

from bt_bench import __version__
from bt_bench.protocol import Operation, info_of, load_suite
from bt_bench.report import arms_document, arrange, render_document, render_page, run_page
from bt_bench.results import (
    CaseResult,
    Crash,
    Environment,
    Part,
    ResultWriter,
    Tool,
    VariantInfo,
    VariantResult,
    read_run,
    read_written,
    write_run_file,
)
from bt_bench.runs.sweep.request import SweepRequest, case_key
from bt_bench.variants import VariantEntry
from bt_bench.worker import Calibrate, Runner, Watcher


class Results:
    """The results of a running sweep; cases are only on disk, each stored before the next begins.

    Several threads may store results at once.

    Args:
        request: the run.
        environments: of the devices that measure.

    Attributes:
        parts: by device, the part of the results that its cases are of; `None`: they have no parts.
        remarks: a sentence if the run goes on on a device that it was not begun on.
    """

    def __init__(self, request: SweepRequest, environments: Sequence[Environment]) -> None:
        self._request = request
        self._lock = RLock()
        earlier = {result.variant.name: result for result in read_run(request.folder)}
        run_ids = [result.run_id for result in earlier.values()]
        run_id = run_ids[0] if run_ids else _new_run_id(request.spec.name)
        begun = [
            earlier.get(entry.name) or _empty_result(request, entry, run_id)
            for entry in request.entries
        ]
        known = _parts(list(earlier.values()))
        self.parts: Sequence[int | None] = [None]
        self.remarks: Sequence[str] = []
        goes_on = not known or _is_one_place(known[0].environment, environments[0])
        if len(environments) > 1 or any(result.parts for result in begun) or not goes_on:
            before = list(known)
            self.parts = _placed(known, environments, request, run_id)
            self.remarks = list(_remarks(before, known[len(before) :]))
            begun = [_of_parts(result, known) for result in begun]
        self._part_of = {case.key: case.part for result in begun for case in result.cases}
        self._writers = {result.variant.name: ResultWriter(request.folder, result)
                         for result in begun}  # fmt: skip

    def is_calibrated(self, part: int | None) -> bool:
        """Return whether every result has a calibration of a device."""
        headers = (writer.header for writer in self._writers.values())
        return all(header.calibration_of(part) for header in headers)

    def calibrate(self, runner: Runner, part: int | None, watcher: Watcher) -> None:
        """Calibrate a device, and store the calibration in every result."""
        calibration = runner.run(Calibrate(), (), watcher).value
        with self._lock:
            for writer in self._writers.values():
                writer.calibrate(calibration, part)

    def note(self, arms: Sequence[str], crash: Crash) -> None:
        """Store a crash in the results of these arms, or of all arms if none took part."""
        with self._lock:
            for name in arms or self._writers:
                self._writers[name].note(crash)

    def num_done(self) -> int:
        """Return the number of cases that every variant has."""
        return sum(self.has(key) for key in self._request.keys)

    def has(self, key: str) -> bool:
        """Return whether every variant has this case."""
        return all(key in writer.keys for writer in self._writers.values())

    def missing(
        self, case: str, operations: Sequence[Operation], part: int | None
    ) -> list[Operation]:
        """Return the operations of a case that a device has to measure.

        All operations of a case are measured on one device. What another one has begun counts
        only if it is whole.
        """
        keys = {operation: case_key(operation, case) for operation in operations}
        left = [operation for operation, key in keys.items() if not self.has(key)]
        elsewhere = any(self._part_of.get(key, part) != part for key in keys.values())
        return list(operations) if left and elsewhere else left

    def add(self, cases: Mapping[str, CaseResult]) -> None:
        """Store one case of every variant; one that an interrupted run left is replaced."""
        with self._lock:
            for name, case in cases.items():
                self._writers[name].add(case)
                self._part_of[case.key] = case.part

    def name(self, part: int | None) -> str:
        """Return the name of a device in messages; nothing if the results have no parts."""
        return next(iter(self._writers.values())).header.part_name(part) or ""

    def close(self, complete: bool) -> list[VariantResult]:
        """Mark the run as complete or partial, write the comparison, and return all results."""
        keys = self._request.keys
        digests = {name: writer.close(complete, keys) for name, writer in self._writers.items()}
        folder = self._request.folder
        results = [read_written(folder.result_path(name), digests[name]) for name in digests]
        arms = arrange(results)
        text = render_document(arms_document(arms, len(keys), results))
        write_run_file(folder.comparison_path, text)
        write_run_file(folder.page_path, render_page(run_page(arms, len(keys))))
        return results


def _parts(results: Sequence[VariantResult]) -> list[Part]:
    """Return the devices of an interrupted run so far.

    Results are written one after the other: if the process was killed in between, the longest
    list has them all, and the others are beginnings of it.
    """
    found: list[Part] = []
    for result in results:
        parts = result.parts or [_as_part(result)]
        found = parts if len(parts) > len(found) else found
    return list(found)


def _as_part(result: VariantResult) -> Part:
    return Part(
        run_id=result.run_id,
        created=result.created,
        tool=result.tool,
        environment=result.environment,
        calibration=result.calibration,
    )


def _placed(
    known: list[Part], environments: Sequence[Environment], request: SweepRequest, run_id: str
) -> list[int]:
    """Return the number of each device among the parts, to which new ones are added."""
    free = list(range(len(known)))
    numbers = []
    for environment in environments:
        same = (each for each in free if _is_one_place(known[each].environment, environment))
        number = next(same, None)
        if number is None:
            number = len(known)
            known.append(_new_part(request, run_id, environment))
        else:
            free.remove(number)
        numbers.append(number)
    return numbers


def _new_part(request: SweepRequest, run_id: str, environment: Environment) -> Part:
    return Part(
        run_id=run_id,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=Tool(version=__version__, command=request.command),
        environment=environment,
        calibration=None,
    )


def _remarks(before: Sequence[Part], new: Sequence[Part]) -> Iterator[str]:
    if before and new:
        earlier, later = (
            ", ".join(
                dict.fromkeys(
                    part.environment.gpu_label or part.environment.device for part in some
                )
            )
            for some in (before, new)
        )
        yield (
            f"the run was begun on {earlier}, and goes on on {later}: cases that are done stay as "
            "they are, and each case names the device that measured it"
        )


def _is_one_place(left: Environment, right: Environment) -> bool:
    """Return whether two environments are of one device, as far as is known."""
    facts = [(each.driver, [gpu.name for gpu in each.gpus]) for each in (left, right)]
    uuids = [[gpu.uuid for gpu in each.gpus] for each in (left, right)]
    unknown = any(None in each for each in uuids)
    return facts[0] == facts[1] and (unknown or uuids[0] == uuids[1])


def _of_parts(result: VariantResult, parts: Sequence[Part]) -> VariantResult:
    """Return a result with these parts; cases without one are of the first."""
    cases = [case if case.part is not None else case.model_copy(update={"part": 0})
             for case in result.cases]  # fmt: skip
    return result.model_copy(
        update={
            "environment": parts[0].environment,
            "calibration": None,
            "parts": list(parts),
            "cases": cases,
        }
    )


def _new_run_id(config: str) -> str:
    """Return an id that no other run has: results with one id were measured side by side."""
    return f"{config}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def _empty_result(request: SweepRequest, entry: VariantEntry, run_id: str) -> VariantResult:
    return VariantResult(
        run_id=run_id,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        complete=False,
        tool=Tool(version=__version__, command=request.command),
        environment=request.environment,
        config=request.spec.name,
        plan=request.spec.plan,
        suite=info_of(load_suite(request.spec.suite)),
        variant=VariantInfo(
            name=entry.name,
            summary=entry.summary,
            source_sha256=entry.source_sha256(),
            native=request.native.get(entry.name),
        ),
        shard=None if request.division is None else request.division.shard,
        cases=[],
    )
