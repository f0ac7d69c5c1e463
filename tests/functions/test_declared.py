"""Declarations of functions: what is wrong with one is said where it is made."""

from __future__ import annotations

import pytest

import bt_bench
from bt_bench.errors import UsageError
from bt_bench.functions.declared import Benchmark, Implementation


@pytest.fixture
def add() -> Benchmark:
    @bt_bench.benchmark(inputs={"n": [4, 8], "fast": [True, False]})
    def add(n, fast):
        return {}

    return add


@pytest.fixture(autouse=True)
def _nothing_declared():
    yield
    globals().pop("__bt_bench_benchmarks__", None)


def test_cases_are_all_combinations(add):
    assert [tuple(case.values()) for case in add.cases] == [
        (4, True),
        (4, False),
        (8, True),
        (8, False),
    ]


def test_functions_stay_what_they_are(add):
    def plain(x):
        return x

    assert add.reference(plain) is plain
    assert add.variant(name="other", graph=True)(plain) is plain
    assert add.implementations["other"].graph
    assert add.right is add.implementations["baseline"]


def test_a_reference_that_is_not_timed_is_no_variant(add):
    add.reference(timed=False)(lambda x: x)
    add.variant(name="baseline")(lambda x: x)
    assert list(add.implementations) == ["baseline"]
    assert add.right is not add.implementations["baseline"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"n": 4}, "inputs has 4 for 'n'; expected lists"),
        ({"n": "4"}, "inputs has '4' for 'n'; expected lists"),
        ({"n": []}, "expected lists"),
        ({"n": [4, 4]}, "the same case twice"),
        ({"n": [4, "x"]}, "of one type"),
        ({"n": [None]}, "expected numbers, texts or bools"),
        ([{"n": 1}, {"m": 2}], "in every case"),
        ([], "expected lists"),
        ({"seed": [1]}, "the name 'seed'; expected a Python name other than"),
        ({"n": [1.0, float("nan")]}, "input 'n' is nan; expected a finite number"),
        ({"n": ["a", "b\x1b"]}, r"input 'n' is 'b\\x1b'; expected printable text"),
        ({"m": [1]}, "make takes n, and inputs has m; expected the same names"),
    ],
)
def test_inputs_that_are_refused(inputs, message):
    def make(n):
        return {}

    with pytest.raises(UsageError, match=message) as raised:
        bt_bench.benchmark(inputs=inputs)(make)
    assert f"{__file__}:{make.__code__.co_firstlineno}" in str(raised.value)


@pytest.mark.parametrize("tolerance", [-1, 1, (1e-3,), "small", {"x": (0.1, 2)}])
def test_tolerances_that_are_refused(tolerance):
    def make(n):
        return {}

    with pytest.raises(UsageError, match=r"tolerance is .*; expected a number from 0"):
        bt_bench.benchmark(inputs={"n": [1]}, tolerance=tolerance)(make)


def test_tolerance_of_each_tensor():
    def of(tolerance):
        return Benchmark(lambda: {}, ({},), tolerance)

    assert of(1e-3).tolerance_of("x") == (1e-3, 1e-3)
    assert of((1e-3, 0.0)).tolerance_of("x") == (1e-3, 0.0)
    assert of({"y": 1e-3}).tolerance_of("x") == (0.0, 0.0)


def test_one_step_is_refused():
    def make(n):
        return {}

    with pytest.raises(UsageError, match="steps is 1; expected 2 or more"):
        bt_bench.benchmark(inputs={"n": [1]}, steps=1)(make)


@pytest.mark.parametrize("name", ["reference", "a/b", "", ".hidden"])
def test_names_that_are_refused(add, name):
    with pytest.raises(UsageError, match="expected letters, digits"):
        add._added(Implementation(name, lambda x: x))


def test_a_name_is_given_once(add):
    add.variant(name="one")(lambda x: x)
    with pytest.raises(UsageError, match="two functions named 'one'"):
        add.variant(name="one")(lambda x: x)


def test_there_is_one_reference(add):
    add.reference(lambda x: x)
    with pytest.raises(UsageError, match="has a reference already, at "):
        add.reference(lambda x: x)


def test_a_benchmark_is_declared_once(add):
    with pytest.raises(UsageError, match="two benchmarks named 'add'"):

        @bt_bench.benchmark(inputs={"n": [4]})
        def add(n):
            return {}


def test_parameters_are_taken_by_name():
    def taken(function):
        return Implementation("f", function).parameters(["x", "y", "n"])

    assert taken(lambda n, x: None) == ["n", "x"]
    assert taken(lambda x, scale=2: None) == ["x"]
    for wrong in (lambda z: None, lambda *x: None, lambda *, x: None, lambda s=1, x=2: None):
        with pytest.raises(UsageError, match="expected plain parameters with names of"):
            taken(wrong)
    with pytest.raises(UsageError, match="expected a Python function"):
        taken(dict)


@pytest.mark.parametrize("declare", ["reference", "variant"])
def test_a_name_given_by_place_is_refused(add, declare):
    with pytest.raises(UsageError, match=r"is given 'mine'; expected a function .* by name"):
        getattr(add, declare)("mine")
