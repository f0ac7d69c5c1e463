"""Where a profile is written, and the command line that takes another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bt_bench.results import RunFolder

PAGE_NAME = "profile.md"


def new_folder(name: str, reports: Path | None, out: Path | None) -> RunFolder:
    """Makes the folder of a profile.

    Args:
        name: what was profiled, for the folder's name.
        reports: where to make it; `None`: as the settings say, else `reports`.
        out: the folder itself, which must not exist.

    Raises:
        UsageError: if it cannot be made.
    """
    from bt_bench.config import read_settings
    from bt_bench.results import RunFolder

    if out is not None:
        return RunFolder.create_exact(out)
    parent = reports or read_settings(Path.cwd()).reports or Path("reports")
    return RunFolder.create(parent, f"profile-{name}")


def without_places(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments without those that say where the profile goes."""
    given = iter(arguments)
    for argument in given:
        if argument in ("--out", "--reports"):
            next(given, None)
        elif not argument.startswith(("--out=", "--reports=")):
            yield argument
