"""Variants are explored until something differs, and that is made small and told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bt_bench.protocol import default_suite
from bt_bench.results import Reason, ReasonCode
from bt_bench.runs.explore import Explored, Exploring
from bt_bench.worker import Finished, Play, Survey
from bt_bench.worker.checking.playing import play, survey
from bt_kernels.variants.fused import Variant as Fused

SUITE = default_suite()


class Forgetful(Fused):
    """Rows that a larger batch left are not zeroed."""

    def _rows_to_gather(self, num_reqs: int, num_reqs_padded: int, out: Any) -> Any:
        self.num_dirty_rows = 0
        return super()._rows_to_gather(num_reqs, num_reqs_padded, out)


class Counting(Fused):
    """Wrong in the 5th apply of the process: not again when a scenario is played alone."""

    calls = 0

    def apply_staged_writes(self) -> None:
        Counting.calls += 1
        super().apply_staged_writes()
        if Counting.calls == 5:
            self.block_tables[0][0, 0] += 1


class Crashing(Fused):
    """Takes its process with it, says the runner below."""


class Unreadable(Fused):
    """Takes its process with it as soon as it is looked at, says the runner below."""


class Runner:
    """Plays in this process."""

    def __init__(self, variants: dict[str, type[Any]]) -> None:
        self._variants = variants

    def run(self, task: Any, arms: Sequence[str], watcher: Any = None) -> Finished[Any]:
        import torch

        if isinstance(task, Survey):
            if Unreadable in self._variants.values():
                reason = Reason(code=ReasonCode.CRASHED, message="signal 11")
                return Finished({}, dict.fromkeys(arms, reason))
            return Finished(survey(SUITE, {arm: self._variants[arm] for arm in arms}), {})
        assert isinstance(task, Play)
        arm = arms[0] if arms else None
        variant = None if arm is None else self._variants[arm]
        if variant is Crashing:
            assert arm is not None
            return Finished((), {arm: Reason(code=ReasonCode.CRASHED, message="signal 11")})
        return Finished(play(task, SUITE, arm, variant, torch.device("cpu")), {})


def explore(variant: type[Any], numbers: Sequence[int] | None = None) -> Explored:
    runner = Runner({"it": variant})
    (explored,) = Exploring(SUITE, runner, runner, 0).explore(["it"], 0.0, numbers)
    return explored


def test_a_right_variant_passes() -> None:
    explored = explore(Fused, [0, 1, 4])
    assert explored.found is None
    assert explored.scenarios == 3


def test_what_is_wrong_is_made_small_and_told() -> None:
    found = explore(Forgetful, [6]).found  # which is made small in few seconds
    assert found is not None
    assert found.reason.code is ReasonCode.WRONG_RESULT
    assert "input_block_tables[" in found.reason.message
    assert "expected 0" in found.reason.message
    assert len(found.lines) <= 4  # the layout, a large batch and a small one
    assert "TableLayout(" in found.lines[0]
    assert found.needs == str(found.number)


def test_what_depends_on_earlier_scenarios_says_so() -> None:
    Counting.calls = 0
    found = explore(Counting, range(2)).found
    assert found is not None
    assert "right when it is played again" in found.reason.message
    assert found.needs == f"0-{found.number}"


def test_a_crash_is_told_with_its_scenario() -> None:
    found = explore(Crashing, range(3)).found
    assert found is not None
    assert (found.number, found.reason.code) == (0, ReasonCode.CRASHED)
    assert "signal 11" in found.reason.message


def test_a_crash_before_the_first_scenario_is_a_failure() -> None:
    found = explore(Unreadable, range(3)).found
    assert found is not None
    assert found.reason.code is ReasonCode.CRASHED


def test_how_far_it_is_is_told() -> None:
    told: list[tuple[str, int]] = []
    runner = Runner({"one": Fused})
    exploring = Exploring(
        *(SUITE, runner, runner, 7),
        on_batch=lambda arm, played, _seconds: told.append((arm, played)),
    )
    list(exploring.explore(["one"], 0.0, range(7)))
    assert told == [("one", 6), ("one", 7)]
