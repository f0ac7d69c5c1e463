"""When two sources are the same code."""

from __future__ import annotations

import ast
import sys

import pytest

from bt_bench.worker.compiling.host_code import ImportWatch, digest_of, syntax

SOURCE = '''"""Module."""

import os


class Thing:
    """Class."""

    size = 3

    def method(self, first, second=None):
        """Method."""
        return first + "text"  # why
'''


def of(source):
    return syntax(ast.parse(source))


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ('"""Module."""', '"""Another."""', False),
        ('"""Module."""\n', "", False),
        ('        """Method."""\n', "", False),
        ("  # why", "", False),
        ("first, second=None", "first,\n  second = None,\n", False),
        ('"text"', "'te' 'xt'", False),
        ("import os", "import sys", True),
        ("size = 3", "size = 3.0", True),
        ("size = 3", "size = '3'", True),
        ("second=None", "second=0", True),
        ("second=None", "second", True),
        ('"text"', "b'text'", True),
        ("first + ", "first - ", True),
        ("        return", "        'no docstring'\n        return", True),
        ("class Thing:", "class Thing(object):", True),
    ],
)
def test_what_counts_and_what_does_not(old, new, counts):
    assert old in SOURCE
    assert (of(SOURCE.replace(old, new)) != of(SOURCE)) is counts


def test_modules_count_by_name(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(f"value = '{name}'\n", encoding="utf-8")
    one = digest_of({"first": tmp_path / "a.py", "second": tmp_path / "b.py"})
    assert one == digest_of({"second": tmp_path / "b.py", "first": tmp_path / "a.py"})
    assert one != digest_of({"first": tmp_path / "b.py", "second": tmp_path / "a.py"})


def test_modules_that_a_variant_imports_are_noticed(tmp_path, monkeypatch):
    """Those of the package each time, others from then on: they stay loaded."""
    (tmp_path / "watched_package").mkdir()
    (tmp_path / "watched_package" / "__init__.py").write_text("import watched_beside\n")
    (tmp_path / "watched_beside.py").write_text("import json\n")
    monkeypatch.syspath_prepend(tmp_path)
    watch = ImportWatch()
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    __import__("watched_package")
    assert watch.take("watched_package") == {"watched_package"}
    assert watch.take("watched_package") == set()
    for _ in range(2):
        assert watch.others(["watched_package"]) == {
            "watched_beside": tmp_path / "watched_beside.py"
        }
