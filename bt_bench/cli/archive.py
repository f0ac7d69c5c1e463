"""`bt-bench archive`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError, counted
from bt_bench.cli.exits import say, visible
from bt_bench.cli.loading import latest_run
from bt_bench.cli.next_steps import command, near
from bt_bench.cli.options import JsonOption

if TYPE_CHECKING:
    from bt_bench.results import Archive


def archive(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run folder.", show_default="the latest run"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write to this new file, whose name ends in .tar.xz.",
            show_default="RUN.tar.xz beside the folder",
        ),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            metavar="FILE",
            help="Compare the files of an archive with its digests, and write nothing.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Pack a run into one file: results, config, reports, commands, environment and digests.

    Equal folders give equal files. `tar xf` unpacks them, `sha256sum -c MANIFEST` checks them
    without bt-bench. Needs neither torch nor a GPU.

    Examples:
    - `bt-bench archive`
    - `bt-bench archive reports/run --out run.tar.xz`
    - `bt-bench archive --verify run.tar.xz`
    """
    import json

    from bt_bench.results import ARCHIVE_SUFFIX, verify_archive, write_archive

    if verify is not None:
        if run is not None or out is not None:
            raise UsageError(
                f"--verify {verify} writes nothing; leave out {'RUN' if run else '--out'}"
            )
        found = verify_archive(verify)
    else:
        folder = Path(latest_run()) if run is None else run
        if out is None:
            out = folder.resolve().with_name(f"{folder.resolve().name}{ARCHIVE_SUFFIX}")
        found = write_archive(folder, out)
        if not found.about.complete:
            say(f"{folder} is the partial result of a run that was interrupted")
    if as_json:
        print(json.dumps(_as_json(found), indent=2, ensure_ascii=False))
    else:
        for line in _lines(found, verified=verify is not None):
            print(visible(line))
    return ExitCode.OK


def _lines(found: Archive, verified: bool) -> list[str]:
    from bt_bench.base import format_bytes

    runs = ", ".join(map(str, found.about.run_ids))
    place = near(found.path)
    state = "" if found.about.complete else ", partial"
    listed = " as its MANIFEST lists them" if verified else ""
    files = f"{counted(len(found.digests), 'file')}{listed}"
    lines = [
        f"{place}: {files}, {format_bytes(found.num_bytes, 3)}, of run {runs}{state}",
        f"SHA-256: {found.sha256}",
    ]
    if verified:
        return lines
    return [*lines, f"Next:    {command('archive', '--verify', place)}"]


def _as_json(found: Archive) -> dict[str, object]:
    return {
        "schema_version": 1,
        "archive": str(found.path),
        "sha256": found.sha256,
        "num_bytes": found.num_bytes,
        "files": dict(found.digests),
        "about": found.about.model_dump(mode="json"),
    }
