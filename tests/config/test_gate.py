"""The `gate:` section, and margins of single cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_bench.config.dump import dump_config
from bt_bench.config.load import load_config
from bt_bench.config.spec import GateSpec

GOOD = "cases: [{name: a, requests: 1, tokens: 2}]"
ALL = """\
gate:
  metrics: [host_us, 'gpu_us*']
  margin_percent: 3
  alpha: 0.05
  fail_on: [slower, inconclusive]
  looks: [10, 20]
cases:
  - {name: a, requests: 1, tokens: 2}
  - {name: "b_{groups}", requests: 1, tokens: 2, margin_percent: 7.5, product: {groups: [1, 2]}}
"""


def test_without_a_gate_nothing_is_set(load):
    spec = load(GOOD)
    assert spec.gate == GateSpec()
    assert spec.margins == {}
    assert "gate" not in dump_config(spec)


def test_all_of_it_and_it_survives_the_dump(load):
    spec = load(ALL)
    assert spec.gate == GateSpec(
        metrics=["host_us", "gpu_us*"],
        margin_percent=3.0,
        alpha=0.05,
        fail_on=["slower", "inconclusive"],
        looks=[10, 20],
    )
    assert spec.margins == {"b_1": 0.075, "b_2": 0.075}
    Path("again.yaml").write_text(dump_config(spec))
    assert load_config("again.yaml") == spec.model_copy(update={"name": "my"})


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("5", "my.yaml:1:7: gate is 5; expected a mapping of metrics, margin_percent, detect"),
        (
            "{margin: 2}",
            "my.yaml:1:8: unknown key 'margin' in gate; did you mean 'margin_percent'?",
        ),
        ("{margin_percent: 0}", "margin_percent is 0; expected a number above 0 and up to 100"),
        ("{alpha: 0.9}", "alpha is 0.9; expected a number above 0 and up to 0.5"),
        (
            "{fail_on: [slow]}",
            "fail_on[0] is 'slow'; expected one or more of slower, faster, incon",
        ),
        ("{fail_on: [slower, slower]}", "fail_on has 'slower' twice; remove one"),
        (
            "{looks: [2]}",
            "looks[0] is 2; expected a list, each a whole number from 3 to ",
        ),
        ("{looks: [20, 10]}", "looks is [20, 10]; expected rising numbers"),
        ("{metrics: [1]}", "metrics[0] is 1; expected a list, each text"),
    ],
)
def test_what_a_gate_cannot_be(error_of, gate, expected):
    message = error_of(f"gate: {gate}\n{GOOD}")
    assert expected in message
    assert message.startswith("my.yaml:1:")


@pytest.mark.parametrize("margin", ["0", "-1", "101", "many", "true", "[1]"])
def test_what_a_margin_cannot_be(error_of, margin):
    message = error_of(GOOD.replace("tokens: 2", f"tokens: 2, margin_percent: {margin}"))
    assert message.startswith("my.yaml:1:")
    assert "expected a number above 0 and up to 100" in message


def test_a_margin_is_of_a_case_and_no_default(error_of):
    message = error_of(f"defaults: {{margin_percent: 3}}\n{GOOD}")
    assert "unknown parameter 'margin_percent'" in message
