"""What is left out, and the orders."""

from __future__ import annotations

import pytest
from support import judgements
from support.judgements import judged, judgement

from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.report.formats.arrange import SortKey, only_changed, sorted_by, worst_first
from bt_bench.suites.block_tables import operations as ops


def metrics(comparison):
    return [each.metric for each in comparison.judgements]


def test_only_what_is_same_is_left_out_and_the_report_says_so():
    whole = judgements.rich()
    changed = only_changed(whole)
    assert {each.verdict for each in changed.judgements} == set(Verdict) - {Verdict.SAME}
    assert len(changed.judgements) == len(whole.judgements) - whole.count(Verdict.SAME)
    assert changed.scope == (*whole.scope, "Not listed: 5 of 23 judgements, which are SAME.")
    assert only_changed(changed) is changed


def test_by_verdict_the_worst_is_first():
    found = worst_first(judgements.rich())
    verdicts = [each.verdict for each in found.judgements]
    order = ["SLOWER", "MISSING", "INVALID", "INCONCLUSIVE", "FASTER", "SAME"]
    assert list(dict.fromkeys(verdicts)) == order
    # Of those that are slower: more than nothing, then the largest; of the faster, the smallest.
    assert metrics(found)[:4] == ["spills", "launches", "gpu_us", "host_us"]
    faster = [each.ratio for each in found.judgements if each.verdict is Verdict.FASTER]
    assert faster == [0.5, 0.932]


def test_by_change_the_largest_increase_is_first_and_no_ratio_last():
    ratios = [each.ratio for each in sorted_by(judgements.rich(), SortKey.CHANGE).judgements]
    known = [ratio for ratio in ratios if ratio is not None]
    assert known == sorted(known, reverse=True)
    assert ratios[len(known) :] == [None] * (len(ratios) - len(known))


def test_by_name():
    found = judged(
        judgement(metric="b"),
        judgement(metric="a"),
        judgement(case="another"),
        judgement(operation=ops.GATHER),
    )
    arranged = sorted_by(found, SortKey.NAME).judgements
    assert [(each.key.split("_")[0], each.metric) for each in arranged] == [
        ("gather/medium", "gpu_us"),
        ("step/another", "gpu_us"),
        ("step/medium", "a"),
        ("step/medium", "b"),
    ]


@pytest.mark.parametrize("key", SortKey)
def test_equals_stay_in_their_order_and_nothing_is_lost(key):
    equal = [judgement(detail=str(index)) for index in range(5)]
    assert sorted_by(judged(*equal), key).judgements == tuple(equal)
    whole = judgements.rich()
    arranged = sorted_by(whole, key)
    assert len(arranged.judgements) == len(whole.judgements)
    assert set(arranged.judgements) == set(whole.judgements)
    assert (arranged.facts, arranged.scope) == (whole.facts, whole.scope)


def test_a_missing_case_without_a_ratio_is_not_taken_for_the_worst_change():
    found = judged(
        judgement(verdict=Verdict.MISSING, cause=Cause.NO_CASE),
        judgement(metric="host_us", ratio=0.9, verdict=Verdict.FASTER, cause=Cause.BEYOND_MARGIN),
    )
    assert metrics(sorted_by(found, SortKey.CHANGE)) == ["host_us", "gpu_us"]


def test_of_what_is_inconclusive_the_largest_increase_is_first():
    doubtful = {"verdict": Verdict.INCONCLUSIVE, "cause": Cause.WIDE_INTERVAL}
    ratios = (0.7, 1.01, 1.4, None)
    found = worst_first(judged(*(judgement(ratio=ratio, **doubtful) for ratio in ratios)))
    assert [each.ratio for each in found.judgements] == [1.4, 1.01, 0.7, None]
