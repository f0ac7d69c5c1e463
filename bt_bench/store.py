"""Run folders and result files: no text is ever lost or half there, and bad ones are refused.

While a run is under way, a variant has a result file without cases and a journal beside it, to
which a line is appended for each case. Readers take both for one result. When the run is closed,
they become one file. So a case costs what it holds, not what the run holds.

The first line of a journal says which variant of which run it is of; those of earlier versions have
none. A result that is complete is all in its file, and no journal counts beside it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError

from bt_bench import atomic
from bt_bench.atomic import TEMPORARY_SUFFIX, refusal_of
from bt_bench.collection import no_collection
from bt_bench.errors import OtherSchemaError, UsageError
from bt_bench.invalid import describe_invalid, other_version, repeated_key
from bt_bench.model import (
    BASELINE,
    SCHEMA_VERSION,
    Calibration,
    CaseResult,
    Crash,
    VariantResult,
)
from bt_bench.own_files import lock, open_own
from bt_bench.soundness import case_problems, problems

__all__ = [
    "ResultWriter",
    "RunFolder",
    "has_journal",
    "name_of",
    "parse_result",
    "read_result",
    "read_run",
    "read_run_with",
    "read_text",
    "result_schema",
    "stale_journal",
    "write_result",
    "write_run_file",
    "write_text",
]

RESULT_SUFFIX = ".json"
JOURNAL_SUFFIX = ".cases.jsonl"
COMPARISON_NAME = "comparison.md"
CONFIG_NAME = "config.yaml"
LOCK_NAME = ".lock"
STDIN = "-"

Read = TypeVar("Read")

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: a result file per variant, and the comparison."""

    path: Path

    @classmethod
    def create(cls, reports: Path, name: str, now: datetime | None = None) -> RunFolder:
        """Makes a new folder `<name>-<UTC time>` in `reports`, with a number if that exists."""
        time = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        stem = f"{_as_folder_name(name)}-{time}"
        number = 1
        while True:
            path = reports / (stem if number == 1 else f"{stem}-{number}")
            if _make_folder(path):
                return cls(path)
            number += 1

    @classmethod
    def create_exact(cls, path: Path) -> RunFolder:
        """Makes the folder that `--out` names, which must not exist."""
        if not _make_folder(path):
            raise UsageError(
                f"{path} exists, and a run is never overwritten; "
                "pass --resume to continue it, or choose another folder"
            )
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run; an empty one is a run that was killed at once."""
        if not path.exists():
            raise UsageError(f"{path} does not exist; expected the folder of a run to resume")
        if not path.is_dir():
            raise UsageError(f"{path} is no folder; expected the folder of a run to resume")
        folder = cls(path)
        known = folder.result_paths() or (path / CONFIG_NAME).is_file()
        if not known and any(not _is_temporary(file) for file in path.iterdir()):
            raise UsageError(f"{path} is no run folder: it holds no result file (<variant>.json)")
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing into the folder.

        Raises:
            UsageError: when another process has it, or something in the place of one of the
                folder's files is no regular file.
        """
        path = self.path / LOCK_NAME
        with _naming(path):
            try:
                number = lock(path)
            except BlockingIOError:
                raise UsageError(
                    f"{self.path} is being written by another bt-bench process; wait for it"
                ) from None
        try:
            self._refuse_what_is_no_file()
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is locked: so it is ours
            os.close(number)

    def _refuse_what_is_no_file(self) -> None:
        """Before anything is measured: what is written at the end could not be."""
        for path in self.path.iterdir():
            ours = path.name in (CONFIG_NAME, COMPARISON_NAME) or path.name.endswith(
                (RESULT_SUFFIX, JOURNAL_SUFFIX)
            )
            status = path.lstat()
            if ours and not stat.S_ISREG(status.st_mode):
                raise UsageError(f"cannot write {path}: {refusal_of(status)}")

    @property
    def comparison_path(self) -> Path:
        """Where the comparison of the run is written."""
        return self.path / COMPARISON_NAME

    def result_path(self, variant: str) -> Path:
        """Where the results of a variant are written."""
        if not _FILE_NAME.fullmatch(variant):
            raise UsageError(
                f"variant name {variant!r} cannot be a file name; "
                "expected up to 100 letters, digits and any of . _ + -"
            )
        return self.path / f"{variant}{RESULT_SUFFIX}"

    def journal_path(self, variant: str) -> Path:
        """Where the cases of a variant are while the run is under way."""
        return _journal_beside(self.result_path(variant))

    def result_paths(self) -> list[Path]:
        """Result files of the folder by name; temporary files of a killed process are not."""
        paths = self.path.glob(f"*{RESULT_SUFFIX}")
        return sorted(path for path in paths if not path.name.startswith("."))


class ResultWriter:
    """The result of one variant while its run is under way; holds none of its samples.

    Args:
        folder: the run's folder.
        result: what is known when the run begins or is resumed, with the cases that were measured
            before, if any.

    Raises:
        ValueError: if `read_result` would refuse it.
    """

    def __init__(self, folder: RunFolder, result: VariantResult) -> None:
        _refuse_unreadable(result)
        self._path = folder.result_path(result.variant.name)
        self._journal_path = folder.journal_path(result.variant.name)
        self._header = result.model_copy(update={"complete": False, "cases": []})
        self._places: dict[str, tuple[int, int]] = {}  # key → offset and length of its line
        # The journal first: a result file may hold the cases until they are in the journal.
        with _replacing(self._journal_path) as file:
            file.write(_journal_header(result))
            for case in result.cases:
                self._append(file, case)
        write_run_file(self._path, _to_json(self._header))
        with _naming(self._journal_path):
            self._journal = os.fdopen(open_own(self._journal_path, os.O_RDWR), "r+b")

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the cases that are stored."""
        return frozenset(self._places)

    @property
    def header(self) -> VariantResult:
        """The result without its cases."""
        return self._header

    def calibrate(self, calibration: Calibration | None) -> None:
        """Stores the calibration of the run."""
        self._header = self._header.model_copy(update={"calibration": calibration})
        write_run_file(self._path, _to_json(self._header))

    def note(self, crash: Crash) -> None:
        """Stores a crash that did not come back."""
        crashes = [*self._header.crashes, crash]
        self._header = self._header.model_copy(update={"crashes": crashes})
        write_run_file(self._path, _to_json(self._header))

    def add(self, case: CaseResult) -> None:
        """Stores a case, in the place of an earlier one with its key.

        Raises:
            ValueError: if `read_result` would refuse it.
            UsageError: if it cannot be written.
        """
        for problem in case_problems("$", case):
            raise ValueError(f"case {case.key!r} of {self._header.variant.name!r}: {problem}")
        with _naming(self._journal_path):
            self._append(self._journal, case)
            self._journal.flush()
            os.fsync(self._journal.fileno())

    def close(self, complete: bool, order: Sequence[str] = ()) -> None:
        """Makes one file of header and journal, with the cases in the given order of keys."""
        self._header = self._header.model_copy(update={"complete": complete})
        keys = [key for key in dict.fromkeys([*order, *self._places]) if key in self._places]
        with _replacing(self._path) as file:
            for chunk in _chunks(self._header, map(self._line, keys)):
                file.write(chunk.encode())
        self._journal.close()
        self._journal_path.unlink()

    def _append(self, file: IO[bytes], case: CaseResult) -> None:
        line = _to_line(case).encode()
        start = file.seek(0, os.SEEK_END)
        file.write(line + b"\n")
        self._places[case.key] = (start, len(line))

    def _line(self, key: str) -> str:
        start, length = self._places[key]
        self._journal.seek(start)
        return self._journal.read(length).decode()


def write_text(path: Path, text: str) -> None:
    """Writes a file that the user has named: see `bt_bench.atomic.writing`.

    A reader of a regular file sees its old text or its new one, never half of it.

    Raises:
        UsageError: if it cannot be written.
    """
    with _naming(path):
        atomic.write_text(path, text)


def write_run_file(path: Path, text: str) -> None:
    """Writes a file of a run folder, through no link: see `bt_bench.atomic.replacing`.

    Raises:
        UsageError: if it cannot be written.
    """
    with _replacing(path) as file:
        file.write(text.encode())


def write_result(folder: RunFolder, result: VariantResult) -> Path:
    """Writes or replaces the file of a variant, atomically: one line per case.

    Raises:
        ValueError: if `read_result` would refuse the file.
    """
    _refuse_unreadable(result)
    path = folder.result_path(result.variant.name)
    write_run_file(path, _to_json(result))
    folder.journal_path(result.variant.name).unlink(missing_ok=True)
    return path


def read_result(path: Path | str) -> VariantResult:
    """Reads a result file, or standard input for `-`; with the journal of a run under way.

    Raises:
        OtherSchemaError: for another schema version.
        UsageError: naming the file, what is wrong with it, and where.
    """
    # The journal first: when a run is closed, its cases are in the file before it goes.
    journal = _journal_beside(Path(path))
    lines = None if str(path) == STDIN else _lines_of(journal)
    name = name_of(path)
    result = parse_result(read_text(path, name), name)
    if lines is None or result.complete:
        return result
    return _with_journal(result, name, journal, lines)


def name_of(path: Path | str) -> str:
    """What messages call a file, or standard input."""
    return "standard input" if str(path) == STDIN else str(path)


def has_journal(path: Path | str) -> bool:
    """Whether there is a journal beside a result file, which counts if that is not complete."""
    return str(path) != STDIN and os.path.lexists(_journal_beside(Path(path)))


def stale_journal(path: Path | str) -> str:
    """What to say of a journal beside a complete result, a clause."""
    journal = _journal_beside(Path(path))
    return f"{journal} was ignored, since {path} is complete without it; delete the journal"


def parse_result(text: str, name: str) -> VariantResult:
    """The result in a text.

    Args:
        text: of a result file.
        name: of the file, for messages.

    Raises:
        OtherSchemaError: for another schema version.
        UsageError: naming the file, what is wrong with it, and where.
    """
    if not text.strip():
        raise UsageError(f"{name} is empty; expected a result of bt-bench")
    try:
        # Searching thousands of lists for garbage takes twice as long as reading them.
        with no_collection(collect_first=False):
            # Strict, or else "1.5" would be read as a number.
            result = VariantResult.model_validate_json(text, strict=True)
    except ValidationError as error:
        message = f"{name} {describe_invalid(text, error)}"
        version = other_version(text, error)
        raise (UsageError(message) if version is None else OtherSchemaError(message)) from None
    if (repeated := repeated_key(text)) is not None:
        raise UsageError(f"{name} is damaged: it {repeated}")
    for problem in problems(result):
        raise UsageError(f"{name} is damaged: {problem}")
    return result


def read_run(folder: RunFolder | Path, order: Sequence[str] = ()) -> list[VariantResult]:
    """All results of a run: the baseline, then the variants in `order`, then the rest by name.

    A run that has only just begun has none.
    """
    return read_run_with(read_result, lambda result: result, folder, order)


def read_run_with(
    read: Callable[[Path], Read],
    header_of: Callable[[Read], VariantResult],
    folder: RunFolder | Path,
    order: Sequence[str] = (),
) -> list[Read]:
    """All results of a run by any reader of a file; see `read_run`."""
    run = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
    results: dict[str, Read] = {}
    for path in run.result_paths():
        if not path.is_file():  # to open a FIFO would wait for ever
            raise UsageError(f"{path} is no regular file; expected a result file (<variant>.json)")
        result = read(path)
        variant = header_of(result).variant.name
        if path != run.result_path(variant):
            raise UsageError(
                f"{path} holds the results of variant {variant!r}; expected that in {variant}.json"
            )
        results[variant] = result
    names = dict.fromkeys([BASELINE, *order, *sorted(results)])
    return [results[name] for name in names if name in results]


def result_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a result file as it is written."""
    schema = VariantResult.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:bt-bench:result:{SCHEMA_VERSION}",
        **schema,
        "title": "Result file of bt-bench: all cases of one variant in one run",
    }


def _journal_beside(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(RESULT_SUFFIX) + JOURNAL_SUFFIX)


def _journal_header(result: VariantResult) -> bytes:
    return _compact(_header_fields(result)).encode() + b"\n"


def _header_fields(result: VariantResult) -> dict[str, str]:
    return {"journal_of": result.run_id, "variant": result.variant.name}


def _lines_of(path: Path) -> list[bytes] | None:
    """The lines of a journal; a last one without its end was being written when a run died."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            return file.read().split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _with_journal(
    result: VariantResult, name: str, path: Path, lines: Sequence[bytes]
) -> VariantResult:
    """A result with the cases of its journal.

    A case may be in both while one becomes the other, and is the same then.
    """
    number = _check_header(result, name, path, lines)
    journal = {case.key: case for case in _read_cases(path, lines[number:], number + 1)}
    for case in result.cases:
        if case != journal.get(case.key, case):
            raise UsageError(
                f"{name} is damaged: {path.name} beside it has another case {case.key!r}, so it is "
                "not known which was measured in this run. Delete the one that is wrong"
            )
    cases = {case.key: case for case in result.cases} | journal
    return result.model_copy(update={"cases": list(cases.values())})


def _check_header(result: VariantResult, name: str, path: Path, lines: Sequence[bytes]) -> int:
    """How many lines are no cases: none in journals of earlier versions, which say not whose."""
    try:
        found = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return 0  # no case either, which is said where cases are read
    if not isinstance(found, dict) or "journal_of" not in found:
        return 0
    wanted = _header_fields(result)
    if found != wanted:
        raise UsageError(
            f"{path} is of variant {found.get('variant')!r} of run {found['journal_of']!r}, and "
            f"{name} of variant {wanted['variant']!r} of run {wanted['journal_of']!r}; delete the "
            "journal, and its cases are measured again by --resume"
        )
    return 1


def _read_cases(path: Path, lines: Sequence[bytes], first: int) -> list[CaseResult]:
    cases = []
    with no_collection(collect_first=False):
        for number, line in enumerate(lines, start=first):
            try:
                case = CaseResult.model_validate_json(line, strict=True)
            except ValidationError as error:
                what = error.errors(include_url=False)[0]["msg"]
                raise _damaged_line(path, f"line {number} is no case: {what}") from None
            if (repeated := repeated_key(line.decode())) is not None:
                raise _damaged_line(path, f"line {number} {repeated}")
            for problem in case_problems("$", case):
                raise _damaged_line(path, f"line {number}: {problem}")
            cases.append(case)
    return cases


def _damaged_line(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is damaged: {what}. Delete that line to go on; its case is measured again"
    )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Names the file in the message of an error of the system, which knows it only at times."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _make_folder(path: Path) -> bool:
    """Makes a folder and its parents; whether it is new."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError:
        if path.parent.is_dir():
            return False
        raise UsageError(f"cannot make {path}: {path.parent} is no folder") from None
    except OSError as error:
        raise UsageError(f"cannot make {path}: {error.strerror}") from None
    return True


def _as_folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "run"


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(TEMPORARY_SUFFIX)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file of a run folder, which is there under its name when the block has ended."""
    with _naming(path), atomic.replacing(path) as file:
        yield file


def _to_json(result: VariantResult) -> str:
    return "".join(_chunks(result, map(_to_line, result.cases)))


def _chunks(result: VariantResult, cases: Iterable[str]) -> Iterator[str]:
    """A file, a line per key and a line per case, so that a diff shows which cases changed."""
    yield "{\n"
    for key, value in result.model_dump(mode="json", exclude={"cases"}).items():
        yield f"  {json.dumps(key)}: {_compact(value)},\n"
    yield '  "cases": ['
    separator, end = "\n    ", "]\n}\n"
    for case in cases:
        yield separator + case
        separator, end = ",\n    ", "\n  ]\n}\n"
    yield end


def _to_line(case: CaseResult) -> str:
    return _compact(case.model_dump(mode="json"))


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_text(
    path: Path | str, name: str, expected: str = "a result file", example: str = "baseline.json"
) -> str:
    """The text of a file, or of standard input for `-`.

    Args:
        path: of the file.
        name: what messages call it.
        expected: what it should be, for messages.
        example: a name that such a file could have.

    Raises:
        UsageError: if it cannot be read, or is not UTF-8.
    """
    try:
        if str(path) != STDIN:
            data = Path(path).read_bytes()
        elif sys.stdin is None:  # closed before Python began
            raise UsageError(f"{name} is closed; expected {expected}")
        else:
            data = sys.stdin.buffer.read()
    except FileNotFoundError:
        raise UsageError(f"{name} does not exist; expected {expected}") from None
    except IsADirectoryError:
        raise UsageError(
            f"{name} is a folder; expected {expected}, such as {Path(path) / example}"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not JSON: byte {error.start} is not UTF-8") from None


def _refuse_unreadable(result: VariantResult) -> None:
    for problem in problems(result):
        raise ValueError(f"result of variant {result.variant.name!r}: {problem}")
