"""Configs that go too far are refused with a place, and soon."""

from __future__ import annotations

import time

import pytest

from bt_bench.config.problems import Place, Problems
from bt_bench.config.sections import _names
from bt_bench.config.yaml import Located, YamlEntry

CASE = "cases: [{name: a, requests: 1, tokens: 1}]\n"
DEEP = "values are nested too deeply; expected at most 100 levels"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cases: " + "[" * 400 + "]" * 400, "1:107"),
        ("cases: " + "[" * 50_000, "1:107"),
        ("cases: " + "{a: " * 400 + "}" * 400, "1:401"),
        ("".join(" " * depth + "a:\n" for depth in range(400)), "100:100"),
        (
            "x0: &a0 [1]\n" + "".join(f"x{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 400)) + CASE,
            "1:10",
        ),
        (
            "x0: &a0 {k: 1}\n"
            + "".join(f"x{i}: &a{i} {{<<: *a{i - 1}}}\n" for i in range(1, 400))
            + CASE,
            "1:",
        ),
    ],
    ids=["lists", "open lists", "mappings", "blocks", "aliases", "merges"],
)
def test_nesting(error_of, text, place):
    started = time.monotonic()
    message = error_of(text)
    assert message.startswith(f"my.yaml:{place}")
    assert DEEP in message
    assert time.monotonic() - started < 5


def test_a_hundred_levels_are_no_recursion_error(error_of):
    assert "unknown key 'x'" in error_of(f"x: {'[' * 98}{']' * 98}\n{CASE}")


@pytest.mark.parametrize(
    "text",
    [
        "cases:\n- name: 'a{{seed}}'\n  requests: 1\n  tokens: 1\n  seed: {}\n",
        "cases:\n- name: a\n  tokens: 2\n  zip:\n    requests: [1, 2]\n    seed: [1, {}]\n",
    ],
)
@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "-0x" + "f" * 5000, "0o" + "7" * 5000])
def test_numbers_of_thousands_of_digits(error_of, text, number):
    message = error_of(text.format(number))
    assert message.partition(":")[2].startswith(("5:", "6:"))
    assert "a number has more than 1,000 digits" in message or "is not a valid int" in message


def seconds(call):
    started = time.process_time()
    call()
    return time.process_time() - started


def grows(of_length, few, many):
    """How much longer many take than few."""
    short, long = (min(seconds(lambda: of_length(n)) for _ in range(2)) for n in (few, many))  # noqa: B023
    return long / short


def test_rows_of_a_zip_take_time_in_proportion(load):
    def read(count):
        rows = f"seed: {list(range(count))}, max_num_reqs: {list(range(1, count + 1))}"
        load(f"cases: [{{name: a, requests: 1, tokens: 1, zip: {{{rows}}}}}]\n")

    assert grows(read, 500, 3_000) < 16


def test_names_take_time_in_proportion():
    def read(count):
        place = Place("my.yaml", 1, 1)
        names = [Located(f"v{number}", place) for number in range(count)]
        entry = YamlEntry(Located(names, place), place)
        assert len(_names({"variants": entry}, "variants", (), Problems())) == count

    assert grows(read, 2_000, 20_000) < 40
