"""`studies/gate_rates.py` counts what it says, and can fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from bt_bench.runs.selfcheck.rates import Rate

PATH = Path(__file__).parents[2] / "studies" / "gate_rates.py"
GOOD = {
    "red": Rate(10, 1000),
    "at margin": Rate(9, 1000),
    "found 0.03": Rate(950, 1000),
    "found 0.05": Rate(990, 1000),
    "found said": Rate(980, 1000),
}


@pytest.fixture(scope="module")
def gate_rates():
    spec = importlib.util.spec_from_file_location("gate_rates", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gate_rates"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gate_rates"]


@pytest.mark.parametrize(
    ("worse", "message"),
    [
        ({}, None),
        ({"red": Rate(11, 1000)}, "red builds: 1.10 %"),
        ({"found 0.03": Rate(949, 1000)}, "found 0.03: 94.90 %"),
        ({"found 0.05": Rate(989, 1000)}, "found 0.05: 98.90 %"),
        ({"found said": Rate(979, 1000)}, "found said: 97.90 %"),
        ({"found 0.05": Rate(999, 999)}, "found 0.05: 100.00 %"),  # a gate that tried none
        ({"at margin": Rate(30, 1000)}, "within the margin: 3.00 %"),
    ],
)
def test_missed_promises(gate_rates, worse, message) -> None:
    problems = gate_rates.missed(GOOD | worse, 1000)
    assert len(problems) == (message is not None)
    assert all(problem.startswith(message) for problem in problems)


def test_rules_of_other_tools(gate_rates) -> None:
    generator = np.random.default_rng(0)
    base = 100 + generator.normal(size=(400, 1))
    for head, expected in (
        (base, [False, False, False]),
        (base * 1.03, [True, False, True]),
        (base * 1.06, [True, True, True]),
        (base * 0.9, [False, False, False]),
        (np.where(np.arange(400)[:, None] < 4, base * 10, base), [False, True, False]),
    ):
        shuffled = generator.permutation(head)
        found = [bool(rule(base, shuffled)[0]) for rule in gate_rates.RULES.values()]
        assert found == expected


def test_a_chunk(gate_rates) -> None:
    trials = gate_rates.run_chunk("spiky", [0], 2)
    found = gate_rates.rates(trials)
    assert {rate.trials for rate in found.values()} == {2}
    assert found["found 0.05"].times == 2
    assert gate_rates.missed(found | {"found 0.03": Rate(2, 2)}, 2) == []
    assert gate_rates._document({"spiky": trials}, 1.0).sections[0].title == "The gate"
