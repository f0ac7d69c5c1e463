"""`--format` and `--fail-on`: destinations of reports, and verdicts that fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError, names_hint
from bt_bench.base.names import FailOn
from bt_bench.cli import completion
from bt_bench.cli.exits import say

if TYPE_CHECKING:
    from bt_bench.analysis import Judged, Judgement

FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="FMT[=PATH]",
        help="Print as table, md, json, csv, junit, html-fragment or github; "
        "=FILE writes to a file. "
        "May be repeated.",
        show_default="table",
        autocompletion=completion.formats,
    ),
]
FailOnOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        envvar="BT_BENCH_FAIL_ON",
        metavar="A,B,…",
        help="Fail on these verdicts: slower, faster, missing, invalid, inconclusive; or none.",
        show_default="slower, missing, invalid",
        autocompletion=completion.any_of(*FailOn),
    ),
]
AllowMissingOption = Annotated[
    bool,
    typer.Option("--allow-missing", help="Do not fail on cases or metrics that only one side has."),
]
AllowPartialOption = Annotated[
    bool,
    typer.Option(
        "--allow-partial", help="Compare partial results too, from runs that did not finish."
    ),
]

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
STDOUT = 1


@dataclass(frozen=True)
class Output:
    """A format, and the file it is written to; `None`: stdout."""

    name: str
    path: Path | None


def parse_outputs(
    texts: Sequence[str] | None, as_json: bool = False, known: Sequence[str] = ()
) -> list[Output]:
    """Return the outputs of `--format`; without any, a table on stdout.

    Args:
        texts: values as given.
        as_json: `--json` is given as well.
        known: names of formats; without any, the formats of comparisons.

    Raises:
        UsageError: for an unknown format, and for two reports that would share stdout, a file or a
            stream.
    """
    from bt_bench.base import descriptor_of, is_open_as
    from bt_bench.report import FORMATS

    outputs = []
    for text in texts or ():
        name, equals, path = text.partition("=")
        if name not in (names := list(known or FORMATS)):
            raise UsageError(f"--format {text}: unknown format; {names_hint(name, names)}")
        if equals and not path:
            raise UsageError(f"--format {text}: expected a file after '='")
        to_stdout = not equals or path == "-" or descriptor_of(Path(path)) == STDOUT
        outputs.append(Output(name, None if to_stdout else Path(path)))
    on_stdout = [output.name for output in outputs if output.path is None]
    if as_json:
        on_stdout.append("json")
        outputs.append(Output("json", None))
    if len(on_stdout) > 1:
        raise UsageError(
            f"{' and '.join(on_stdout)} would both go to stdout; write all but one to a file, as "
            f"in --format {on_stdout[-1]}=PATH"
        )
    paths = [output.path for output in outputs if output.path is not None]
    _refuse_one_place(paths)
    for file in paths:
        if is_open_as(STDOUT, file):
            raise UsageError(
                f"--format {file}: stdout goes to this file too, with another report; expected "
                "another file"
            )
    return outputs or [Output("table", None)]


def _refuse_one_place(paths: Sequence[Path]) -> None:
    """Refuse two reports in one place, unless it is the null device."""
    from bt_bench.base import is_null_device, target_of

    taken = set()
    for path in paths:
        place = target_of(path)
        if place in taken and not is_null_device(path):
            raise UsageError(f"two --format options name {path}; expected a file for each")
        taken.add(place)


def write_outputs(judged: Judged, outputs: Sequence[Output], whole: bool = False) -> None:
    """Write files first, then stdout: files are then complete whatever happens to stdout.

    If there are only files, one line on stderr has the verdicts.

    The `github` format also appends to the step summary if GitHub names a file for it. A file that
    cannot be written does not keep the others from being written.

    Args:
        judged: the comparison.
        outputs: destinations of the report.
        whole: tables list all verdicts, and not only changes.

    Raises:
        UsageError: when a file cannot be written.
    """
    from bt_bench.analysis import tally_of

    failed = []
    written = []
    for output in sorted(outputs, key=lambda output: output.path is None):
        try:
            _write(judged, output, whole)
            written.append(str(output.path))
        except UsageError as error:
            failed.append(str(error))
    if outputs and all(output.path is not None for output in outputs):
        where = f"; written to {', '.join(written)}" if written else ""
        say(f"verdicts: {tally_of(judged)}{where}")
    if failed:
        raise UsageError("\n".join(failed))


def _write(judged: Judged, output: Output, whole: bool) -> None:
    from bt_bench.report import (
        FORMATS,
        print_document,
        render_table,
        step_summary,
        verdict_document,
    )

    if output.path is None and output.name == "table":  # stdout may be a terminal
        print_document(verdict_document(judged, whole))
        return
    # A file is kept, so it gets everything.
    whole = whole or output.path is not None
    text = render_table(judged, whole) if output.name == "table" else FORMATS[output.name](judged)
    write_output(output, text)
    summary = os.environ.get(STEP_SUMMARY)
    if output.name == "github" and summary:
        _append(Path(summary), lambda taken: step_summary(judged, taken))


def write_output(output: Output, text: str) -> None:
    """Write a report to its destination.

    Raises:
        UsageError: when a file cannot be written.
    """
    from bt_bench.base import write_text

    if output.path is None:
        sys.stdout.write(text)
        return
    _make_folder(output.path)
    say_if_waiting(output.path, "reader")
    write_text(output.path, text)


def final_code(
    judged: Judged,
    fail_on: Collection[FailOn],
    not_compared: Mapping[str, Sequence[Judgement]],
    *,
    require_power: bool = False,
) -> ExitCode:
    """Return the exit code. If a side was not compared, fail, and print the reason on stderr.

    Args:
        judged: the comparison.
        fail_on: verdicts that fail it.
        not_compared: by side, judgements that explain why too little of it was compared.
        require_power: also fail a gate that could not have found the slowdown it looks for.
    """
    from bt_bench.analysis import exit_code, timed_nothing
    from bt_bench.report import not_compared_lines

    short = require_power and exit_code(judged, fail_on, True) is ExitCode.INCONCLUSIVE
    if short and timed_nothing(judged):
        say("--require-power: nothing was timed, so no slowdown could have been found")
    for line in not_compared_lines(not_compared):
        say(f"error: {line}")
    return exit_code(judged, fail_on, require_power, not_compared)


def say_if_waiting(path: Path, whom: str) -> None:
    """Print on stderr that opening a FIFO waits for its other end, unless it is open already.

    Args:
        path: path of a file; if it cannot be examined, opening it reports the error.
        whom: the other end, `reader` or `writer`.
    """
    from bt_bench.base import descriptor_of

    with suppress(OSError):
        if path.is_fifo() and descriptor_of(path) is None:
            say(f"{path} is a FIFO; waiting for its {whom}")


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: cannot make its folder: {error.strerror}") from None


def _append(path: Path, text_after: Callable[[int], str]) -> None:
    """Append a text that depends on the number of bytes that the file has so far."""
    try:
        with path.open("a", encoding="utf-8") as file:
            text = text_after(os.fstat(file.fileno()).st_size)
            file.write(text)
        if not text:
            say(f"warning: {path} is as large as GitHub takes, so verdicts are not added to it")
    except OSError as error:
        reason = error.strerror
        raise UsageError(f"cannot write {path}, which {STEP_SUMMARY} names: {reason}") from None
