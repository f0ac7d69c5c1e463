"""Equal files need no compiling; what differs is compiled for the GPU that is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from factories import make_environment

from bt_bench.errors import UsageError
from bt_bench.gating import sameness
from bt_bench.gating.sameness import find_sameness
from bt_bench.gating.sides import Side
from bt_bench.model import Operation
from bt_bench.static import judging
from bt_bench.tasks import Hello

SPEC = SimpleNamespace(
    cases=[SimpleNamespace(name="one"), SimpleNamespace(name="two")], operations=[Operation.STEP]
)
ON_GPU = Hello("cuda", make_environment("cuda"), None)


def entry(name, text):
    """A variant of Python code and, after a line, of C code."""
    native = text.partition("\n")[2]
    return SimpleNamespace(
        name=name, path=name, source_sha256=lambda: text, native_sha256=lambda: native
    )


def sides(**texts):
    base = tuple(entry(name, old) for name, (old, _) in texts.items())
    head = tuple(entry(name, new) for name, (_, new) in texts.items())
    return Side("old", base), Side("new", head)


def forbidden(*_):
    raise AssertionError("compiled")


def test_equal_files_are_the_same_code_without_compiling(monkeypatch):
    monkeypatch.setattr(sameness, "take_census", forbidden)
    found = find_sameness(*sides(a=("x", "x")), SPEC, ON_GPU)
    assert (found.code, found.binaries) == ({"a"}, frozenset())


def test_without_a_gpu_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(sameness, "take_census", forbidden)
    hello = Hello("cpu", make_environment("cpu"), None)
    assert find_sameness(*sides(a=("x", "y"), b=("x", "x")), SPEC, hello).code == {"b"}


@pytest.mark.parametrize("host", [True, False])
def test_what_differs_is_compiled_for_the_gpu_that_is_there(monkeypatch, host):
    asked = []

    def take(spec, entries, targets):
        asked.append(([e.name for e in entries], targets))
        return "census"

    def equal(base, head, variant, case, operation):
        return variant == "comment" or case == "one"

    monkeypatch.setattr(sameness, "take_census", take)
    monkeypatch.setattr(judging, "equal_binaries", equal)
    monkeypatch.setattr(judging, "equal_host_code", lambda *_: host)
    changed = sides(comment=("x", "y"), kernel=("x", "y"), same=("x", "x"))
    found = find_sameness(*changed, SPEC, ON_GPU)
    assert asked == [(["comment", "kernel"], ["sm_90"])] * 2
    assert found.code == ({"comment", "same"} if host else {"same"})
    step = Operation.STEP
    assert found.binaries == {
        ("comment", "one", step),
        ("comment", "two", step),
        ("kernel", "one", step),
    }
    assert found.warnings == ()


def test_code_in_c_that_differs_is_other_code(monkeypatch):
    """No census has it: binaries and syntax trees of Python are equal."""
    monkeypatch.setattr(sameness, "take_census", lambda *_: "census")
    monkeypatch.setattr(judging, "equal_binaries", lambda *_: True)
    monkeypatch.setattr(judging, "equal_host_code", lambda *_: True)
    found = find_sameness(*sides(python=("x\nc", "y\nc"), c=("x\nc", "x\nd")), SPEC, ON_GPU)
    assert found.code == {"python"}
    assert {variant for variant, _, _ in found.binaries} == {"python", "c"}


def test_what_cannot_be_compiled_is_timed_with_a_warning(monkeypatch):
    def fails(*_):
        raise UsageError("ptxas died")

    monkeypatch.setattr(sameness, "take_census", fails)
    found = find_sameness(*sides(a=("x", "y")), SPEC, ON_GPU)
    assert found.code == frozenset()
    assert "so all is timed: ptxas died" in found.warnings[0]
