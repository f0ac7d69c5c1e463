"""Comparisons with every verdict and every cause, for the tests of formats."""

from __future__ import annotations

import math
from dataclasses import replace

from bt_bench.analysis.deciding import Contest, Correction, decide
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import (
    Cause,
    Judged,
    Judgement,
    Margin,
    Overall,
    Systematic,
    Verdict,
)
from bt_bench.suites.block_tables import operations as ops

BASE = "fused@main"
HEAD = "fused@HEAD"
OTHER_BASE = "fused_gather_slots@main"
OTHER_HEAD = "fused_gather_slots@HEAD"
LONGEST_CASE = "medium_batch_4grp"
LONGEST_METRIC = "pipelined_us/compiled"

DETAILS = {
    Cause.BEYOND_MARGIN: "by more than the margin of",
    Cause.WITHIN_MARGIN: "by less than the margin of",
    Cause.WIDE_INTERVAL: "the interval reaches beyond the margin of",
}

HOSTILE = "<b>|x|*_`\"&'</td>]]>\n::error::pwned\r\n##[error]pwned\t=1+1 \x1b[31m\x00\u2028\ud800"
"""What a name must not do: end a cell, begin a tag, a formula, a command, a line, a colour."""


def judgement(**fields: object) -> Judgement:
    """A judgement on a device time, the same on both sides."""
    defaults: dict[str, object] = {
        "operation": ops.STEP,
        "case": LONGEST_CASE,
        "metric": "gpu_us",
        "unit": "us",
        "base": BASE,
        "other": HEAD,
        "base_value": None,
        "other_value": None,
        "ratio": None,
        "low": None,
        "high": None,
        "verdict": Verdict.SAME,
        "cause": Cause.WITHIN_MARGIN,
        "detail": "",
    }
    return Judgement(**(defaults | fields))  # type: ignore[arg-type]


def judged(*judgements: Judgement, **fields: object) -> Judged:
    """A comparison with these judgements."""
    defaults: dict[str, object] = {"title": "Comparison", "base": BASE, "others": (HEAD,)}
    return Judged(judgements=judgements, **({"overall": ()} | defaults | fields))  # type: ignore[arg-type]


def timed() -> tuple[Judgement, ...]:
    """Verdicts that statistics lead to, one a contest, as `decide` gives them."""
    plain = Margin(configured=0.02, floor=0.0), Systematic()
    noisy = Margin(configured=0.02, floor=0.0162), Systematic(copies=0.031)
    floor = Margin(configured=0.02, floor=0.0625), Systematic(copies=0.006)
    apart = Margin(configured=0.05, floor=0.001), Systematic(copies=0.031, slowed=0.08, sped=0.01)
    contests = {
        ("small_batch_1grp", "gpu_us"): (3.2, 1.3, 0.004, plain),
        (LONGEST_CASE, "host_us"): (80.0, 1.046, 0.003, noisy),
        (LONGEST_CASE, LONGEST_METRIC): (12.34, 0.932, 0.004, plain),
        ("small_batch_1grp", "host_us"): (77.25, 1.004, 0.002, plain),
        ("large_batch_1grp", "host_us"): (1234.5, 1.025, 0.012, noisy),
        ("large_batch_1grp", "gpu_us"): (3.2, 1.01, 0.004, floor),
        ("medium_batch_1grp", "host_us"): (55.5, 1.09, 0.01, apart),
    }
    decisions = decide(
        [
            Contest(Estimate(math.log(ratio), error, 19, 20), *parts)
            for _, ratio, error, parts in contests.values()
        ],
        Correction.HOLM,
        alpha=0.01,
    )
    found = []
    for ((case, metric), (base_us, ratio, _, (margin, _))), decision in zip(
        contests.items(), decisions, strict=True
    ):
        assert decision.evidence is not None
        found.append(
            judgement(
                case=case,
                metric=metric,
                base_value=base_us,
                other_value=base_us * ratio,
                ratio=ratio,
                low=math.exp(decision.evidence.log_low),
                high=math.exp(decision.evidence.log_high),
                verdict=decision.verdict,
                cause=decision.cause,
                detail=f"{DETAILS[decision.cause]} {100 * margin.share:.3g} %",
                evidence=decision.evidence,
            )
        )
    return tuple(found)


def untimed() -> tuple[Judgement, ...]:
    """Verdicts without statistics, with all of their causes."""
    invalid, missing = Verdict.INVALID, Verdict.MISSING
    exact = {"base": OTHER_BASE, "other": OTHER_HEAD, "cause": Cause.EXACT}
    launches = {"metric": "launches", "unit": "launches"} | exact
    return (
        judgement(cause=Cause.EQUAL_CODE, detail="host code and binaries are equal"),
        judgement(
            case="small_batch_2grp",
            cause=Cause.EQUAL_CODE,
            detail="the binaries are equal, the host code is not",
            base_value=3.2,
            other_value=3.21,
        ),
        judgement(**launches, base_value=2.0, other_value=2.0, ratio=1.0, detail="equal"),
        judgement(
            **(launches | {"operation": ops.GATHER_SLOTS}),
            base_value=2.0,
            other_value=3.0,
            ratio=1.5,
            verdict=Verdict.SLOWER,
            detail="3 launches in place of 2",
        ),
        judgement(
            **exact,
            metric="spills",
            unit="bytes",
            base_value=0.0,
            other_value=16.0,
            verdict=Verdict.SLOWER,
            detail="16 bytes in place of 0",
        ),
        judgement(
            **exact,
            metric="compiled_variants",
            unit="binaries",
            base_value=4.0,
            other_value=2.0,
            ratio=0.5,
            verdict=Verdict.FASTER,
            detail="2 binaries in place of 4",
        ),
        judgement(
            metric="step_us",
            base_value=90.1,
            other_value=91.0,
            ratio=1.00999,
            verdict=Verdict.INCONCLUSIVE,
            cause=Cause.TOO_FEW,
            detail="2 rounds; an interval takes 3",
            advisory=True,
        ),
        *(
            judgement(operation=ops.STAGE, case=cause, verdict=verdict, cause=cause, detail=detail)
            for verdict, cause, detail in (
                (missing, Cause.NO_CASE, "fused@HEAD has no such case"),
                (missing, Cause.NO_METRIC, "fused@main did not measure it"),
                (invalid, Cause.FAILED, "fused@HEAD failed: slot 3 is 17; the reference has 16"),
                (invalid, Cause.INSUFFICIENT, "40 of 48 rounds were discarded: throttled"),
                (invalid, Cause.METHODS_DISAGREE, "profiler and events differ by 2.1 µs"),
                (invalid, Cause.NOT_POSITIVE, "a sample of fused@main is 0"),
                (invalid, Cause.NO_VARIANCE, "64 samples of a clock without tick are all 3.2"),
                (invalid, Cause.UNIT_DIFFERS, "us against ms"),
                (invalid, Cause.IMPOSSIBLE, "their ratio cannot be computed"),
            )
        ),
    )


def rich() -> Judged:
    """A gate's outcome with two variants, every verdict and every cause."""
    return judged(
        *timed(),
        *untimed(),
        title="Gate of main against the working tree",
        others=(HEAD, OTHER_HEAD),
        overall=(
            Overall(ops.STEP, "gpu_us", BASE, HEAD, 2, 1.146, 0.981, 1.339),
            Overall(ops.STEP, "host_us", BASE, HEAD, 3, 1.025, 1.004, 1.046),
            Overall(ops.STEP, LONGEST_METRIC, BASE, HEAD, 1, 0.932, None, None),
        ),
        facts=(
            "20 rounds of fresh processes, with an unchanged control in each; 2 looks.",
            "alpha is 0.01 over 6 tests, by Holm.",
        ),
        warnings=("the working tree has changes that are not committed",),
    )


def one_side() -> Judged:
    """A comparison of two files, whose labels head the columns."""
    sides = {"base": "baseline", "other": "fused"}
    return judged(
        *(replace(each, **sides) for each in timed()[:3]),
        title="Comparison with baseline",
        base="baseline",
        others=("fused",),
    )


def hostile() -> Judged:
    """Hostile texts wherever a text can come from a config, a file or an exception."""
    sides = {"base": HOSTILE, "other": f"={HOSTILE}", "case": HOSTILE, "detail": HOSTILE}
    changed = [replace(each, **sides) for each in (*timed(), *untimed())]
    return judged(
        *(replace(each, metric=HOSTILE, unit=HOSTILE) for each in changed[:1]),
        *changed[1:],
        title=HOSTILE,
        base=HOSTILE,
        others=(f"={HOSTILE}",),
        overall=(Overall(ops.STEP, HOSTILE, HOSTILE, f"={HOSTILE}", 2, 1.1, 1.0, 1.2),),
        facts=(f"{'x' * 70} {HOSTILE}",),
        warnings=(f"{'x' * 60} {HOSTILE}",),
    )
