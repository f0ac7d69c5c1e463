"""What is said of the changes between two timelines."""

from __future__ import annotations

import json

import pytest
from support.factories import make_environment
from support.timelines import (
    FUSED,
    Launch,
    a_timeline,
    a_variant,
    failed,
    host_profile,
    shown,
    with_host,
)

from bt_bench.analysis.profile import other_speed
from bt_bench.base.errors import NotComparableError
from bt_bench.report.profile.timeline_changes import (
    timeline_changes_document,
    timeline_changes_json,
)

WIDTH = 80


def test_changes_of_all_variants_that_both_have():
    before = with_host(a_timeline({"mine": FUSED, "old": FUSED}), host_profile("pkg.step"))
    slow = (Launch(operation="fused_kernel", code_us=15.0),)
    after = with_host(a_timeline({"mine": slow, "new": FUSED}), host_profile("pkg.sleep", 30.0))
    document = timeline_changes_document(before, after, "reports/before")
    assert document.title == "Against reports/before: step/one, step 1 of 0 to 1"
    assert [section.title for section in document.sections] == [
        "A step of mine",
        "The host's calls in a step of mine",
    ]
    assert document.lead == ("new is not compared: the other one does not explain its step.",)
    text = shown(document)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "host code before fused_kernel" in text
    assert "+10.00" in text
    assert "pkg.sleep" in text
    changes = json.loads(json.dumps(timeline_changes_json(before, after, "x"), allow_nan=False))
    assert list(changes) == ["mine"]
    first = changes["mine"]["rows"][0]
    assert (first["kind"], first["what"], first["next_to"]) == ("longer", "code", "fused_kernel")
    assert changes["mine"]["step_us"] == pytest.approx([14.0, 24.0], abs=2.0)
    assert {change["name"] for change in changes["mine"]["host_calls"]} == {"pkg.step", "pkg.sleep"}


def test_changes_without_the_hosts_calls_of_both():
    before, after = a_timeline(), with_host(a_timeline(), host_profile())
    document = timeline_changes_document(before, after, "x")
    assert [section.title for section in document.sections] == [
        "A step of fused",
        "A step of separate",
    ]
    assert timeline_changes_json(before, after, "x")["fused"]["host_calls"] is None
    gone = a_timeline(variants=[a_variant("fused"), failed("separate")])
    document = timeline_changes_document(before, gone, "x")
    assert document.lead == ("separate is not compared: this profile does not explain its step.",)


@pytest.mark.parametrize(("factor", "said"), [(1.09, False), (1.12, True), (0.9, True)])
def test_a_machine_of_another_speed_is_told(factor, said):
    before = a_timeline()
    slower = [
        empty.model_copy(update={"host_us": [factor * us for us in empty.host_us]})
        for empty in before.empty
    ]
    after = a_timeline(empty=slower)
    (*lead,) = timeline_changes_document(before, after, "x").lead
    which = "slower" if factor > 1 else "faster"
    assert [text.startswith(f"The machine is {which} than it was:") for text in lead] == [
        True
    ] * said
    found = other_speed(before, after)
    # 8 queries of 0.5 µs, each behind 0.1 µs of code, and 1 µs behind the last.
    assert found == (pytest.approx((5.8, 5.8 * factor)) if said else None)


def test_the_speed_may_not_be_known():
    before = a_timeline()
    assert other_speed(before, a_timeline(empty=[])) is None
    # Of another version, which made other calls.
    more = [
        empty.model_copy(
            update={"host_us": [2 * us for us in empty.host_us], "records": empty.records + 1}
        )
        for empty in before.empty
    ]
    assert other_speed(before, a_timeline(empty=more)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"step": 0}, "the step is 1 in before and 0 in this profile"),
        ({"case": "other"}, "the workload is one .* and other "),
        ({"digest": "b" * 64}, r"the workload is one \(aaaaaaaaaaaa\) .* one \(bbbbbbbbbbbb\)"),
        ({"environment": make_environment("cpu")}, "the GPU is NVIDIA H200 in before"),
        (
            {"source": "torch.profiler 2.11"},
            "the profiler is .* in before and torch.profiler in this",
        ),
        ({"variants": [a_variant("another")]}, "have no variant in common"),
    ],
)
def test_another_step_is_not_compared(changes, expected):
    for compare in (timeline_changes_document, timeline_changes_json):
        with pytest.raises(NotComparableError, match=expected):
            compare(a_timeline(), a_timeline(**changes), "before")
