"""Run folders and result files: written atomically, and refused on reading with one message."""

from __future__ import annotations

import fcntl
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bt_bench.atomic import TEMPORARY_SUFFIX, write_text
from bt_bench.errors import UsageError
from bt_bench.invalid import describe_invalid
from bt_bench.model import BASELINE, SCHEMA_VERSION, CaseResult, Measurement, VariantResult

__all__ = ["RunFolder", "read_result", "read_run", "result_schema", "write_result", "write_text"]

RESULT_SUFFIX = ".json"
COMPARISON_NAME = "comparison.md"
CONFIG_NAME = "config.yaml"
STDIN = "-"

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
            UsageError: when another process has it.
        """
        path = self.path / ".lock"
        with path.open("w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"{self.path} is being written by another bt-bench process; wait for it"
                ) from None
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

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

    def result_paths(self) -> list[Path]:
        """Result files of the folder by name; temporary files of a killed process are not."""
        paths = self.path.glob(f"*{RESULT_SUFFIX}")
        return sorted(path for path in paths if not path.name.startswith("."))


def write_result(folder: RunFolder, result: VariantResult) -> Path:
    """Writes or replaces the file of a variant, atomically: one line per case.

    Raises:
        ValueError: if `read_result` would refuse the file.
    """
    for problem in _problems(result):
        raise ValueError(f"result of variant {result.variant.name!r}: {problem}")
    path = folder.result_path(result.variant.name)
    write_text(path, _to_json(result))
    return path


def read_result(path: Path | str) -> VariantResult:
    """Reads a result file, or standard input for `-`.

    Raises:
        UsageError: naming the file, what is wrong with it, and where.
    """
    name = "standard input" if str(path) == STDIN else str(path)
    text = _read_text(path, name)
    if not text.strip():
        raise UsageError(f"{name} is empty; expected a result of bt-bench")
    try:
        with _without_garbage_collection():
            # Strict, or else "1.5" would be read as a number.
            result = VariantResult.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise UsageError(f"{name} {describe_invalid(text, error)}") from None
    for problem in _problems(result):
        raise UsageError(f"{name} is damaged: {problem}")
    return result


def read_run(folder: RunFolder | Path, order: Sequence[str] = ()) -> list[VariantResult]:
    """All results of a run: the baseline, then the variants in `order`, then the rest by name.

    A run that has only just begun has none.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
    results: dict[str, VariantResult] = {}
    for path in run.result_paths():
        result = read_result(path)
        variant = result.variant.name
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


def _to_json(result: VariantResult) -> str:
    """A line per key and a line per case, so that a diff shows which cases changed."""
    header = result.model_dump(mode="json", exclude={"cases"})
    lines = [f"  {json.dumps(key)}: {_compact(value)},\n" for key, value in header.items()]
    cases = ",\n".join(f"    {_compact(case.model_dump(mode='json'))}" for case in result.cases)
    body = f"\n{cases}\n  " if cases else ""
    return "{\n" + "".join(lines) + f'  "cases": [{body}]\n}}\n'


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _read_text(path: Path | str, name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{name} does not exist; expected a result file") from None
    except IsADirectoryError:
        raise UsageError(
            f"{name} is a folder; expected a result file, such as {Path(path) / 'baseline.json'}"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not JSON: byte {error.start} is not UTF-8") from None


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Searching the thousands of lists of a result for garbage takes twice as long as reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _problems(result: VariantResult) -> Iterator[str]:
    """What types alone do not catch, each with its JSON path."""
    yield from _repeated("$.cases", "key", (case.key for case in result.cases))
    for index, case in enumerate(result.cases):
        path = f"$.cases[{index}].measurements"
        yield from _repeated(path, "quantity", (m.quantity for m in case.measurements))
        for number, measurement in enumerate(case.measurements):
            yield from _ragged(f"{path}[{number}].samples", case, measurement, result.complete)


def _repeated(path: str, key: str, values: Iterable[str]) -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            yield f"{path} has {key} {str(value)!r} {count} times; expected it once"


def _ragged(path: str, case: CaseResult, measurement: Measurement, complete: bool) -> Iterator[str]:
    """Rounds hold a sample per step; only an interrupted run may hold shorter ones."""
    steps = case.workload.num_steps
    if complete and not measurement.samples:
        yield f"{path} has no rounds; expected at least one, or no such measurement"
    for index, samples in enumerate(measurement.samples):
        if len(samples) > steps or (complete and len(samples) < steps):
            yield (
                f"{path}[{index}] has {len(samples)} samples; "
                f"expected one for each of the {steps} steps of its window"
            )
