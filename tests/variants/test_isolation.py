"""Whose a file is, where a user's suite lies in the trees that are compared."""

from __future__ import annotations

from pathlib import Path

from bt_bench.variants import Isolation


def isolation(tmp_path: Path, *suite: str) -> Isolation:
    head, base = tmp_path / "head", tmp_path / "base"
    others = (("head", head),)
    files = frozenset(str(head / name) for name in suite)
    return Isolation("base", base, others, head, tmp_path / "caches", suite=files)


def test_loaded_modules_of_the_suite_are_of_no_tree(tmp_path):
    found = isolation(tmp_path, "suite.py", "driver.py")
    assert found.owner_of(str(tmp_path / "head/suite.py")) is None
    assert not found.is_own(str(tmp_path / "head/suite.py"))
    assert found.mapped(str(tmp_path / "head/driver.py")) is None


def test_whatever_else_lies_beside_them_is_of_its_tree(tmp_path):
    found = isolation(tmp_path, "suite.py")
    for name in ("kernels/variants/fused.py", "extra/_helper.py", "other.py"):
        assert found.owner_of(str(tmp_path / "head" / name)) == "head"
        assert found.mapped(str(tmp_path / "head" / name)) == tmp_path / "base" / name
        assert found.is_own(str(tmp_path / "base" / name))
