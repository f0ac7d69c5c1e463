"""`studies/mutants.py` changes one thing of a statement, wherever that has moved."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = '''\
"""A module."""

LIMIT = 3


class Counter:
    """A class."""

    size: int = 1

    def count(self, values, most=LIMIT):
        """Count."""
        total = 0
        for value in values:
            if not value and total < 7:
                self.note(value)
                total += 2
        return total == most or self.size


def twice(a):
    print(a)
    print(a)
    return [a - 1, True]
'''


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    import mutants

    yield mutants
    del sys.modules["mutants"]


def test_each_mutant_changes_one_thing(mutants):
    found = list(mutants.mutants_of(SOURCE, "bt_bench.made.up"))
    assert {each.function for each in found} == {"Counter.count", "twice"}
    changed = [(each.statement.splitlines()[0], each.mutated.splitlines()[0]) for each in found]
    assert changed == [
        ("total = 0", "total = 1"),
        ("if not value and total < 7:", "if not value or total < 7:"),
        ("if not value and total < 7:", "if not not value and total < 7:"),
        ("if not value and total < 7:", "if not value and total <= 7:"),
        ("if not value and total < 7:", "if not value and total < 8:"),
        ("self.note(value)", "pass"),
        ("total += 2", "pass"),
        ("total += 2", "total -= 2"),
        ("total += 2", "total += 3"),
        ("return total == most or self.size", "return total == most and self.size"),
        ("return total == most or self.size", "return total != most or self.size"),
        # What a function has twice is not changed.
        ("return [a - 1, True]", "return [a + 1, True]"),
        ("return [a - 1, True]", "return [a - 1, False]"),
        ("return [a - 1, True]", "return [a - 2, True]"),
    ]


def test_a_planted_mutant_is_all_that_differs(mutants):
    for each in mutants.mutants_of(SOURCE, "bt_bench.made.up"):
        planted = mutants.planted(SOURCE, each)
        assert ast.unparse(ast.parse(planted)) == ast.unparse(ast.parse(SOURCE)).replace(
            _indented(each.statement, SOURCE), _indented(each.mutated, SOURCE, each.statement)
        )


def _indented(text: str, source: str, like: str | None = None) -> str:
    first = (like or text).splitlines()[0]
    line = next(line for line in source.splitlines() if line.strip() == first)
    indent = line[: len(line) - len(line.lstrip())]
    return "\n".join(indent + each for each in text.splitlines())


def test_what_has_no_lines_of_its_own_is_not_changed(mutants):
    source = "def f(a):\n    if a > 1: return 5\n    if a == 2:\n        pass\n    elif a == 3:\n"
    found = mutants.mutants_of(f"{source}        pass\n", "a")
    assert {each.mutated.splitlines()[0] for each in found} == {"if a >= 1:", "if a > 2:"}


def test_a_mutant_is_planted_where_its_module_is_now(mutants, tmp_path):
    (found, *_) = mutants.mutants_of(SOURCE, "bt_bench.made.up")
    moved = tmp_path / "bt_bench" / "other" / "up.py"
    moved.parent.mkdir(parents=True)
    moved.write_text(SOURCE)
    (tmp_path / "tests" / "other").mkdir(parents=True)
    assert mutants._place(found, tmp_path)[0] == moved
    assert mutants._tests_of(moved, tmp_path) == Path("tests/other")
    moved.write_text(SOURCE.replace("total = 0", "total = 5"))
    assert mutants._place(found, tmp_path) is None
    assert mutants.find(found, tmp_path) == "absent"


def test_mutants_are_drawn_from_all_rooms_alike(mutants, monkeypatch):
    statements_of = mutants._single_statements  # takes all the time
    monkeypatch.setattr(
        mutants, "_single_statements", cache(lambda source: list(statements_of(source)))
    )
    drawn = mutants.drawn(ROOT, 24, seed=1)
    assert drawn == mutants.drawn(ROOT, 24, seed=1)
    rooms = [mutants._room(each.module) for each in drawn]
    assert {"kernels", "analysis", "cli", "runs", "suites", "worker"} < set(rooms)
    assert len({rooms.count(room) for room in rooms}) == 1
