"""Random sequences of calls: every variant equals the reference after each, in whole buffers.

All variants play the same sequence, so that the reference runs once. The interpreter needs about
1 ms per program, so that sequences are tiny there.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from support import playing
from support.mutants import IN_A_SEQUENCE, write_mutant
from support.playing import EngineTables, Player
from support.sequences import (
    CALLED,
    DUMMY,
    OUTPUTS,
    Action,
    Append,
    Call,
    Grow,
    RefusedAppend,
    Sizes,
    sequences,
)
from support.variants import SHIPPED, classes
from triton.runtime.interpreter import InterpretedFunction

from bt_bench.protocol import MismatchError
from bt_kernels.layout import CONTEXT_PARALLELISM, DISABLED_GROUPS, SLIDING_WINDOW
from bt_kernels.one_launch import (
    KINDS,
    CarryingLaunch,
    OneLaunch,
    PinnedSteps,
    carrying,
)
from bt_kernels.one_launch.shapes import Payloads

TINY = Sizes(
    actions=12,
    groups=(1, 2, 3, 4, 1, 2, 3, 1, 2, 3, 2, 8),
    widths=(1, 2, 3, 5),
    max_num_reqs=(2, 1, 3, 2, 3, 6, 4),
    max_num_batched_tokens=(1, 4, 9),
)
LARGE = Sizes(
    actions=40,
    groups=(1, 2, 3, 4, 1, 2, 3, 4, 8),
    widths=(1, 3, 20, 130, 300, 1_100),
    max_num_reqs=(1, 4, 16, 50),
    max_num_batched_tokens=(1, 16, 64, 200),
)


# So that random sequences of this size reach every kind of launch.
PAYLOADS = Payloads(single_ids=2, few_ids=4, many_ids=6, few_apart=5, many_apart=8)


@pytest.fixture(autouse=True)
def small_payloads(monkeypatch):
    monkeypatch.setattr(carrying, "PAYLOADS_INTERPRETED", PAYLOADS)


class FallsBack(OneLaunch):
    """Handles every other step as one whose writes no parameters can tell."""

    carries_next = False

    def _make_quick(self):
        pass

    def _launch_step(self, batch, options):
        carrying = self._carrying
        self.carries_next = not self.carries_next
        if not self.carries_next:
            self._carrying = None
        try:
            super()._launch_step(batch, options)
        finally:
            self._carrying = carrying


SUBJECTS = {**classes(SHIPPED), "BlockTables": EngineTables, "FallsBack": FallsBack}


def play(sizes, device, *, examples, first, subjects=SUBJECTS, shrink=True):
    """Plays so many sequences on all subjects; equal arguments play equal sequences."""

    @seed(first)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )
    @given(sequences(sizes))
    def all_equal_the_reference(sequence):
        Player(sequence, subjects, device).play()

    all_equal_the_reference()


# 200 sequences, in parts, each of which takes a minute or so under the interpreter.
PARTS, EXAMPLES = range(8), 25


def test_a_few_short_sequences(device):
    """The first of those that are slow."""
    play(TINY, device, examples=4, first=0)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_short_sequences(part, device):
    play(TINY, device, examples=EXAMPLES, first=part)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_more_short_sequences(part, device):
    play(TINY, device, examples=100, first=100 + part)


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(6))
def test_long_sequences(part, device):
    play(LARGE, device, examples=15, first=part)


@pytest.mark.parametrize("name", IN_A_SEQUENCE)
def test_a_mutant_is_found(name, device, tmp_path):
    """These `check` does not see: what it calls is always a whole step."""
    mutant = classes([name], [write_mutant(tmp_path, name)])

    def play_all():
        for part in PARTS:
            play(TINY, device, examples=EXAMPLES, first=part, subjects=mutant, shrink=False)

    with pytest.raises(MismatchError) as found:
        play_all()
    assert any(note.startswith(f"{name}, ") for note in found.value.__notes__)


@pytest.fixture(scope="module")
def drawn():
    """All 200 sequences; nothing plays them."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Player, "play", lambda player: found.append(player.sequence))
        for part in PARTS:
            play(TINY, None, examples=EXAMPLES, first=part, subjects={})
    return found


@pytest.mark.slow
def test_sequences_have_everything(drawn):
    """What the short ones are made of, so that no kind of action gets lost."""
    assert len(drawn) == len(PARTS) * EXAMPLES
    actions = [action for sequence in drawn for action in sequence.actions]
    calls = [action for action in actions if isinstance(action, Call)]
    assert {type(action) for action in actions} == set(get_args(Action))
    assert {call.operation for call in calls} == set(CALLED)
    assert {call.batch.outputs for call in calls} == set(OUTPUTS)
    assert {action.why for action in actions if isinstance(action, RefusedAppend)} == set(
        RefusedAppend.REASONS
    )
    layouts = [sequence.layout for sequence in drawn]
    assert {layout.num_groups for layout in layouts} >= {1, 2, 3, 8}
    assert frozenset().union(*(layout.features for layout in layouts)) == {
        DISABLED_GROUPS,
        SLIDING_WINDOW,
        CONTEXT_PARALLELISM,
    }
    assert any(call.batch.computed for call in calls)
    assert any(action.redirected for action in actions if isinstance(action, Append))
    assert any(request.row == DUMMY for call in calls for request in call.batch.requests)
    assert {sequence.dtype for sequence in drawn} == {"int32", "int64"}
    assert {sequence.launch_path for sequence in drawn} == {"jit", "compiled", "direct"}
    assert {sequence.native for sequence in drawn} == {True, False}
    grown = [action for action in actions if isinstance(action, Grow)]
    assert {action.together for action in grown} == {True, False}
    most = max(PAYLOADS)
    assert any(len(set(action.rows)) * sum(action.groups) > most for action in grown)
    assert statistics.mean(len(sequence.actions) for sequence in drawn) > TINY.actions / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one_launch", "FallsBack"])
def test_writes_are_carried_in_every_way(name, drawn, device, monkeypatch):
    """By steps that have some, with helpers in C and without; nothing is run."""
    monkeypatch.setattr(InterpretedFunction, "run", lambda *arguments, **options: None)
    for compared in ("_compare", "compare_results", "compare_dummies"):
        monkeypatch.setattr(playing, compared, lambda *arguments: None)
    steps = []
    kind_of, run = CarryingLaunch._kind, PinnedSteps.run

    def noted_kind(self, num_pieces, head, *sizes):
        kind = kind_of(self, num_pieces, head, *sizes)
        steps.extend([kind] if head else [])
        return kind

    def noted_run(self, tables, *arguments):
        steps.extend(["pinned"] if tables._staged else [])
        run(self, tables, *arguments)

    monkeypatch.setattr(CarryingLaunch, "_kind", noted_kind)
    monkeypatch.setattr(PinnedSteps, "run", noted_run)
    found = {True: Counter(), False: Counter()}
    for sequence in drawn:
        steps.clear()
        Player(sequence, {name: SUBJECTS[name]}, device).play()
        found[sequence.native].update(steps)
    kinds = {*KINDS, "pinned"} if name == "FallsBack" else {*KINDS}
    for counted in found.values():
        assert counted.keys() == kinds, found
        assert min(counted.values()) > 3, found
