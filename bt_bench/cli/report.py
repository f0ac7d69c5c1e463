"""`bt-bench report`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli import completion
from bt_bench.cli.exits import say, visible
from bt_bench.cli.loading import latest_run
from bt_bench.cli.options import JsonOption, RedactOption
from bt_bench.cli.outputs import Output, parse_outputs, write_output
from bt_bench.cli.pages import PAGE_FORMAT, found_page, refuse_other_suffix, write_found

if TYPE_CHECKING:
    from bt_bench.report.evidence import Evidence


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="A run folder, a profile, a recording of a gate, or one or two static censuses; "
            "or two or more run folders or result files, the base first, also as LABEL=PATH.",
            show_default="the latest run",
        ),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="FMT[=PATH]",
            help="Write html, a page to look at; md, all tables; pr, the description of a pull "
            "request to vLLM; or json. =FILE writes to a file, =- to stdout. May be repeated.",
            show_default="html, into the run's folder",
            autocompletion=completion.one_of("html", "md", "pr", "json"),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write to this file in place of stdout or the run folder."
        ),
    ] = None,
    redact: RedactOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Write a report of a run, or of a comparison of runs: a page, tables, a pull request.

    The page is one HTML file without references to others: who is faster, by how much, how sure,
    where the time goes, and every case. A sweep writes it too. `--format pr` has the sections of
    vLLM's template: the measured claims with their worst case, certainty, hardware and commands,
    and blanks for a human. Needs neither torch nor a GPU.

    Examples:
    - `bt-bench report`
    - `bt-bench report reports/run --redact --out page.html`
    - `bt-bench report reports/run --format pr --out description.md`
    - `bt-bench report reports/run/vllm.json reports/run/fused.json --out pair.html`
    - `bt-bench report before=reports/a after=reports/b --format pr=pr.md --json`
    """
    from bt_bench.base import no_collection, redactor_here
    from bt_bench.report.formats.md_format import MOST_CHARACTERS
    from bt_bench.report.pull_request.blanks import BLANKS
    from bt_bench.report.report_formats import REPORT_FORMATS
    from bt_bench.results import redacted

    given = runs or [latest_run()]
    known = redactor_here([Path(text) for text in given]) if redact else None
    if (page := found_page(given, known)) is not None:
        write_found(page, formats, out, as_json)
        return ExitCode.OK
    chosen = formats or ([] if as_json else [PAGE_FORMAT])
    if out is None:
        chosen = [_page_in(given) if each == PAGE_FORMAT else each for each in chosen]
    outputs = parse_outputs(chosen, as_json, tuple(REPORT_FORMATS))
    outputs = outputs if out is None else _into(out, outputs)
    for output in outputs:
        refuse_other_suffix(output)
        _spare_human_text(output)
    with no_collection(collect_first=False):
        evidence = _read(given)
        if redact:
            evidence = redacted(evidence, redactor_here(evidence.paths))
    for output in sorted(outputs, key=lambda each: each.path is None):
        with no_collection(collect_first=False):
            text = REPORT_FORMATS[output.name](evidence)
        write_output(output, text)
        if output.name == PAGE_FORMAT and output.path is not None:
            say(f"wrote {visible(str(output.path))}")
        if output.name == "pr":
            where = "" if output.path is None else f"{output.path}: "
            say(f"{where}a human has to write {len(BLANKS)} parts, which are marked")
            if len(text) > MOST_CHARACTERS:
                say(f"{where}it is longer than GitHub takes ({MOST_CHARACTERS:,} characters)")
    return ExitCode.OK


def _page_in(given: Sequence[str]) -> str:
    """Return the output of a page whose file is not given: `report.html` in the run's folder.

    Raises:
        UsageError: unless it is the page of one run folder.
    """
    from bt_bench.analysis import parse_given
    from bt_bench.results import PAGE_NAME

    parsed = [parse_given(text) for text in given]
    if len(parsed) == 1 and parsed[0].is_folder:
        return f"{PAGE_FORMAT}={Path(parsed[0].path) / PAGE_NAME}"
    if not all(Path(each.path).exists() for each in parsed):
        return PAGE_FORMAT  # to read it is refused
    raise UsageError(
        "the page is not of one run folder, so it has no place of its own; expected its file, as "
        f"in --out {PAGE_NAME}"
    )


def _spare_human_text(output: Output) -> None:
    """Refuse to replace a description in which a human may have written."""
    from bt_bench.report.pull_request.blanks import BLANKS

    path = output.path
    if output.name != "pr" or path is None or not path.is_file() or not path.stat().st_size:
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if not all(blank.ask in text for blank in BLANKS):
        raise UsageError(
            f"{path} exists, and is no draft with all of its {len(BLANKS)} blanks: a human may "
            "have written in it. Choose another file, or remove this one"
        )


def _into(out: Path, outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs, with the one on stdout going to a file."""
    if all(output.path is not None for output in outputs):
        raise UsageError(f"--out {out}: every --format has a file already; leave out one of them")
    return [output if output.path else Output(output.name, out) for output in outputs]


def _read(texts: Sequence[str]) -> Evidence:
    """Read runs, and compare their results.

    Raises:
        UsageError: for a run that cannot be read.
        NotComparableError: for results that must not be compared.
    """
    from bt_bench.analysis import Criteria, parse_given
    from bt_bench.api.comparing import judge_given
    from bt_bench.api.reading import read_results
    from bt_bench.base import STDIN
    from bt_bench.report import not_compared_lines
    from bt_bench.report.evidence import Evidence, ReportedRun
    from bt_bench.report.run.arranged import arrange
    from bt_bench.results import VariantResult

    given = [parse_given(text) for text in texts]
    of_run: dict[str, dict[str, VariantResult]] = {}
    folders: dict[str, Path] = {}
    for each in given:
        if each.path == STDIN:
            raise UsageError("- cannot be reported; expected run folders or result files")
        for result in read_results(each.path):
            of_run.setdefault(result.run_id, {}).setdefault(result.variant.name, result)
            if each.is_folder:
                folders[result.run_id] = Path(each.path)
    reported = []
    for run_id, results in of_run.items():
        planned, absent = _planned(folders.get(run_id), results)
        reported.append(ReportedRun(arrange([*results.values()]), planned, absent))
    paths, all_runs = tuple(Path(each.path) for each in given), tuple(reported)
    base = reported[0].arms.baseline.result.variant.name
    if len(given) == len(reported) == 1:
        return Evidence(paths, all_runs, base, reported[0].arms.judged)
    judged, lacking = judge_given(given, Criteria(allow_partial=True))
    if not given[0].is_folder:
        base = read_results(given[0].path)[0].variant.name
    pairs = all(each.is_folder for each in given) and len(given) > 1
    lines = tuple(not_compared_lines(lacking))
    return Evidence(paths, all_runs, None if pairs else base, judged, lines)


def _planned(folder: Path | None, found: Collection[str]) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of planned cases, and planned variants without a result."""
    from bt_bench.config import planned_cases, planned_variants

    if folder is None:
        return None, ()
    try:
        names = planned_variants(folder) or ()
        return planned_cases(folder), tuple(name for name in names if name not in found)
    except UsageError:  # collected results may have no config
        return None, ()
