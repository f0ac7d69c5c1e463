"""The folder of a profile, and the command line that takes another one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base import packed_or_not, unpacked_path
from bt_bench.base.errors import NotComparableError, UsageError
from bt_bench.cli.exits import say

if TYPE_CHECKING:
    from bt_bench.results import RunFolder

PAGE_NAME = "profile.md"
COUNTERS_PAGE_NAME = "counters.md"
"""The page of counters in a folder that also holds another tool's profile."""

PREFIX = "profile-"
_MOST_CHARACTERS = 100  # of a case's name


def case_folder(run: Path, case: str) -> Path:
    """Return the folder within a run's folder for profiles of a case.

    Args:
        run: the run's folder.
        case: the case's name. If it cannot be part of a file name as it is, unsafe characters are
            replaced, and a hash of the name is appended.
    """
    import hashlib  # late, as `--help` needs none

    plain = re.sub(r"[^A-Za-z0-9._=+-]", "-", case)[:_MOST_CHARACTERS]
    # Any name in a run's folder with such an ending counts as a result.
    if plain != case or unpacked_path(Path(PREFIX + plain)).suffix in (".json", ".jsonl"):
        plain = f"{plain}-{hashlib.sha256(case.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return run / f"{PREFIX}{plain}"


def case_folders(run: Path) -> list[Path]:
    """Return the folders of profiles within a run's folder, by name.

    Args:
        run: the run's folder.
    """
    from bt_bench.results import COUNTERS_NAME, TIMELINE_NAME

    return sorted(
        folder
        for folder in run.glob(f"{PREFIX}*")
        if any(packed_or_not(folder / name).is_file() for name in (TIMELINE_NAME, COUNTERS_NAME))
    )


def refuse_place(out: Path | None) -> None:
    """Refuse a folder that cannot be made, before time is spent on the profile.

    Args:
        out: the value of `--out`; `None`: a folder with a new name is made.

    Raises:
        UsageError: if the path exists, or its nearest existing parent is not a writable folder.
    """
    # A dangling link counts, too.
    if out is not None and (out.is_symlink() or out.exists()):
        raise UsageError(
            f"--out {out} exists, and a profile is never overwritten; choose another folder"
        )
    parent = None if out is None else next((at for at in out.parents if at.exists()), None)
    if parent is not None and not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        what = "cannot be written to" if parent.is_dir() else "is not a folder"
        raise UsageError(f"--out {out} cannot be made: {parent} {what}; choose another folder")


@contextmanager
def naming_profile(folder: RunFolder) -> Iterator[None]:
    """Print where the profile is if its comparison is refused: it need not be taken again."""
    try:
        yield
    except NotComparableError:
        say(f"the profile is in {folder.path}")
        raise


def without_places(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments without the ones that set the profile's place."""
    given = iter(arguments)
    for argument in given:
        if argument in ("--out", "--reports"):
            next(given, None)
        elif not argument.startswith(("--out=", "--reports=")):
            yield argument
