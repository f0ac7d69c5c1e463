"""Crash-safe writing of results: nothing is lost or half written.

During a run, a variant has a result file without cases, and a journal beside it that grows by a
line for each case. Readers treat both as one result; closing the run merges them. The cost of
storing a case therefore does not grow with the run.

The code under test can reach the files on disk. Each line is checked against its digest when it is
read back.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bt_bench.base import compact_json, is_at, naming, open_own, replacing
from bt_bench.base.errors import UsageError
from bt_bench.results.files.journals import journal_header
from bt_bench.results.run.calibration import Calibration
from bt_bench.results.run.case import CaseResult, Crash
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.soundness import case_problems, problems

if TYPE_CHECKING:
    from bt_bench.results.files.folders import RunFolder


class ResultWriter:
    """A writer for the result of one variant during its run; keeps no samples in memory.

    Args:
        folder: the run's folder.
        result: the result at the start of the run; if the run is resumed, with the cases measured
            before.

    Raises:
        ValueError: if `read_result` would refuse it.
    """

    def __init__(self, folder: RunFolder, result: VariantResult) -> None:
        _refuse_unreadable(result)
        self._path = folder.result_path(result.variant.name)
        self._journal_path = folder.journal_path(result.variant.name)
        self._header = result.model_copy(update={"complete": False, "cases": []})
        # key → offset, length and digest of its line
        self._places: dict[str, tuple[int, int, bytes]] = {}
        # The journal first, since a result file may hold cases that must get into the journal.
        with replacing(self._journal_path) as file:
            file.write(journal_header(result))
            for case in result.cases:
                self._append(file, case)
        write_run_file(self._path, _to_json(self._header))
        with naming(self._journal_path):
            self._journal = os.fdopen(open_own(self._journal_path, os.O_RDWR), "r+b")

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the stored cases."""
        return frozenset(self._places)

    @property
    def header(self) -> VariantResult:
        """The result without its cases."""
        return self._header

    def calibrate(self, calibration: Calibration | None, part: int | None = None) -> None:
        """Store the calibration of the run, or of one of its parts."""
        if part is None:
            self._update(calibration=calibration)
            return
        parts = list(self._header.parts or ())
        parts[part] = parts[part].model_copy(update={"calibration": calibration})
        self._update(parts=parts)

    def note(self, crash: Crash) -> None:
        """Store a crash that did not happen again."""
        self._update(crashes=[*self._header.crashes, crash])

    def _update(self, **fields: object) -> None:
        self._header = self._header.model_copy(update=fields)
        write_run_file(self._path, _to_json(self._header))

    def add(self, case: CaseResult) -> None:
        """Store a case, replacing an earlier one with the same key.

        Raises:
            ValueError: if `read_result` would refuse it.
            UsageError: if it cannot be written, or if the journal was removed: what is measured
                from then on would be lost.
        """
        for problem in case_problems("$", case):
            raise ValueError(f"case {case.key!r} of {self._header.variant.name!r}: {problem}")
        with naming(self._journal_path):
            self._append(self._journal, case)
            self._journal.flush()
            os.fsync(self._journal.fileno())
        self._refuse_removed()

    def close(self, complete: bool, order: Sequence[str] = ()) -> str:
        """Merge header and journal into one file, with the cases in the given order of keys.

        Returns:
            The digest of the file, for `read_written`.

        Raises:
            UsageError: if anything else has changed or removed the journal.
        """
        self._refuse_removed()
        self._header = self._header.model_copy(update={"complete": complete})
        keys = [key for key in dict.fromkeys([*order, *self._places]) if key in self._places]
        digest = hashlib.sha256()
        with replacing(self._path) as file:
            for chunk in result_chunks(self._header, map(self._line, keys)):
                file.write(chunk.encode())
                digest.update(chunk.encode())
        self._journal.close()
        self._journal_path.unlink(missing_ok=True)
        return digest.hexdigest()

    def _refuse_removed(self) -> None:
        if not is_at(self._journal_path, self._journal.fileno()):
            raise UsageError(
                f"{self._journal_path} was removed or moved during the run, and with it what was "
                "measured; start a new run"
            )

    def _append(self, file: IO[bytes], case: CaseResult) -> None:
        line = _to_line(case).encode()
        start = file.seek(0, os.SEEK_END)
        file.write(line + b"\n")
        self._places[case.key] = (start, len(line), hashlib.sha256(line).digest())

    def _line(self, key: str) -> str:
        start, length, digest = self._places[key]
        self._journal.seek(start)
        line = self._journal.read(length)
        if hashlib.sha256(line).digest() != digest:
            raise changed_meanwhile(self._journal_path)
        return line.decode()


def changed_meanwhile(path: Path) -> UsageError:
    """Return the error for a file of a run that something else has changed."""
    return UsageError(
        f"{path} is not as this run has written it: something has changed it meanwhile, such as "
        "code of a variant; see to that, and start a new run"
    )


def write_run_file(path: Path, text: str) -> None:
    """Write a file of a run folder without following links; see `bt_bench.base.atomic.replacing`.

    Raises:
        UsageError: if it cannot be written.
    """
    with replacing(path) as file:
        file.write(text.encode())


def write_result(folder: RunFolder, result: VariantResult) -> Path:
    """Write or replace the file of a variant atomically, with one line per case.

    Raises:
        ValueError: if `read_result` would refuse the file.
    """
    _refuse_unreadable(result)
    path = folder.result_path(result.variant.name)
    write_run_file(path, _to_json(result))
    folder.journal_path(result.variant.name).unlink(missing_ok=True)
    return path


def _to_json(result: VariantResult) -> str:
    return "".join(result_chunks(result, map(_to_line, result.cases)))


def result_chunks(result: VariantResult, cases: Iterable[str]) -> Iterator[str]:
    """Yield the text of a result file, with one line per key and per case, for readable diffs.

    Args:
        result: the result; its cases are ignored.
        cases: the lines of its cases.
    """
    yield "{\n"
    for key, value in result.model_dump(mode="json", exclude={"cases"}).items():
        yield f"  {json.dumps(key)}: {compact_json(value)},\n"
    yield '  "cases": ['
    separator, end = "\n    ", "]\n}\n"
    for case in cases:
        yield separator + case
        separator, end = ",\n    ", "\n  ]\n}\n"
    yield end


def _to_line(case: CaseResult) -> str:
    return compact_json(case.model_dump(mode="json"))


def _refuse_unreadable(result: VariantResult) -> None:
    for problem in problems(result):
        raise ValueError(f"result of variant {result.variant.name!r}: {problem}")
