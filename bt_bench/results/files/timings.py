"""The seconds that the cases of an earlier run took, to balance shards by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base import name_of, read_text
from bt_bench.base.errors import UsageError
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.journals import has_journal
from bt_bench.results.files.reading import parse_with, read_result
from bt_bench.results.run.case import CaseResult


@dataclass(frozen=True)
class Timing:
    """The seconds of the cases of an earlier run.

    Args:
        run_id: id of that run.
        seconds: by name of a case, over all of its operations.
    """

    run_id: str
    seconds: Mapping[str, float]


def read_timing(folder: Path) -> Timing:
    """Read the seconds of the cases of a run, merged or not.

    Raises:
        UsageError: if it has none.
    """
    paths = RunFolder.open(folder).result_paths()
    if not paths:
        raise UsageError(f"{folder} holds no result file; expected the folder of an earlier run")
    path = paths[0]  # the seconds of a case are of all variants together
    name = name_of(path)
    header, taken = parse_with(_seconds, read_text(path, name), name)
    if has_journal(path) and not header.complete:
        taken = [_seconds(case) for case in read_result(path).cases]
    seconds = _added(taken)
    if not seconds:
        raise UsageError(f"{path} has no times; expected an earlier run that measured something")
    return Timing(header.run_id, seconds)


def _seconds(case: CaseResult) -> tuple[str, float | None]:
    """Return the name of a case, and its seconds; of an earlier version, only of its rounds."""
    rounds_s = None if case.stopping is None else case.stopping.seconds
    return case.case, rounds_s if case.seconds is None else case.seconds


def _added(taken: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for name, part_s in taken:
        if part_s is not None:
            seconds[name] = seconds.get(name, 0.0) + part_s
    return seconds
