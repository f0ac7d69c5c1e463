"""Questions that are answered together, and their answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bt_bench.analysis.compare import estimating
from bt_bench.analysis.compare.estimating import Question, answer
from bt_bench.analysis.verdicts import Verdict
from bt_bench.results import FloatArray, Metric, Taken, metric_named

METRIC = metric_named("host_us")


def _question(base: FloatArray, other: FloatArray, *, one_run: bool = True) -> Question:
    """Return a question whose lists of rounds are its own, as if read from its own files."""
    rounds = [tuple(range(len(base))) for _ in "ab"]
    instances = [tuple(number // 2 % 4 for number in of_side) for of_side in rounds]
    sides = (
        Taken(METRIC, "step", own, each) for own, each in zip(rounds, (base, other), strict=True)
    )
    return Question(*sides, *instances, one_run, False)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of questions that were answered together."""
    found: list[int] = []

    class _Counted(estimating._Group):
        def __init__(self, metric: Metric, questions: Sequence[Question]) -> None:
            found.append(len(questions))
            super().__init__(metric, questions)

    monkeypatch.setattr(estimating, "_Group", _Counted)
    return found


@pytest.mark.parametrize("one_run", [True, False])
def test_equal_rounds_of_several_files_are_answered_together(
    groups: list[int], one_run: bool
) -> None:
    """A GPU's cases differ in their rounds: only the variants of a case can be."""
    rng = np.random.default_rng(3)
    asked = [
        _question(*rng.uniform(1, 2, (2, rounds, 3)), one_run=one_run)
        for rounds in (40, 41)
        for _ in range(4)
    ]
    together = answer(METRIC, asked)
    assert sorted(groups) == [4, 4]
    assert together == [answer(METRIC, [each])[0] for each in asked]


@pytest.mark.parametrize(("samples", "expected"), [(0, [1] * 5), (100, [1] * 5), (361, [3, 2])])
def test_samples_of_a_chunk_are_bounded(
    groups: list[int], monkeypatch: pytest.MonkeyPatch, samples: int, expected: list[int]
) -> None:
    monkeypatch.setattr(estimating, "_CHUNK_SAMPLES", samples)
    rng = np.random.default_rng(4)
    asked = [_question(*rng.uniform(1, 2, (2, 40, 3))) for _ in range(5)]
    found = answer(METRIC, asked)
    assert groups == expected
    monkeypatch.undo()
    assert found == answer(METRIC, asked)


def test_questions_without_rounds_are_invalid() -> None:
    (found,) = answer(METRIC, [_question(np.empty((0, 1)), np.empty((0, 1)))])
    assert found.outcome.verdict is Verdict.INVALID
