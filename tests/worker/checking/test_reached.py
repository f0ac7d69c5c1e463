"""Which lines of a file were run, and what excuses the others."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from bt_bench.worker.checking.reached import Reached, excuses_in, lines_of_functions
from bt_bench.worker.tasks.plays import Coverage

TEXT = '''\
"""A module."""

LIMIT = 3


class Kind:
    """A class."""

    size = 4

    def method(
        self, value: int
    ) -> int:
        """What it does."""
        if value > LIMIT:
            value -= 1
            value *= 2
        else:
            value += 1
        for _ in range(0):
            value = 7  # unreached: there is nothing to go through
        if value > 100:  # unreached: no value is as large
            value = 0
            value += 1
        return value


def other() -> int:
    return 5
'''


def run(tmp_path: Path, *values: int) -> Coverage:
    return reached_by(tmp_path, *values).coverage()


def reached_by(tmp_path: Path, *values: int) -> Reached:
    path = tmp_path / "module.py"
    path.write_text(TEXT, encoding="utf-8")
    space: dict[str, Any] = {"__name__": "module"}
    exec(compile(TEXT, str(path), "exec"), space)
    reached = Reached(frozenset({str(path)}))
    with reached.noted():
        for value in values:
            space["Kind"]().method(value)
    return reached


def test_lines_of_functions() -> None:
    lines = lines_of_functions(TEXT, "module.py")
    assert min(lines) == 15  # neither the module's, nor the class's, nor of the definition
    assert {lines[15], lines[25]} == {"Kind.method"}
    assert lines[29] == "other"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1,), {(16, 17, ""), (29, 29, "")}),
        ((9,), {(19, 19, ""), (29, 29, "")}),
        ((1, 9), {(29, 29, "")}),
    ],
)
def test_what_was_not_reached(
    tmp_path: Path, values: tuple[int, ...], expected: set[tuple[int, int, str]]
) -> None:
    found = run(tmp_path, *values)
    unexcused = {(one.first, one.last, one.excuse) for one in found.unreached if not one.excuse}
    assert unexcused == expected
    assert found.reached + sum(one.last - one.first + 1 for one in found.unreached) == found.total


def test_what_ran_in_several_processes_counts_as_if_it_had_run_in_one(tmp_path: Path) -> None:
    parts = [reached_by(tmp_path, value) for value in (1, 9)]
    together = Reached(parts[0].files)
    for part in parts:
        together.add(pickle.loads(pickle.dumps(part.ran)))
    assert together.coverage() == run(tmp_path, 1, 9)
    assert together.coverage() not in (parts[0].coverage(), parts[1].coverage())


def test_excuses(tmp_path: Path) -> None:
    assert excuses_in(TEXT)[24] == "no value is as large"
    assert 25 not in excuses_in(TEXT)
    excused = {one.first: one.excuse for one in run(tmp_path, 1).unreached if one.excuse}
    assert excused == {21: "there is nothing to go through", 23: "no value is as large"}


def test_kernels_under_the_interpreter_count() -> None:
    import torch

    from bt_bench.protocol import Source, default_suite
    from bt_bench.worker.checking.playing import play
    from bt_bench.worker.tasks.plays import Play
    from bt_kernels.device_code import parts
    from bt_kernels.variants.fused import Variant

    suite = default_suite()
    explorer = suite.explorer()
    assert explorer is not None
    scenario = explorer.scenario(Source(0, 0, Variant.features))
    reached = Reached(frozenset({str(parts.__file__)}))
    with reached.noted():
        play(Play((scenario,)), suite, "fused", Variant, torch.device("cpu"))
    assert len(reached.ran[str(parts.__file__)].lines) > 50
