"""The command lines of runs, as they may be published."""

from __future__ import annotations

import pytest
from support.factories import make_result

from bt_bench.results import VariantResult, folder_of, public_text, sweep_commands


def run_by(*command: str) -> VariantResult:
    result = make_result()
    return result.model_copy(
        update={"tool": result.tool.model_copy(update={"command": [*command]})}
    )


@pytest.mark.parametrize(
    ("argument", "public"),
    [
        ("origin", "origin"),
        ("reports/a b", "reports/a b"),
        ("/home/somebody/vllm-0.33.0", "vllm-0.33.0"),
        ("--out=/home/somebody/runs/first", "--out=first"),
        ("--set=plan.rounds=4", "--set=plan.rounds=4"),
        ("/", "DIR"),
    ],
)
def test_absolute_paths_are_shortened(argument: str, public: str) -> None:
    assert public_text(argument) == public


def test_commands_are_quoted_and_listed_once() -> None:
    one = run_by("bt-bench", "sweep", "quick", "-k", "a*", "--out", "/tmp/x/first run")
    assert sweep_commands([one, one]) == ["bt-bench sweep quick -k 'a*' --out 'first run'"]
    assert folder_of(one) == "first run"
    assert folder_of(run_by("bt-bench", "sweep", "quick")) is None
    assert folder_of(run_by("bt-bench", "sweep", "--out=reports/x")) == "reports/x"
