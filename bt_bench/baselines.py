"""Stored results under a name, to compare later ones with: `<reports>/baselines/<name>.json`."""

from __future__ import annotations

import re
from pathlib import Path

from bt_bench.errors import UsageError
from bt_bench.store import read_text, write_text
from bt_bench.wording import names_hint

FOLDER = "baselines"
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")


def baseline_path(reports: Path, name: str) -> Path:
    """Where the baseline of a name is or would be.

    Raises:
        UsageError: for a name that is no name of a file.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"baseline name {name!r} cannot be a file name; "
            "expected up to 100 letters, digits and any of . _ + -"
        )
    return reports / FOLDER / f"{name}{_SUFFIX}"


def baseline_names(reports: Path) -> list[str]:
    """Names of the baselines that there are."""
    paths = (reports / FOLDER).glob(f"*{_SUFFIX}")
    return sorted(path.stem for path in paths if _NAME.fullmatch(path.stem))


def find_baseline(reports: Path, name: str) -> Path:
    """The file of a baseline.

    Raises:
        UsageError: when there is none of that name, with those that there are.
    """
    path = baseline_path(reports, name)
    if path.is_file():
        return path
    names = baseline_names(reports)
    hint = names_hint(name, names) if names else "there is none yet; --save-baseline NAME makes one"
    there = f" It holds {', '.join(names)}." if names else ""
    raise UsageError(f"--baseline {name}: no such baseline in {path.parent}; {hint}{there}")


def save_baseline(reports: Path, name: str, source: Path) -> Path:
    """Stores a copy of a result file, in place of an earlier baseline of that name.

    Args:
        reports: the folder of run folders.
        name: of the baseline.
        source: a result file that can be read.

    Raises:
        UsageError: if it cannot be written.
    """
    path = baseline_path(reports, name)
    text = read_text(source, str(source))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {path.parent}: {error.strerror}") from None
    write_text(path, text)
    return path
