"""The report of a run as text: in its folder, and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from bt_bench.analysis import EVERYTHING, Selection
from bt_bench.report.console import print_document, render_plain
from bt_bench.report.markdown import render_document
from bt_bench.report.run.brief import brief_document
from bt_bench.report.run.document import run_document
from bt_bench.results import VariantResult


def render_comparison(
    results: Sequence[VariantResult],
    planned_cases: int | None = None,
    selection: Selection = EVERYTHING,
) -> str:
    """Return the text of `comparison.md` for the results of a run.

    Args:
        results: results of the run's variants.
        planned_cases: number of cases of a complete sweep, to show how far it is.
        selection: the part to show.
    """
    return render_document(run_document(results, planned_cases, selection))


def render_run(
    results: Sequence[VariantResult],
    selection: Selection = EVERYTHING,
    *,
    planned_cases: int | None = None,
    whole: bool = False,
) -> str:
    """Return the output of `print_run` as text."""
    make = run_document if whole else brief_document
    return render_plain(make(results, planned_cases, selection))


def print_run(
    results: Sequence[VariantResult],
    selection: Selection = EVERYTHING,
    *,
    planned_cases: int | None = None,
    whole: bool = False,
    console: Console | None = None,
) -> None:
    """Print the report of a run: a screen per operation, or all that is in `comparison.md`.

    Args:
        results: results of the run's variants.
        selection: the part to show.
        planned_cases: number of cases of a complete sweep, to show how far it is.
        whole: print everything.
        console: the console to print to; stdout by default.
    """
    make = run_document if whole else brief_document
    print_document(make(results, planned_cases, selection), console)
