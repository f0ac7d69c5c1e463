"""What is told of helpers: which were in use, what fell back, and what differs."""

from __future__ import annotations

from support.factories import make_helpers

from bt_bench.results import (
    HELPER_TRAITS,
    Helpers,
    fallback_texts,
    helper_differences,
    helpers_text,
)


def test_every_helper_has_texts_in_their_order() -> None:
    assert list(HELPER_TRAITS) == list(Helpers.model_fields)


def test_what_was_in_use() -> None:
    assert (
        helpers_text(make_helpers())
        == "Helpers in use: staging in C, direct launches, pinned memory, CUPTI, NVML, NVTX."
    )
    some = make_helpers(staging_in_c="why", nvml=False, direct_launches=None, pinned_memory=None)
    assert helpers_text(some) == "Helpers in use: CUPTI, NVTX; not in use: staging in C, NVML."
    none = Helpers.model_validate(dict.fromkeys(Helpers.model_fields))
    assert helpers_text(none) == "Helpers in use: none."


def test_what_falls_back_for_one_reason_is_told_once() -> None:
    assert not list(fallback_texts(make_helpers()))
    assert not list(fallback_texts(None))
    why = "no C compiler was found; install gcc or clang, or set CC"
    assert list(
        fallback_texts(make_helpers(staging_in_c=why, direct_launches=why, nvtx=False))
    ) == [
        f"staging in C and direct launches are not in use ({why}), so staging takes several times "
        "longer; variants launch through Triton, which takes longer on the host",
        # A reason that is not known is not made up.
        "NVTX is not in use, so profilers such as Nsight Systems see no ranges of bt-bench",
    ]


def test_only_what_is_known_on_both_sides_differs() -> None:
    usual, without = make_helpers(), make_helpers(nvml="no driver")
    assert list(helper_differences(without, usual)) == [
        "NVML not in use (no driver) against in use"
    ]
    assert not list(helper_differences(without, make_helpers(nvml="another reason")))
    assert not list(helper_differences(None, without))
    assert not list(helper_differences(without, make_helpers(nvml=None)))
