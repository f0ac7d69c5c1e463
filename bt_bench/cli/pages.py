"""Pages of gates and profiles, for `bt-bench report`, and for the commands that take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base.errors import UsageError
from bt_bench.base.names import RECORDING_NAME
from bt_bench.cli.exits import say, visible
from bt_bench.cli.outputs import Output, parse_outputs, write_output

if TYPE_CHECKING:
    from bt_bench.analysis import Judged
    from bt_bench.base import Redactor
    from bt_bench.results import StaticCensus
    from bt_bench.results.files.kinds import DocumentKind

PAGE_FORMAT = "html"
CENSUS_NAMES = ("base-census.json", "head-census.json")


@dataclass(frozen=True)
class FoundPage:
    """Something that has a page, and only that.

    Args:
        what: what it is, for messages.
        place: the page's file, unless another one is chosen.
        render: returns the page.
    """

    what: str
    place: Path
    render: Callable[[], str]


def found_page(given: Sequence[str], redact: Redactor | None = None) -> FoundPage | None:
    """Return the page of a gate or a profile; `None` for runs and results.

    Args:
        given: the arguments of `bt-bench report`.
        redact: secrets to leave out; `None`: everything is shown.
    """
    from bt_bench.cli.profile.page import render_profile
    from bt_bench.cli.profile.shown import profile_files
    from bt_bench.results.files.kinds import CENSUS

    if (censuses := _censuses(given)) is not None:
        place = _beside(censuses[1])
        return FoundPage("pair of censuses", place, lambda: render_censuses(*censuses, redact))
    path = Path(given[0])
    if len(given) != 1:
        return None
    if files := profile_files(path):
        folder = path if path.is_dir() else path.parent
        return FoundPage("profile", folder / _page_name(), lambda: render_profile(files, redact))
    file = _recording_in(path) if path.is_dir() else path
    kind = None if file is None else _kind_of(file)
    if file is None or kind is None:
        return None
    if kind is CENSUS:
        return FoundPage("static census", _beside(file), lambda: render_profile([file], redact))
    return FoundPage("recording of a gate", _beside(file), lambda: render_recording(file, redact))


def write_found(
    page: FoundPage, formats: Sequence[str] | None, out: Path | None, as_json: bool
) -> None:
    """Write the page of a gate or a profile where it is asked for.

    Raises:
        UsageError: for another format, for two places, and if the file cannot be written.
    """
    chosen = formats or [PAGE_FORMAT]
    names = [text.partition("=")[0] for text in chosen]
    if as_json or set(names) != {PAGE_FORMAT}:
        other = "json" if as_json else next(name for name in names if name != PAGE_FORMAT)
        raise UsageError(
            f"--format {other}: a {page.what} has no such report, only a page; expected "
            f"--format {PAGE_FORMAT}, or a run"
        )
    if out is not None and PAGE_FORMAT not in chosen:
        raise UsageError(f"--out {out}: --format has a file already; leave out one of them")
    place = f"{PAGE_FORMAT}={out or page.place}"
    chosen = [place if each == PAGE_FORMAT else each for each in chosen]
    for output in parse_outputs(chosen, known=(PAGE_FORMAT,)):
        refuse_other_suffix(output)
        write_output(output, page.render())
        if output.path is not None:
            say(f"wrote {visible(str(output.path))}")


def refuse_other_suffix(output: Output) -> None:
    """Refuse to write HTML into a file that is named as another format's."""
    path = output.path
    if output.name == PAGE_FORMAT and path is not None and path.suffix in (".md", ".json", ".txt"):
        raise UsageError(
            f"{path} would be HTML; expected a file such as {path.stem}.html, or another --format"
        )


def render_recording(file: Path, redact: Redactor | None = None) -> str:
    """Judge a recording again, and return its page, without the secrets of `redact`."""
    from bt_bench.report.page import gate_page, render_page
    from bt_bench.results import read_recording, redacted
    from bt_bench.runs import judge_recording

    recording = read_recording(file)
    if not recording.subjects:
        raise UsageError(
            f"{file} has no rounds: nothing was timed, so there is no page but the gate's own"
        )
    if redact is not None:
        recording = redacted(recording, redact)
    return render_page(gate_page(judge_recording(recording), recording))


def render_censuses(base: Path, head: Path, redact: Redactor | None = None) -> str:
    """Judge two censuses again, and return their page, without the secrets of `redact`."""
    from bt_bench.analysis import judge_static
    from bt_bench.report.page import render_page, static_page
    from bt_bench.results import read_census, redacted

    before, after = (read_census(file) for file in (base, head))
    if redact is not None:
        before, after = redacted(before, redact), redacted(after, redact)
    labels = (base.name, head.name) if base.name != head.name else (str(base), str(head))
    return render_page(static_page(judge_static(before, after, *labels), before, after))


def write_gate_page(judged: Judged, folder: Path, censuses: Sequence[StaticCensus] = ()) -> None:
    """Write the page of a gate into its folder; warn if that cannot be done.

    A folder that has the page of a run, whose result was compared with a stored one, keeps it.

    Args:
        judged: the verdicts.
        folder: the gate's folder.
        censuses: of base and head, for a static gate.
    """
    from bt_bench.report.page import gate_page, render_page, static_page
    from bt_bench.results import PAGE_NAME, read_recording, write_run_file

    file, recording = folder / PAGE_NAME, folder / RECORDING_NAME
    if file.exists():
        return
    try:
        if censuses:
            page = static_page(judged, *censuses)
        else:
            page = gate_page(judged, read_recording(recording) if recording.exists() else None)
        write_run_file(file, render_page(page))
    except Exception as error:  # the verdicts stand, whatever becomes of their page
        say(f"warning: no page of this gate: {visible(str(error))}")


def _page_name() -> str:
    from bt_bench.results import PAGE_NAME

    return PAGE_NAME


def _censuses(given: Sequence[str]) -> tuple[Path, Path] | None:
    """Return the files of two censuses: both given, or of base and head in a folder."""
    from bt_bench.results.files.kinds import CENSUS

    paths = [Path(each) for each in given]
    if len(paths) == 1:
        paths = [paths[0] / name for name in CENSUS_NAMES]
    if len(paths) != 2 or not all(_kind_of(each) is CENSUS for each in paths):
        return None
    return paths[0], paths[1]


def _recording_in(folder: Path) -> Path | None:
    """Return the recording of a gate's folder, which is not also one of a run."""
    from bt_bench.base import packed_or_not
    from bt_bench.results import CONFIG_NAME

    file = packed_or_not(folder / RECORDING_NAME)
    return file if file.is_file() and not (folder / CONFIG_NAME).is_file() else None


def _beside(file: Path) -> Path:
    """Return the place of a page: a folder with several recordings has a page for each."""
    from bt_bench.base import unpacked_path
    from bt_bench.results import PAGE_NAME

    plain = unpacked_path(file)
    names = (RECORDING_NAME, *CENSUS_NAMES)
    return file.with_name(PAGE_NAME if plain.name in names else f"{plain.stem}.html")


def _kind_of(file: Path) -> DocumentKind | None:
    """Return the kind of a file that has a page; `None` for others, damaged ones among them."""
    from pydantic_core import from_json

    from bt_bench.base import read_text
    from bt_bench.results.files.kinds import CENSUS, RECORDING, kind_of_document

    if not file.is_file():
        return None
    try:
        kind = kind_of_document(from_json(read_text(file, str(file))))
    except (UsageError, ValueError):  # to be refused by those who read it as a result
        return None
    return kind if kind in (RECORDING, CENSUS) else None
