"""The page of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.exits import say, visible
from bt_bench.cli.profile.shown import profile_files, read_shown

if TYPE_CHECKING:
    from bt_bench.base import Redactor


def render_profile(files: Sequence[Path], redact: Redactor | None = None) -> str:
    """Return the page of a profile's files: timelines, counters, and kernels with their code.

    Args:
        files: the files.
        redact: secrets to leave out; `None`: everything is shown.
    """
    from bt_bench.base import unpacked_path
    from bt_bench.report.page import profile_page, render_page
    from bt_bench.results import TIMELINE_NAME, read_timeline, redacted

    timelines = [file for file in files if unpacked_path(file).name == TIMELINE_NAME]
    others = [file for file in files if file not in timelines]
    timeline = read_timeline(timelines[0]) if timelines else None
    if timeline is not None and redact is not None:
        timeline = redacted(timeline, redact)
    documents = [read_shown(file, redact, whole=True)[2] for file in others]
    return render_page(profile_page(timeline, documents))


def write_profile_page(folder: Path) -> list[str]:
    """Write the page of a profile's folder, and return its name; warn if that cannot be done."""
    from bt_bench.results import PAGE_NAME, write_run_file

    try:
        write_run_file(folder / PAGE_NAME, render_profile(profile_files(folder)))
    except Exception as error:  # the profile stands, whatever becomes of its page
        say(f"warning: no page of this profile: {visible(str(error))}")
        return []
    return [PAGE_NAME]
