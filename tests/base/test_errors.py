"""Which valid name an unknown one is taken for."""

from __future__ import annotations

import pytest

from bt_bench.base.errors import listed, names_hint, nearest


@pytest.mark.parametrize(
    ("name", "valid", "meant"),
    [
        ("num_requests", ["dummy_requests", "requests", "num_rows"], "requests"),
        ("fused_aply", ["fused", "fused_apply", "one_launch"], "fused_apply"),
        ("gather_slot", ["gather", "gather_slots", "slots"], "gather_slots"),
        ("xyz", ["fused", "baseline"], None),
        ("fuse", [], None),
    ],
)
def test_the_nearest_name(name, valid, meant):
    assert nearest(name, valid) == meant


def test_what_is_like_none_is_answered_by_all():
    assert names_hint("xyz", ["fused", "baseline"]) == "expected one of fused, baseline"
    assert names_hint("fuse", ["fused", "baseline"]) == "did you mean 'fused'?"


def test_names_in_words():
    assert [listed(list(names)) for names in ("", "a", "ab", "abc")] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
