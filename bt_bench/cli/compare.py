"""`bt-bench compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base import joined, names_given
from bt_bench.base.errors import ExitCode, UsageError, names_hint
from bt_bench.cli import completion
from bt_bench.cli.baselines import Saving, stored_baseline
from bt_bench.cli.exits import say
from bt_bench.cli.loading import latest_run, reports_folder
from bt_bench.cli.options import JsonOption, RedactOption, recorded_option, reports_option
from bt_bench.cli.outputs import (
    AllowMissingOption,
    AllowPartialOption,
    FailOnOption,
    FormatOption,
    Output,
    final_code,
    parse_outputs,
    say_if_waiting,
    write_outputs,
)

if TYPE_CHECKING:
    from bt_bench.analysis import Criteria, Given, Judged
    from bt_bench.base.names import FailOn

COMPARING = "Comparison"
SHOWING = "Output and exit code"
BASELINES = "Stored baselines"
_comparing = partial(typer.Option, rich_help_panel=COMPARING)
_showing = partial(typer.Option, rich_help_panel=SHOWING)
_stored = partial(typer.Option, rich_help_panel=BASELINES)


def compare(
    results: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RESULT",
            help="Result files or run folders, the base first, also as LABEL=PATH; - reads a "
            "result from stdin.",
            show_default="the latest run",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        _comparing(
            "--metric",
            metavar="PATTERN",
            help="Compare only these metrics, such as host_us, 'gpu_us*', or the sum "
            "host_us+stage_us. May be repeated.",
        ),
    ] = None,
    all_metrics: Annotated[
        bool,
        _showing(
            "--all-metrics",
            help="Let all metrics decide the exit code, not only the primary ones or the ones of "
            "--metric.",
        ),
    ] = False,
    select: Annotated[
        list[str] | None,
        recorded_option(
            "-k",
            "Show and count only the cases whose name matches one of these patterns, such as "
            "`a,b*`.",
            completion.recorded_cases,
            COMPARING,
        ),
    ] = None,
    variants: Annotated[
        str | None,
        recorded_option(
            "--variants",
            "Compare only these variants with the base.",
            completion.recorded_variants,
            COMPARING,
        ),
    ] = None,
    operations: Annotated[
        str | None,
        recorded_option(
            "--operations",
            "Show and count only these operations.",
            completion.recorded_operations,
            COMPARING,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        _comparing(
            "--threshold",
            envvar="BT_BENCH_THRESHOLD",
            metavar="PERCENT",
            help="Ignore changes up to this size, in percent, from 0 to 1000.",
            show_default="2, between runs 5",
        ),
    ] = None,
    floors: Annotated[
        list[str] | None,
        _comparing(
            "--floor",
            metavar="METRIC=AMOUNT",
            help="Ignore differences up to this amount, 0 or more, in the unit of the metric, such "
            "as registers=8 or 'host_us*=0.5'. May be repeated; the last that matches counts.",
            show_default="counts 0, times 0.2 µs",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        _comparing(
            "--alpha",
            envvar="BT_BENCH_ALPHA",
            metavar="P",
            help="Probability of any false SLOWER among the primary metrics of a side, and of any "
            "false FASTER; above 0, up to 0.5.",
            show_default="0.01",
        ),
    ] = None,
    correction: Annotated[
        str,
        _comparing(
            "--correction",
            metavar="holm|bh|none",
            help="Multiple-testing correction: holm, bh (Benjamini–Hochberg) or none.",
            autocompletion=completion.one_of("holm", "bh", "none"),
        ),
    ] = "holm",
    config: Annotated[
        str | None,
        _comparing(
            "--config",
            metavar="CONFIG",
            help="Use the margins per case and the `gate` section of this config.",
            autocompletion=completion.configs,
        ),
    ] = None,
    ignore_device: Annotated[
        bool,
        _comparing(
            "--ignore-device",
            help="Compare results of different devices or versions of torch, CUDA or Triton.",
        ),
    ] = False,
    ignore_helpers: Annotated[
        bool,
        _comparing(
            "--ignore-helpers",
            help="Compare results that were measured with different helpers in use: staging in C, "
            "direct launches, CUPTI, NVML, NVTX.",
        ),
    ] = False,
    ignore_plan: Annotated[
        bool, _comparing("--ignore-plan", help="Compare results of different measurement plans.")
    ] = False,
    formats: FormatOption = None,
    as_json: JsonOption = False,
    redact: RedactOption = False,
    fail_on: FailOnOption = None,
    allow_missing: AllowMissingOption = False,
    allow_partial: AllowPartialOption = False,
    only_changed: Annotated[
        bool, _showing("--only-changed", help="Leave out cases and metrics that did not change.")
    ] = False,
    show_all: Annotated[
        bool,
        _showing(
            "--all",
            help="List all verdicts by case, and how they were decided; without it, the worst on "
            "one screen.",
        ),
    ] = False,
    sort: Annotated[
        str | None,
        _showing(
            "--sort",
            metavar="name|change|verdict",
            help="Sort the verdicts by case name, by change (the largest increase first) or with "
            "the worst verdict first. Of many, the first screen lists the worst, in that order.",
            show_default="the worst first; with --all, the order of the base",
            autocompletion=completion.one_of("name", "change", "verdict"),
        ),
    ] = None,
    explain: Annotated[
        str | None,
        _showing(
            "--explain",
            metavar="CASE",
            help="Print the numbers behind the verdicts of one case.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        _stored(
            "--baseline",
            metavar="NAME",
            help="Compare with the result stored under this name, as the base.",
            autocompletion=completion.baselines,
        ),
    ] = None,
    save: Annotated[
        str | None,
        _stored(
            "--save-baseline",
            metavar="NAME",
            help="Store the first result under this name, unless the comparison fails.",
        ),
    ] = None,
    reports: Annotated[
        Path | None, reports_option("Keep baselines in DIR/baselines.", BASELINES)
    ] = None,
) -> ExitCode:
    """Compare results with the first one, case by case: which got slower?

    Needs neither torch nor a GPU. Exits with 1 if a primary metric is slower, with 4 if one is
    missing, partial or not comparable, with 5 if one failed or contradicts itself. Noise is
    INCONCLUSIVE, with the slowdown that would have been found.

    Examples:
    - `bt-bench compare`
    - `bt-bench compare reports/run/baseline.json reports/run/fused.json`
    - `bt-bench compare old=reports/a/fused.json new=reports/b/fused.json --metric host_us`
    - `bt-bench compare reports/run --format md --format junit=junit.xml`
    - `bt-bench compare reports/b/fused.json --baseline main`
    """
    from bt_bench.analysis import Criteria, Selection, parse_given
    from bt_bench.api.comparing import fail_on_of, rules_of
    from bt_bench.base import no_collection
    from bt_bench.config import load_config

    outputs = _outputs(formats, as_json, explain)
    spec = None if config is None else load_config(config)
    failing = fail_on_of(fail_on, spec, allow_missing=allow_missing)
    rules = rules_of(threshold, alpha, correction, spec)
    margins = spec.margins if spec else {}
    criteria = Criteria(
        rules,
        tuple(metrics or ()),
        all_metrics,
        margins,
        ignore_device=ignore_device,
        ignore_helpers=ignore_helpers,
        ignore_plan=ignore_plan,
        allow_partial=allow_partial,
        floors=_floors(floors or ()),
        selection=Selection(
            joined(select),
            names_given("--operations", operations),
            names_given("--variants", variants),
        ),
    )
    if save is not None and (chosen := criteria.selection.options):
        raise UsageError(
            f"--save-baseline {save} stores a whole result, so all of it has to be compared; "
            f"leave out {chosen}"
        )
    arrange = _arrangement(sort, only_changed)
    given = [parse_given(text) for text in results or [latest_run(reports)]]
    for each in given:
        say_if_waiting(Path(each.path), "writer")
    saving = None if save is None else Saving(reports_folder(reports), save, given[0])
    if saving and len(given) == 1 and baseline is None:
        saving.save()
        return ExitCode.OK
    stored = None if baseline is None else stored_baseline(reports_folder(reports), baseline)
    # Reading makes many objects but no garbage; they are released when the block ends.
    with no_collection(collect_first=False):
        code = _report(
            given, stored, criteria, arrange, outputs, explain, failing, show_all, redact
        )
    if saving:
        if code is ExitCode.OK:
            saving.save()
        else:
            say(f"baseline {saving.name} is not saved, since the comparison failed")
    return code


def _report(
    given: Sequence[Given],
    stored: Given | None,
    criteria: Criteria,
    arrange: Callable[[Judged], Judged],
    outputs: Sequence[Output],
    explain: str | None,
    failing: Collection[FailOn],
    show_all: bool,
    redact: bool,
) -> ExitCode:
    """Compare, and write all outputs before the outcome is reported."""
    from bt_bench.api.comparing import judge_given
    from bt_bench.report import explanation_document, print_document

    judged, not_compared = judge_given(given, criteria, stored)
    judged = _redacted(judged, given) if redact else judged
    if explain is not None:
        print_document(explanation_document(judged, explain))
    write_outputs(arrange(judged), outputs, show_all)
    return final_code(judged, failing, not_compared)


def _redacted(judged: Judged, given: Sequence[Given]) -> Judged:
    """Leave out secrets; the side `vllm@main` is no user of a host."""
    from bt_bench.base import redactor_here
    from bt_bench.results import redacted

    names = {label.partition("@")[0] for label in (judged.base, *judged.others)}
    return redacted(judged, redactor_here([Path(each.path) for each in given], names))


def _outputs(formats: list[str] | None, as_json: bool, explain: str | None) -> list[Output]:
    """Return where the report goes; with `--explain`, which needs stdout, only to files."""
    outputs = parse_outputs(formats, as_json)
    if explain is None:
        return outputs
    files = [output for output in outputs if output.path is not None]
    if as_json or len(files) < len(formats or ()):
        raise UsageError("--explain prints to stdout itself; write every --format to a file")
    return files


def _floors(texts: Sequence[str]) -> dict[str, float]:
    """Parse `--floor` options into amounts by pattern of metric names."""
    floors = {}
    for text in texts:
        pattern, _, amount = text.rpartition("=")
        try:
            floor = float(amount)
        except ValueError:
            floor = math.nan
        if not pattern or not 0 <= floor < math.inf:
            raise UsageError(
                f"--floor {text}: expected METRIC=AMOUNT with an amount of 0 or more, such as "
                "registers=8"
            )
        floors[pattern] = floor
    return floors


def _arrangement(sort: str | None, only_changed: bool) -> Callable[[Judged], Judged]:
    from bt_bench.report.formats import arrange

    if sort is not None and sort not in list(arrange.SortKey):
        hint = names_hint(sort, [each.value for each in arrange.SortKey])
        raise UsageError(f"--sort {sort}: unknown; {hint}")

    def arranged(judged: Judged) -> Judged:
        if only_changed:
            judged = arrange.only_changed(judged)
        return judged if sort is None else arrange.sorted_by(judged, arrange.SortKey(sort))

    return arranged
