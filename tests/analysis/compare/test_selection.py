"""Which verdicts `-k`, `--operations` and `--variants` leave, and what is said of the others."""

from __future__ import annotations

import pytest
from support.judgements import judgement

from bt_bench.analysis.compare.selection import Selection
from bt_bench.analysis.verdicts import Cause, Judgement, Verdict
from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables import operations as ops


def some() -> list[Judgement]:
    return [
        judgement(case="uniform"),
        judgement(case="uniform", verdict=Verdict.SLOWER, metric="host_us"),
        judgement(case="mixed", verdict=Verdict.SLOWER),
        judgement(case="mixed", operation=ops.STAGE, verdict=Verdict.SLOWER, cause=Cause.EXACT),
    ]


def kept(selection: Selection) -> list[str]:
    return [each.key for each in selection.of_cases(some())[0]]


def test_without_an_option_all_are_kept_and_nothing_is_said() -> None:
    assert Selection().of_cases(some()) == (some(), [])
    assert Selection().options == ""
    assert Selection(cases="*").of_cases(some()) == (some(), [])
    assert Selection().left_out(some(), [], []) == []


def test_cases_and_operations() -> None:
    assert kept(Selection(cases="unif")) == ["step/uniform", "step/uniform"]
    assert kept(Selection(cases="!mixed")) == ["step/uniform", "step/uniform"]
    assert kept(Selection(operations=["stage"])) == ["stage/mixed"]
    assert kept(Selection(cases="mix*", operations=["step"])) == ["step/mixed"]


def test_what_is_left_out_is_counted() -> None:
    selection = Selection(cases="unif*", operations=["step"])
    left, rest = selection.of_cases(some())
    assert selection.left_out(left, rest, rest) == [
        "Selected by -k unif*, --operations step: 1 of 3 cases. The verdicts on the others count "
        "for nothing here, nor for the exit code: 1 SLOWER, 1 MORE."
    ]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(cases="unifrom"),
            "-k 'unifrom': no case matches; did you mean 'uniform'? The cases are:\n  uniform\n",
        ),
        (Selection(cases=" ,"), "-k ' ,': expected text or a pattern"),
        (
            Selection(operations=["stpe"]),
            "--operations: no operation 'stpe' in these results; did you mean 'step'",
        ),
        (
            Selection(cases="uniform", operations=["stage"]),
            "-k uniform, --operations stage: no case of these operations has such a name; expected "
            "some of step/uniform, step/mixed, stage/mixed",
        ),
    ],
)
def test_what_selects_nothing(selection: Selection, message: str) -> None:
    with pytest.raises(UsageError) as error:
        selection.of_cases(some())
    assert str(error.value).startswith(message)
