"""The numbers behind verdicts, for checking them by hand."""

from __future__ import annotations

from collections.abc import Iterator

from bt_bench.analysis import BINDING, SPREAD_FACTOR, Cause, Evidence, Judged, Judgement
from bt_bench.base import Bullets, Document, Section, format_number, format_share, unit_text
from bt_bench.base.errors import UsageError, names_hint
from bt_bench.report.formats.judged_document import missed_lines
from bt_bench.report.formats.texts import (
    change_text,
    limit_text,
    side_text,
    value_text,
    verdict_text,
)


def explanation_document(judged: Judged, key: str) -> Document:
    """Build a report of all numbers behind the verdicts of a case, with the warnings.

    Args:
        judged: the comparison.
        key: operation and case, as in `step/large_4grp`, or a case, for all its operations.

    Raises:
        UsageError: if there is no such case.
    """
    found = [each for each in judged.judgements if key in (each.key, each.case)]
    if not found:
        keys = list(dict.fromkeys(each.key for each in judged.judgements))
        hint = names_hint(key, keys) if keys else "nothing was compared"
        raise UsageError(f"--explain {key}: no such case in this comparison; {hint}")
    warnings = (*missed_lines(judged), *(f"Warning: {each}." for each in judged.warnings))
    lead = (Bullets(warnings),) if warnings else ()
    sections = (Section(title, (Bullets(tuple(texts)),)) for title, *texts in map(explain, found))
    return Document(judged.title, lead, tuple(sections))


def explain(judgement: Judgement) -> list[str]:
    """Return the title of a judgement, then texts on all that led to it."""
    sides = side_text(judgement.base, judgement.other)
    return [f"{judgement.key} · {judgement.metric} · {sides}", *_texts(judgement)]


def _texts(judgement: Judgement) -> Iterator[str]:
    yield f"verdict: {verdict_text(judgement)}, {judgement.cause.value}: {judgement.detail}"
    sides = ((judgement.base, judgement.base_value), (judgement.other, judgement.other_value))
    yield "values: " + ", ".join(
        f"{_value(value, judgement.unit)} of {label}" for label, value in sides
    )
    if judgement.ratio is not None:
        yield f"ratio: {judgement.ratio:.6g}, a change of {change_text(judgement.ratio)} %"
    if judgement.exploratory:
        yield "exploratory: not a primary metric of its operation, so its tests are counted apart"
    if not judgement.decides:
        yield "it does not decide: by default the exit code follows primary metrics"
    if judgement.advisory:
        yield "advisory: the sides are of different runs, so changes between these count too"
    if judgement.evidence is None:
        yield _without_evidence(judgement)
    else:
        yield from _evidence_texts(judgement, judgement.evidence)


def _value(value: float | None, unit: str) -> str:
    return "none" if value is None else f"{value_text(value, unit)} {unit_text(unit)}"


def _without_evidence(judgement: Judgement) -> str:
    if judgement.cause is Cause.EXACT:
        return "compared exactly: more is worse, no test applies, and only a floor is tolerated"
    return "no test was made"


def _evidence_texts(judgement: Judgement, evidence: Evidence) -> Iterator[str]:
    margin = evidence.margin
    below, above = evidence.systematic.reach(margin)
    low_end, high_end = margin.logs
    yield (
        f"estimate: the logarithm of the ratio is {evidence.estimate:.6g}, with a standard error "
        f"of {evidence.error:.6g}, from {evidence.observations} observations; t distribution with "
        f"{evidence.degrees} degrees of freedom"
    )
    yield _systematic_text(evidence)
    yield from _interval_texts(judgement, evidence)
    yield (
        f"margin: {format_share(margin.share)}, {BINDING[margin.binds]} (configured "
        f"{format_share(margin.configured)}, floor {format_share(margin.floor)})"
    )
    yield (
        "slower by more than the margin: "
        f"{_t_text(evidence.estimate - below - high_end, evidence.error)} for ln(1 + margin) = "
        f"{high_end:.6g}; p = {_p(evidence.p_slower)}, adjusted {_p(evidence.adjusted_slower)}, "
        f"{_compared(evidence.adjusted_slower, evidence.alpha)}"
    )
    yield (
        "faster by more than the margin: "
        f"{_t_text(low_end - evidence.estimate - above, evidence.error)} for ln(1 - margin) = "
        f"{low_end:.6g}; p = {_p(evidence.p_faster)}, adjusted {_p(evidence.adjusted_faster)}, "
        f"{_compared(evidence.adjusted_faster, evidence.alpha)}"
    )
    yield (
        f"alpha: {evidence.alpha:.6g} at this look, for a family of {evidence.tests} "
        f"{'test' if evidence.tests == 1 else 'tests'}"
    )
    yield (
        f"detection limit: a slowdown of {limit_text(evidence.detectable)} % is found with 99 %, "
        "also where the smallest p is tested"
    )


def _systematic_text(evidence: Evidence) -> str:
    """Return a text on the systematic part of the interval, beside the standard error."""
    systematic = evidence.systematic
    below, above = systematic.reach(evidence.margin)
    parts = "there is no control"
    if systematic.copies is not None:
        parts = (
            f"{SPREAD_FACTOR:g} times the noise of unchanged code is "
            f"{format_share(systematic.copies)}, which counts beyond the margin"
        )
    if systematic.slowed or systematic.sped:
        parts += (
            ", and between the runs the host or the GPU may have made it slower by "
            f"{systematic.slowed:.6g} or faster by {systematic.sped:.6g}, as its reference shows"
        )
    return f"systematic: {below:.6g} below and {above:.6g} above, as {parts}"


def _interval_texts(judgement: Judgement, evidence: Evidence) -> Iterator[str]:
    low, high = judgement.low, judgement.high
    if low is None or high is None:
        return
    text = f"interval: {low:.6g} to {high:.6g} of the ratio"
    if evidence.error > 0:
        below, above = evidence.systematic.reach(evidence.margin)
        down = (evidence.estimate - below - evidence.log_low) / evidence.error
        up = (evidence.log_high - above - evidence.estimate) / evidence.error
        text += (
            f", exp(estimate - {down:.4g} and + {up:.4g} standard errors, and the systematic "
            f"part), {100 * evidence.confidence:.6g} %"
        )
    yield f"{text}: SLOWER or FASTER if all of it is beyond the margin, SAME if all is within"


def _t_text(difference: float, error: float) -> str:
    if error == 0:
        return "no t, as the standard error is 0"
    return f"t = {difference:.6g} / {error:.6g} = {difference / error:.4g}"


def _compared(probability: float, alpha: float) -> str:
    return f"{'not above' if probability <= alpha else 'above'} alpha"


def _p(probability: float) -> str:
    return format_number(probability, 3)
