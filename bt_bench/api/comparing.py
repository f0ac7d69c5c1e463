"""The comparison of results, and its options."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bt_bench.analysis import (
    DEFAULT_FAIL_ON,
    Correction,
    Criteria,
    Given,
    Judged,
    Judgement,
    Overall,
    Rules,
    Selection,
    exit_code,
    judge,
    match_sides,
    not_compared,
    parse_given,
)
from bt_bench.base import joined, names_given, no_collection
from bt_bench.base.errors import ExitCode, UsageError, names_hint
from bt_bench.base.names import FailOn, parse_fail_on
from bt_bench.config import SweepSpec, load_config, planned_variants
from bt_bench.report import FORMATS, not_compared_lines, render_document, verdict_document

if TYPE_CHECKING:
    import pandas as pd

MOST_PERCENT = 1000.0
"""The largest threshold: more than ten times as slow is beyond any sensible one."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison. `str`, a prompt and a notebook show it as `bt-bench compare` prints it.

    Args:
        judged: the whole comparison, as reports are made from it.
        not_compared: a line for sides of which too little was compared for a result to pass.
        exit_code: the exit code of the command: `OK`, or why the comparison fails.
    """

    judged: Judged
    not_compared: tuple[str, ...]
    exit_code: ExitCode

    @property
    def passed(self) -> bool:
        """Tell whether nothing got worse, and enough was compared: the exit code is `OK`."""
        return self.exit_code is ExitCode.OK

    @property
    def base(self) -> str:
        """Label of the side that the others are compared with."""
        return self.judged.base

    @property
    def others(self) -> tuple[str, ...]:
        """Labels of the others."""
        return self.judged.others

    @property
    def verdicts(self) -> tuple[Judgement, ...]:
        """The verdict on every metric of every case; the exit code follows it if `decides`."""
        return self.judged.judgements

    @property
    def overall(self) -> tuple[Overall, ...]:
        """The geometric mean over the cases, per operation, metric and side."""
        return self.judged.overall

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust it, a clause each."""
        return self.judged.warnings

    def render(self, name: str) -> str:
        """Return the text of a report.

        Args:
            name: a format of `bt-bench compare --format`, such as `md`, `json` or `csv`.

        Raises:
            UsageError: for an unknown format.
        """
        if name not in FORMATS:
            raise UsageError(f"no format {name!r}; {names_hint(name, FORMATS)}")
        return FORMATS[name](self.judged)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row per verdict, in the columns of the format `csv`.

        Raises:
            UsageError: if pandas is not installed.
        """
        from bt_bench.report.frames import judged_frame

        return judged_frame(self.judged)

    def __str__(self) -> str:
        """Return the screen of `bt-bench compare`."""
        return "\n".join([self.render("table").rstrip("\n"), *self.not_compared])

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        """Return the same screen for a notebook."""
        document = verdict_document(self.judged)
        return render_document(replace(document, lead=(*self.not_compared, *document.lead)))


def compare(
    *results: str | os.PathLike[str],
    metric: str | Sequence[str] = (),
    all_metrics: bool = False,
    k: str | Sequence[str] | None = None,
    variants: str | Sequence[str] | None = None,
    operations: str | Sequence[str] | None = None,
    threshold: float | None = None,
    floor: Mapping[str, float] | None = None,
    alpha: float | None = None,
    correction: str = "holm",
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    ignore_device: bool = False,
    ignore_helpers: bool = False,
    ignore_plan: bool = False,
    fail_on: str | Sequence[str] | None = None,
    allow_missing: bool = False,
    allow_partial: bool = False,
) -> Comparison:
    """Compare results with the first one, case by case, as `bt-bench compare` does.

    It takes the command's options. Errors spell them as on the command line.

    Args:
        results: paths of run folders or result files, the base first, or runs that `load` or
            `sweep` returned; also `LABEL=PATH`. One run is compared with itself: its variants with
            its baseline.
        metric: names or patterns of the metrics to compare, such as `host_us+stage_us`.
        all_metrics: let exploratory metrics decide, too.
        k: patterns of the names of the cases that are shown and count.
        variants: names of the variants that are compared with the base.
        operations: names of the operations that are shown and count.
        threshold: changes up to this many percent count as none; by default 2, between runs 5.
        floor: by metric or pattern, the difference that counts as none, in the metric's unit.
        alpha: probability of any false `SLOWER` among the primary metrics; by default 0.01.
        correction: for many tests: `holm`, `bh` or `none`.
        config: take the margins and the `gate` section of this config.
        ignore_device: compare results of different devices or versions.
        ignore_helpers: compare results with different helpers in use.
        ignore_plan: compare results of different plans.
        fail_on: verdicts that fail it: `slower`, `faster`, `missing`, `invalid`, `inconclusive`; or
            `none`. By default `slower,missing,invalid`.
        allow_missing: do not fail on cases or metrics that only one side has.
        allow_partial: also compare results of runs that did not finish.

    Raises:
        UsageError: for a wrong option, and for a result that cannot be read.
        NotComparableError: for results that must not be compared.
    """
    if not results:
        raise UsageError("compare() got no result; expected runs, run folders or result files")
    spec = None if config is None else load_config(config)
    criteria = Criteria(
        rules_of(threshold, alpha, correction, spec),
        (metric,) if isinstance(metric, str) else tuple(metric),
        all_metrics,
        spec.margins if spec else {},
        ignore_device=ignore_device,
        ignore_helpers=ignore_helpers,
        ignore_plan=ignore_plan,
        allow_partial=allow_partial,
        floors=floors_of(floor or {}),
        selection=Selection(
            joined(k), names_given("--operations", operations), names_given("--variants", variants)
        ),
    )
    failing = fail_on_of(fail_on, spec, allow_missing=allow_missing)
    with no_collection(collect_first=False):
        judged, lacking = judge_given([_given(each) for each in results], criteria)
    code = exit_code(judged, failing, not_compared=lacking)
    return Comparison(judged, tuple(not_compared_lines(lacking)), code)


def judge_given(
    given: Sequence[Given], criteria: Criteria, stored: Given | None = None
) -> tuple[Judged, dict[str, list[Judgement]]]:
    """Read and compare results.

    Args:
        given: the results, the base first.
        criteria: how to compare them.
        stored: a stored baseline, which all are then compared with.

    Returns:
        The comparison; and the sides of which too little was compared, see
        `bt_bench.analysis.not_compared`.

    Raises:
        UsageError: for a wrong option, and for a result that cannot be read.
        NotComparableError: for results that must not be compared.
    """
    matched, left_out = criteria.selection.of_sides(match_sides(given, planned_variants, stored))
    judged = judge(matched.matchups, criteria, base=matched.base, others=matched.others)
    judged = replace(judged, scope=(*left_out, *judged.scope))
    return judged, not_compared(judged, matched.wholes)


def rules_of(
    threshold: float | None, alpha: float | None, correction: str, spec: SweepSpec | None
) -> Rules:
    """Return the rules set by options, else by the `gate` section of a config, else the defaults.

    Raises:
        UsageError: for a value out of range.
    """
    if correction not in list(Correction):
        hint = names_hint(correction, [each.value for each in Correction])
        raise UsageError(f"--correction {correction}: unknown; {hint}")
    rules = Rules(correction=Correction(correction))
    if spec and spec.gate.margin_percent is not None:
        usual = spec.gate.margin_percent / 100
        rules = replace(rules, margin=usual, advisory_margin=max(usual, rules.advisory_margin))
    if threshold is not None:
        if not 0 <= threshold <= MOST_PERCENT:
            raise UsageError(
                f"--threshold {threshold:g}: expected percent, from 0 to {MOST_PERCENT:g}"
            )
        rules = replace(rules, margin=threshold / 100, advisory_margin=threshold / 100)
    if alpha is None and spec:
        alpha = spec.gate.alpha
    return rules if alpha is None else replace(rules, alpha=alpha)


def floors_of(floors: Mapping[str, float]) -> dict[str, float]:
    """Return floors by pattern of metric names.

    Raises:
        UsageError: for an empty pattern, and for an amount below 0 or without end.
    """
    for pattern, amount in floors.items():
        if not pattern or not 0 <= amount < math.inf:
            raise UsageError(
                f"--floor {pattern}={amount:g}: expected METRIC=AMOUNT with an amount of 0 or "
                "more, such as registers=8"
            )
    return dict(floors)


def fail_on_of(
    given: str | Sequence[str] | None, spec: SweepSpec | None, *, allow_missing: bool = False
) -> Collection[FailOn]:
    """Return the verdicts that fail a comparison, by option, config or default.

    Raises:
        UsageError: for an unknown verdict.
    """
    usual = spec.gate.fail_on if spec and spec.gate.fail_on else DEFAULT_FAIL_ON
    failing = parse_fail_on(given, [FailOn(name) for name in usual])
    return [each for each in failing if not (allow_missing and each is FailOn.MISSING)]


def _given(result: str | os.PathLike[str]) -> Given:
    return parse_given(result) if isinstance(result, str) else Given(None, os.fspath(result))
