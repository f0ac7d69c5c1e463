"""Ranges of values in axes and in `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.forked import forked_suites

from bt_bench.config.dump import dump_config
from bt_bench.config.problems import Place, Problems
from bt_bench.config.ranges import advice_on, with_ranges
from bt_bench.config.yaml import Located

CASE = "cases: [{{name: a, requests: 1, tokens: 2048, product: {{groups: {}}}}}]"


def values_of(text):
    """The numbers of a range, or the message that refuses it."""
    problems = Problems()
    found = with_ranges("groups", [Located(text, Place("my.yaml", 1, 1))], problems)
    return [value.value for value in found] or problems.found[0][1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1..8", list(range(1, 9))),
        (" 1 .. 8 ", list(range(1, 9))),
        ("4..4", [4]),
        ("-1..2", [-1, 0, 1, 2]),
        ("8..64 by 8", [8, 16, 24, 32, 40, 48, 56, 64]),
        ("8..60  by  16", [8, 24, 40, 56]),
        ("1..1024 by *2", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        ("3..100 by * 3", [3, 9, 27, 81]),
        ("1..100000", list(range(1, 100_001))),
        # No ranges.
        *((text, [text]) for text in ("gpt-oss", "../1..csv", "../a", "1..csv", "", "..", "x..y")),
        (7, [7]),
        (None, [None]),
        ("1.." + "." * 10**6, ["1.." + "." * 10**6]),
    ],
)
def test_a_range_is_its_numbers(text, expected):
    assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (text, "expected whole numbers, as in 1..8, 8..64 by 8 or 1..1024 by *2")
            for text in (
                *("1..", "..8", "1...8", "1…8", "0.5..2", "1..8 by", "1..8 by two", "1..8 step 2"),
                *("1..8 *2", "1..8*2", "1..8:2", "1..8, 16", "1..8 by 1.5", "1..8 by 2 by 2"),
                f"1..{'9' * 19}",
            )
        ),
        ("8..1", "it is empty; expected the smaller number first, as in 1..8"),
        ("8..1 by -1", "it is empty; expected the smaller number first, as in 1..8"),
        *(
            (f"1..8 by {by}", "its numbers do not rise; expected to add 1 or more")
            for by in ("0", "-1")
        ),
        *(
            (
                text,
                "its numbers do not rise; expected a first number of 1 or more, times 2 or more",
            )
            for text in ("1..8 by *1", "1..8 by *0", "1..8 by *-2", "0..8 by *2", "-1..8 by *2")
        ),
        (
            "1..999999999999",
            "it has 999,999,999,999 values; expected at most 100,000; take larger steps",
        ),
    ],
)
def test_a_wrong_range_says_what_is_expected(text, expected):
    assert values_of(text) == f"axis 'groups' has the range {text!r}; {expected}"


@pytest.mark.parametrize(
    ("written", "expected"),
    [("1..3", [1, 2, 3]), ("[1..3]", [1, 2, 3]), ("[1, 3..9 by *3, 12]", [1, 3, 9, 12])],
)
def test_ranges_in_a_config_and_in_an_option_are_printed_back_as_cases(load, written, expected):
    in_config = load(CASE.format(written))
    assert [case.parameters.groups for case in in_config.cases] == expected
    assert [case.name for case in in_config.cases] == [f"a-groups={n}" for n in expected]
    by_option = load(CASE.format("[1]"), overrides=[f"groups={written.strip('[]')}"])
    assert by_option.cases == in_config.cases
    assert load(dump_config(in_config)).cases == in_config.cases


def test_a_range_advances_beside_another_one(load):
    spec = load("cases: [{name: a, zip: {requests: 1..4, tokens: 8..64 by *2}}]")
    assert [(c.parameters.requests, c.parameters.tokens) for c in spec.cases] == [
        *((1, 8), (2, 16), (3, 32), (4, 64))
    ]


@pytest.mark.parametrize("text", ["1..8", "1-8", "1:8", "1 to 8", "1–8", "1 ... 8", "8-64 by 8"])
def test_a_range_out_of_place_is_told_where_it_belongs(error_of, text):
    assert error_of(f"cases: [{{name: a, requests: '{text}', tokens: 2}}]") == (
        f"my.yaml:1:29: requests is '{text}'; expected a whole number from 1 to 16384; in an axis "
        "('product', 'zip' or --set) a range is written as 1..8, 8..64 by 8 or 1..1024 by *2"
    )
    assert advice_on("many") == advice_on("2026-11-28T10:00") == advice_on("1-" * 10**6) == ""


def test_wrong_ranges_are_reported_at_their_places(error_of):
    refused = "has the range '8..1'; it is empty; expected the smaller number first, as in 1..8"
    assert error_of(CASE.format("[2, 8..1]")) == f"my.yaml:1:68: axis 'groups' {refused}"
    assert error_of(CASE.format("[1]"), overrides=["groups=8..1"]) == (
        f"--set groups=8..1: axis 'groups' {refused}"
    )
    assert error_of(CASE.format("[1]"), overrides=["plan.rounds=1..3"]) == (
        "--set plan.rounds=1..3: plan.rounds has 3 values; a sweep has one plan, give one"
    )
    assert "expected equally many" in error_of(
        "cases: [{name: a, zip: {requests: 1..3, tokens: 8..64 by *2}}]"
    )


def test_ranges_expand_in_the_process_of_a_suite(load):
    suite = Path(__file__).parents[2] / "examples/suites/page_indices"
    with forked_suites():
        spec = load(f"suite: {suite}\ncases: [{{name: a, product: {{requests: 1..64 by *4}}}}]")
    assert [case.name for case in spec.cases] == [f"a-requests={n}" for n in (1, 4, 16, 64)]
