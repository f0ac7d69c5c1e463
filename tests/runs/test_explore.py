"""Variants are explored until something differs, and that is made small and told."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import Change, Cut, Recipe, Source, default_suite
from bt_bench.results import Reason, ReasonCode
from bt_bench.runs.explore import SCENARIOS, Explored, Exploring, limit_seconds
from bt_bench.runs.faults import Found
from bt_bench.runs.found import read_found, store_found
from bt_bench.worker import Finished, Play, ReadCoverage, ReadRan, Survey
from bt_bench.worker.checking.playing import play, survey
from bt_bench.worker.checking.reached import Reached
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
    fresh = 0  # what a fresh process begins with

    def apply_staged_writes(self) -> None:
        Counting.calls += 1
        super().apply_staged_writes()
        if Counting.calls == 5:
            self.block_tables[0][0, 0] += 1


class Third(Fused):
    """Wrong in the third tables of a process, and in all later ones."""

    made = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        Third.made += 1

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        if Third.made > 2:
            self.block_tables[0][0, 0] += 1


class Once(Fused):
    """Wrong in a process that has done something that no fresh one does."""

    is_first = True

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        if Once.is_first:
            self.block_tables[0][0, 0] += 1


class Sticky(Fused):
    """Gathers three requests or more wrongly, and everything after that in its process."""

    is_spoiled = False

    def prepare_step(self, idx_mapping: Any, *args: Any, **options: Any) -> Any:
        Sticky.is_spoiled |= len(idx_mapping) > 2
        found = super().prepare_step(idx_mapping, *args, **options)
        if Sticky.is_spoiled:
            self.input_block_tables[0][0, 0] += 1
        return found


class Crashing(Fused):
    """Takes its process with it, says the runner below."""


class Unreadable(Fused):
    """Takes its process with it as soon as it is looked at, says the runner below."""


PLAYING = Lock()  # of the variant and the reference, which have a process each elsewhere


class Runner:
    """Plays in this process."""

    calls_made = 0

    def __init__(self, variants: dict[str, type[Any]]) -> None:
        self._variants = variants
        self._reached = Reached(frozenset({__file__}))

    def renew(self) -> None:
        Counting.calls = Counting.fresh
        Third.made = 0
        Once.is_first = Sticky.is_spoiled = False

    def _count(self, task: Any, arm: str) -> Any:
        if isinstance(task, ReadRan):
            return self._reached.ran
        for ran in task.elsewhere:
            self._reached.add(ran)
        return self._reached.coverage()

    def run(self, task: Any, arms: Sequence[str], watcher: Any = None) -> Finished[Any]:
        import torch

        if isinstance(task, Survey):
            if Unreadable in self._variants.values():
                reason = Reason(code=ReasonCode.CRASHED, message="signal 11")
                return Finished({}, dict.fromkeys(arms, reason))
            return Finished(survey(SUITE, {arm: self._variants[arm] for arm in arms}), {})
        if isinstance(task, ReadRan | ReadCoverage):
            return Finished(self._count(task, arms[0]), {})
        assert isinstance(task, Play)
        arm = arms[0] if arms else None
        variant = None if arm is None else self._variants[arm]
        if variant is Crashing:
            assert arm is not None
            return Finished((), {arm: Reason(code=ReasonCode.CRASHED, message="signal 11")})
        noted = self._reached.noted() if task.lines else nullcontext()
        with PLAYING, noted:
            return Finished(play(task, SUITE, arm, variant, torch.device("cpu")), {})


def explore(
    variant: type[Any], numbers: Sequence[int] = (), recipes: Sequence[Recipe] = (), **more: Any
) -> Explored:
    runner = Runner({"it": variant})
    (explored,) = Exploring(SUITE, [runner], runner, 0).explore(["it"], numbers, recipes, **more)
    return explored


def fault_of(variant: type[Any], *given: Any, **more: Any) -> Found:
    found = explore(variant, *given, **more).found
    assert found is not None
    return found


def test_a_right_variant_passes() -> None:
    explored = explore(Fused, [0, 1, 4])
    assert explored.found is None
    assert explored.scenarios == 3


def test_what_is_wrong_is_made_small_and_told() -> None:
    found = fault_of(Forgetful, [0])  # which is made small in few seconds
    assert found.reason.code is ReasonCode.WRONG_RESULT
    told = r"(input_block_tables\[.*\] is .*, expected 0|num_dirty_rows is 0, expected \d+);"
    assert re.search(told, found.reason.message)
    assert len(found.lines) <= 4  # the layout, a large batch and a small one
    assert "TableLayout(" in found.lines[0]
    (recipe,) = found.needs
    assert recipe.source.number == found.number
    assert recipe.changes


@pytest.fixture
def one_table_each() -> list[int]:
    """Three scenarios that make one set of tables each, with rows to apply writes to."""
    explorer = SUITE.explorer()
    assert explorer is not None
    numbers = []
    for number in range(98):
        made: Any = explorer.made(Recipe(Source(0, number, Fused.features)))
        if len(made.layouts) == 1 and not any("Renew" in str(call) for call in made.calls):
            numbers.append(number)
        if len(numbers) == 3:
            break
    return numbers


def test_what_depends_on_earlier_scenarios_is_stored_with_them(one_table_each: list[int]) -> None:
    Third.made = 0
    found = fault_of(Third, one_table_each)
    assert "right when played on its own, and wrong again after 2 others" in found.reason.message
    assert [recipe.source.number for recipe in found.needs] == one_table_each
    Runner({}).renew()
    again = fault_of(Third, recipes=found.needs)
    assert again.needs == found.needs


def test_what_no_scenarios_show_again_is_not_stored() -> None:
    Once.is_first = True
    found = fault_of(Once, [0, 1])
    assert "or chance" in found.reason.message
    assert found.needs == ()


def test_what_is_stored_is_wrong_in_a_fresh_process() -> None:
    """What is tried while it is made smaller may be wrong because of what was tried before."""
    Sticky.is_spoiled = False
    found = fault_of(Sticky, range(98))
    Runner({}).renew()
    again = fault_of(Sticky, recipes=found.needs)
    assert again.reason.code is ReasonCode.WRONG_RESULT


@pytest.mark.parametrize("variant", [Crashing, Unreadable])
def test_a_crash_is_told_also_before_the_first_scenario(variant: type[Any]) -> None:
    found = fault_of(variant, range(3))
    assert (found.number, found.reason.code) == (0, ReasonCode.CRASHED)
    assert "signal 11" in found.reason.message


def test_a_crash_is_told_with_its_call_and_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runner, "calls_made", 3)
    found = fault_of(Crashing, [0])
    assert found.reason.message.startswith("call 4: ")
    assert found.needs[0].changes == (Change(Cut.UNTIL, 3),)
    assert len(found.lines) <= 5  # the layout, and four calls


def test_what_was_left_out_is_told_once() -> None:
    class Lacking(Runner):
        def run(self, task: Any, arms: Sequence[str], watcher: Any = None) -> Finished[Any]:
            done = super().run(task, arms, watcher)
            if isinstance(task, Play) and arms:
                return Finished(tuple(replace(one, not_tried=("far",)) for one in done.value), {})
            return done

    runner = Lacking({"it": Fused})
    (explored,) = Exploring(SUITE, [runner], runner, 0).explore(["it"], [0, 1])
    assert explored.not_tried == ("far",)


def test_an_error_in_any_process_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bt_bench.runs.explore.BATCH", 1)

    class Broken(Runner):
        def run(self, task: Any, arms: Sequence[str], watcher: Any = None) -> Finished[Any]:
            raise RuntimeError("no more")

    runners = [Runner({"it": Fused}), Broken({"it": Fused})]
    told: list[int] = []
    exploring = Exploring(
        *(SUITE, runners, runners[0], 0), on_batch=lambda _arm, played, *_: told.append(played)
    )
    with pytest.raises(RuntimeError, match="no more"):
        list(exploring.explore(["it"], [0] * 60))
    assert len(told) < 30


@pytest.mark.parametrize("deep", [False, True])
def test_more_scenarios_have_more_time(deep: bool) -> None:
    usual = limit_seconds(SCENARIOS[deep], deep=deep)
    assert limit_seconds(3, deep=deep) == usual
    assert limit_seconds(50 * SCENARIOS[deep], deep=deep) == 50 * usual


def test_how_far_it_is_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    runner = Runner({"one": Fused})
    exploring = Exploring(
        *(SUITE, [runner], runner, 7),
        on_batch=lambda *so_far: told.append(so_far),
    )
    list(exploring.explore(["one"], range(7)))
    assert told == [("one", 0, 7), ("one", 4, 7), ("one", 7, 7)]


def test_a_slow_machine_plays_as_much_as_a_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000_000, 1_000))
    monkeypatch.setattr("bt_bench.runs.explore.time.monotonic", lambda: float(next(clock)))
    assert explore(Fused, [0, 1]).scenarios == 2


def test_processes_take_turns_and_tell_what_each_has_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bt_bench.runs.explore.BATCH", 2)
    runners = [Runner({"it": Fused}), Runner({"it": Counting})]
    monkeypatch.setattr(Counting, "fresh", -20)  # so that some batches are right
    Counting.calls = -20
    (explored,) = Exploring(SUITE, runners, runners[0], 0).explore(["it"], [0, 1] * 20)
    assert explored.found is not None
    batch, place = divmod(explored.scenarios - 1, 2)
    assert batch > 2
    assert batch % 2 == 1
    # Those of its own process, which has every other batch.
    assert len(explored.found.needs) == 2 * (batch // 2) + place + 1


class Odd(Fused):
    """Has lines that one of two processes runs: each plays every other batch."""

    made = 0

    def apply_staged_writes(self) -> None:
        Odd.made += 1
        if Odd.made == 1:
            self.num_calls = 1
        else:
            self.num_calls = 2
        super().apply_staged_writes()


def test_lines_that_ran_in_any_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bt_bench.runs.explore.BATCH", 1)
    Odd.made = 0
    runners = [Runner({"it": Odd}), Runner({"it": Odd})]
    exploring = Exploring(SUITE, runners, runners[0], 0, lines=True)
    (explored,) = exploring.explore(["it"], [0, 1])
    assert explored.coverage is not None
    lines = inspect.getsourcelines(Odd.apply_staged_writes)
    own = range(lines[1], lines[1] + len(lines[0]))
    assert not [each for each in explored.coverage.unreached if each.first in own]


def test_large_scenarios_are_played_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bt_bench.runs.explore.BATCH", 1)
    explorer = type(SUITE.explorer())
    monkeypatch.setattr(explorer, "is_large", lambda _explorer, scenario: True)
    at_once: list[int] = []
    playing: list[object] = []

    class Watched(Runner):
        def run(self, task: Any, arms: Sequence[str], watcher: Any = None) -> Finished[Any]:
            if not isinstance(task, Play) or not arms:
                return super().run(task, arms, watcher)
            playing.append(task)
            time.sleep(0.05)
            at_once.append(len(playing))
            playing.pop()
            return super().run(task, arms, watcher)

    runners = [Watched({"it": Fused}) for _ in range(3)]
    list(Exploring(SUITE, runners, runners[0], 0).explore(["it"], [0, 1, 4]))
    assert at_once == [1, 1, 1]


def test_what_is_given_up_has_not_passed() -> None:
    explored = explore(Fused, [0, 1], limit=-1.0)
    assert (explored.scenarios, explored.wanted, explored.stopped) == (0, 2, True)


def test_what_was_found_is_found_again_after_an_edit(tmp_path: Path) -> None:
    """The scenario is made anew from a file, whatever numbers the variant's code names then."""
    found = fault_of(Forgetful, [0])
    path = store_found(tmp_path / "check", SUITE, "it", found)
    assert path == tmp_path / "check" / "it-0.json"
    recipes, doubt = read_found(path, SUITE)
    assert (tuple(recipes), doubt) == (found.needs, "")
    again = fault_of(Forgetful, recipes=recipes)
    assert again.reason == found.reason
    assert len(again.lines) <= len(found.lines)
    assert explore(Fused, recipes=recipes).found is None


def test_other_scenarios_of_a_number_have_a_file_of_their_own(tmp_path: Path) -> None:
    found = fault_of(Crashing, [0])
    (recipe,) = found.needs
    other = replace(found, needs=(replace(recipe, source=replace(recipe.source, seed=5)),))
    names = [store_found(tmp_path, SUITE, "it", each).name for each in (found, other, found, other)]
    assert names == ["it-0.json", "it-0-2.json"] * 2


def test_a_file_of_other_code_of_the_suite_is_doubted(tmp_path: Path) -> None:
    found = fault_of(Crashing, [0])
    path = store_found(tmp_path, SUITE, "it", found)
    text = path.read_text("utf-8").replace('"suite_sha256": "', '"suite_sha256": "0')
    path.write_text(text, encoding="utf-8")
    assert "other code of the suite block_tables" in read_found(path, SUITE)[1]


@pytest.mark.parametrize("text", ["{}", "[]", "3", "", '{"schema_version": 7}'])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "it.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"it\.json: .*expected scenarios"):
        read_found(path, SUITE)
