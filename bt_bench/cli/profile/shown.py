"""Printing of an existing profile, for `bt-bench show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.base import packed_or_not, unpacked_path
from bt_bench.base.errors import UsageError
from bt_bench.cli.options import print_json

if TYPE_CHECKING:
    from bt_bench.base import Redactor
    from bt_bench.report import Document


def show_profile(
    run: str, *, whole: bool, as_json: bool, selects: bool, redact: Redactor | None = None
) -> bool:
    """Print the contents of a profile's folder or file; return `False` if it is not a profile.

    A folder with results of a run is not one, even if profiles are in it.

    Args:
        run: path as given.
        whole: print everything, as in profile.md.
        as_json: print one JSON document.
        selects: whether cases, variants or operations are chosen.
        redact: secrets to leave out; `None`: everything is shown.

    Raises:
        UsageError: if it is damaged, and for a choice, since a profile is shown as a whole.
    """
    files = profile_files(Path(run))
    if not files:
        return False
    if selects:
        raise UsageError(
            f"{run} is a profile, which is shown as a whole; leave out -k, --variants, "
            "--operations and --format"
        )
    shown = [read_shown(file, redact, whole=whole) for file in files]
    if as_json:
        print_json({"schema_version": 1} | {key: found for key, found, _ in shown})
        return True
    from bt_bench.report import print_document

    for _, _, document in shown:
        print_document(document)
    return True


def profile_files(path: Path) -> list[Path]:
    """Return the files of a profile, given by its folder or one of them; none if it is not one."""
    from bt_bench.results import CENSUS_NAME, CONFIG_NAME, COUNTERS_NAME, TIMELINE_NAME

    names = (TIMELINE_NAME, COUNTERS_NAME, CENSUS_NAME)
    if path.is_dir():
        files = [] if (path / CONFIG_NAME).is_file() else [path / name for name in names]
    else:
        files = [path] if unpacked_path(path).name in names else []
    return [file for file in map(packed_or_not, files) if file.is_file()]


def read_shown(file: Path, redact: Redactor | None, *, whole: bool) -> tuple[str, Any, Document]:
    """Return a file's key in JSON, its JSON, and its page."""
    from bt_bench.report.profile import (
        counters_document,
        counters_json,
        kernels_document,
        kernels_json,
        timeline_document,
        timeline_json,
    )
    from bt_bench.results import (
        COUNTERS_NAME,
        TIMELINE_NAME,
        read_census,
        read_counters,
        read_timeline,
        redacted,
    )

    if unpacked_path(file).name == TIMELINE_NAME:
        timeline = read_timeline(file) if redact is None else redacted(read_timeline(file), redact)
        return "timeline", timeline_json(timeline), timeline_document(timeline, whole=whole)
    if unpacked_path(file).name == COUNTERS_NAME:
        counters = read_counters(file) if redact is None else redacted(read_counters(file), redact)
        return "counters", counters_json(counters), counters_document(counters, whole=whole)
    census = read_census(file) if redact is None else redacted(read_census(file), redact)
    targets = list(dict.fromkeys(k.target for v in census.variants for k in v.kernels))
    return (
        "kernels",
        kernels_json(census, targets),
        kernels_document(census, targets, whole=whole),
    )
