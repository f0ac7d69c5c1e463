"""The numbers behind verdicts, checked by computing them anew."""

from __future__ import annotations

import math
import re

import pytest
from scipy import stats
from support import judgements
from support.judgements import judged, judgement

from bt_bench.analysis.verdicts import Verdict
from bt_bench.base.errors import UsageError
from bt_bench.report.console import PLAIN_WIDTH, render_plain
from bt_bench.report.formats.explanation import explain, explanation_document

CASE = "step/medium_batch_4grp"


def joined(each):
    return " ".join(" ".join(explain(each)).split())


def number(pattern, text):
    (found,) = re.findall(pattern, text)
    return float(found)


@pytest.mark.parametrize("each", judgements.timed(), ids=lambda each: f"{each.case}-{each.metric}")
def test_everything_can_be_checked_by_hand(each):
    text = joined(each)
    estimate = number(r"logarithm of the ratio is (\S+),", text)
    error = number(r"standard error of (\S+),", text)
    degrees = number(r"distribution with (\d+) degrees", text)
    margin = number(r"margin: (\S+) %", text) / 100
    off_below, off_above = map(
        float, re.findall(r"systematic: (\S+) below and (\S+) above", text)[0]
    )
    upper, lower = (number(rf"ln\(1 \{sign} margin\) = (\S+);", text) for sign in "+-")
    assert (upper, lower) == pytest.approx((math.log1p(margin), math.log1p(-margin)), rel=2e-3)
    t = number(r"slower by more than the margin: t = .*? = (\S+) for", text)
    assert t == pytest.approx((estimate - off_below - upper) / error, rel=1e-3)
    p_slower = number(r"slower by more than the margin: .*?; p = (\S+),", text)
    assert p_slower == pytest.approx(stats.t.sf(t, degrees), rel=1e-2)
    t = number(r"faster by more than the margin: t = .*? = (\S+) for", text)
    assert t == pytest.approx((lower - estimate - off_above) / error, rel=1e-3)
    p_faster = number(r"faster by more than the margin: .*?; p = (\S+),", text)
    assert p_faster == pytest.approx(stats.t.sf(t, degrees), rel=1e-2)
    low, high = map(float, re.findall(r"interval: (\S+) to (\S+) of", text)[0])
    below = number(r"exp\(estimate - (\S+) and", text)
    above = number(r"and \+ (\S+) standard errors,", text)
    ends = (
        math.exp(estimate - below * error - off_below),
        math.exp(estimate + above * error + off_above),
    )
    assert (low, high) == pytest.approx(ends, rel=1e-4)
    confidence = number(r"the systematic part\), (\S+) %: SLOWER or FASTER if", text)
    tails = stats.t.sf(below, degrees) + stats.t.sf(above, degrees)
    assert confidence == pytest.approx(100 * (1 - tails), abs=0.01)


def test_what_the_margin_is_and_the_family():
    _, noisy, *_, floor, apart = map(joined, judgements.timed())
    assert "margin: 2 %, as configured (configured 2 %, floor 1.62 %)" in noisy
    assert "as 3 times the noise of unchanged code is 3.1 %, which counts beyond the" in noisy
    assert "margin: 6.25 %, the floor of the metric" in floor
    assert "systematic: 0 below and 0 above" in floor
    assert "alpha: 0.01 at this look, for a family of 7 tests" in noisy
    assert "verdict: SLOWER, beyond_margin: by more than the margin of 2 %" in noisy
    assert "systematic: 0.08 below and 0.01 above" in apart
    assert (
        "between the runs the host or the GPU may have made it slower by 0.08 or faster by 0.01"
        in apart
    )
    assert "detection limit: a slowdown of " in apart


def test_what_does_not_decide_says_so() -> None:
    said = "it does not decide: by default the exit code follows primary metrics"
    assert said in joined(judgement(exploratory=True, decides=False))
    assert said not in joined(judgement(exploratory=True))


def test_verdicts_agree_with_what_the_tests_say():
    for each in judgements.timed():
        text = joined(each)
        certain = [
            verdict
            for verdict, start in ((Verdict.SLOWER, "slower by"), (Verdict.FASTER, "faster by"))
            if re.search(rf"{start} more than the margin: [^:]*?, not above alpha", text)
        ]
        if each.verdict in (Verdict.SLOWER, Verdict.FASTER):
            assert certain == [each.verdict]
        else:
            assert certain == []


def test_no_error_has_no_t():
    (each, *_) = judgements.timed()
    assert each.evidence is not None
    exact = judgement(evidence=each.evidence.__class__(**(vars(each.evidence) | {"error": 0.0})))
    assert joined(exact).count("no t, as the standard error is 0") == 2


def test_no_error_has_an_interval_without_a_width():
    (each, *_) = judgements.timed()
    evidence = each.evidence.__class__(**(vars(each.evidence) | {"error": 0.0}))
    text = joined(judgement(ratio=1.3, low=1.3, high=1.3, evidence=evidence))
    assert "interval: 1.3 to 1.3 of the ratio: SLOWER or FASTER if" in text


def test_what_is_exploratory_says_so():
    said = "exploratory: not a primary metric of its operation, so its tests are counted apart"
    assert said in joined(judgement(exploratory=True))
    assert "exploratory" not in joined(judgement())


def test_without_statistics():
    texts = {each.cause: joined(each) for each in judgements.untimed()}
    assert "compared exactly" in texts["exact"]
    assert "no test was made" in texts["no_case"]
    assert "values: none of fused@main, none of fused@HEAD" in texts["no_case"]
    assert "advisory: the sides are of different runs" in texts["too_few"]


def test_a_case_is_named_with_or_without_its_operation():
    whole = judgements.rich()
    text = render_plain(explanation_document(whole, CASE))
    assert text.count("verdict: ") == 7
    without = render_plain(explanation_document(whole, "medium_batch_4grp"))
    assert without.count("verdict: ") == 8
    assert all(len(line) <= PLAIN_WIDTH for line in text.splitlines())


def test_an_unknown_case_is_an_error_that_names_a_near_one():
    with pytest.raises(UsageError, match=r"--explain step/medium: .*'step/medium_batch_4grp'"):
        explanation_document(judgements.rich(), "step/medium")
    with pytest.raises(UsageError, match="nothing was compared"):
        explanation_document(judged(), "step/medium")
