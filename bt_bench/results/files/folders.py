"""The folder of a run: its files and its lock."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bt_bench.base import TEMPORARY_SUFFIX, like, lock, naming, refusal_of, unpacked_path
from bt_bench.base.errors import UsageError
from bt_bench.results.files.journals import JOURNAL_SUFFIX, RESULT_SUFFIX, journal_beside

COMPARISON_NAME = "comparison.md"
PAGE_NAME = "report.html"
CONFIG_NAME = "config.yaml"
LOCK_NAME = ".lock"

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")

_SHOWN = 5  # most runs listed for a folder that holds runs but is not one


def result_name(variant: str) -> str:
    """Return the name of a variant's result file.

    Raises:
        UsageError: for a variant whose name cannot be part of a file name.
    """
    return file_name("variant", variant, RESULT_SUFFIX)


def file_name(what: str, name: str, suffix: str) -> str:
    """Return the name of the file for something that a user has named.

    Raises:
        UsageError: for a name that cannot be part of a file name.
    """
    if not FILE_NAME.fullmatch(name):
        raise UsageError(
            f"{what} name {name!r} cannot be a file name; "
            "expected up to 100 letters, digits and any of . _ + -"
        )
    return f"{name}{suffix}"


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: a result file per variant, and the comparison."""

    path: Path

    @classmethod
    def create(cls, reports: Path, name: str, now: datetime | None = None) -> RunFolder:
        """Create a new folder `<name>-<UTC time>` in `reports`, with a number if that exists."""
        time = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        stem = f"{_as_folder_name(name)}-{time}"
        number = 1
        while True:
            path = reports / (stem if number == 1 else f"{stem}-{number}")
            if _make_folder(path):
                return cls(path)
            number += 1

    @classmethod
    def latest(cls, reports: Path) -> RunFolder:
        """Return the run in a folder of reports whose config was written last.

        Raises:
            UsageError: if there is none.
        """
        runs = [path.parent for path in reports.glob(f"*/{CONFIG_NAME}") if path.is_file()]
        runs = [run for run in runs if cls(run).result_paths()]
        if not runs:
            raise UsageError(
                f"{reports}/ has no run to take; expected a run folder as an argument, or a sweep "
                "before"
            )
        return cls(max(runs, key=lambda run: (run / CONFIG_NAME).stat().st_mtime_ns))

    @classmethod
    def create_exact(cls, path: Path) -> RunFolder:
        """Create the folder given by `--out`, which must not exist."""
        if not _make_folder(path):
            raise UsageError(
                f"{path} exists, and a run is never overwritten; "
                "pass --resume to continue it, or choose another folder"
            )
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of an earlier run, which may be empty if the run was killed at once."""
        if not path.exists():
            raise UsageError(f"{path} does not exist; expected the folder of a run{like(path)}")
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder; expected the folder of a run")
        folder = cls(path)
        known = folder.result_paths() or (path / CONFIG_NAME).is_file()
        if not known and any(not _is_temporary(file) for file in path.iterdir()):
            within = sorted(file.parent.name for file in path.glob(f"*/{CONFIG_NAME}"))
            runs = f"; it holds the runs {', '.join(within[-_SHOWN:])}" if within else ""
            more = f" and {len(within) - _SHOWN} earlier ones" * (len(within) > _SHOWN)
            raise UsageError(
                f"{path} is not a run folder: it holds no result file (<variant>.json){runs}{more}"
            )
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing into the folder.

        Raises:
            UsageError: if another process holds the lock, or a file of the run is not a regular
                file.
        """
        path = self.path / LOCK_NAME
        with naming(path):
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
            path.unlink(missing_ok=True)  # while it is locked, so it is ours
            os.close(number)

    def _refuse_what_is_no_file(self) -> None:
        """Refuse irregular files before measuring: they could not be written at the end."""
        for path in self.path.iterdir():
            ours = path.name in (CONFIG_NAME, COMPARISON_NAME, PAGE_NAME) or path.name.endswith(
                (RESULT_SUFFIX, JOURNAL_SUFFIX)
            )
            status = path.lstat()
            if ours and not stat.S_ISREG(status.st_mode):
                raise UsageError(f"cannot write {path}: {refusal_of(status)}")

    @property
    def comparison_path(self) -> Path:
        """The path of the run's comparison."""
        return self.path / COMPARISON_NAME

    @property
    def page_path(self) -> Path:
        """The path of the run's page."""
        return self.path / PAGE_NAME

    def result_path(self, variant: str) -> Path:
        """Return the path of a variant's result file."""
        return self.path / result_name(variant)

    def journal_path(self, variant: str) -> Path:
        """Return the path of a variant's journal, which stores its cases during the run."""
        return journal_beside(self.result_path(variant))

    def result_paths(self) -> list[Path]:
        """Return the result files by name, packed ones too.

        Temporary files of killed processes are not among them.
        """
        return sorted(filter(_is_result, self.path.glob("*")))

    def refuse_packed(self) -> None:
        """Refuse a run that is to be continued if a result of it is packed.

        Raises:
            UsageError: naming the first one.
        """
        for path in self.result_paths():
            if path != unpacked_path(path):
                raise UsageError(
                    f"cannot continue the run of {path}, which is packed; unpack it first, by "
                    "`xz -d` or `gzip -d`"
                )


def _make_folder(path: Path) -> bool:
    """Create a folder and its parents; return whether it is new."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError:
        if path.parent.is_dir():
            return False
        raise UsageError(f"cannot make {path}: {path.parent} is not a folder") from None
    except OSError as error:
        raise UsageError(f"cannot make {path}: {error.strerror}") from None
    return True


def _as_folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "run"


def _is_result(path: Path) -> bool:
    return unpacked_path(path).suffix == RESULT_SUFFIX and not path.name.startswith(".")


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(TEMPORARY_SUFFIX)
