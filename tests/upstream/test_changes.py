"""Patches of a small made-up source: where lines go, what is refused, and that git takes them."""

from __future__ import annotations

import subprocess

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.upstream.changes import (
    Change,
    Edit,
    Patch,
    after,
    after_binding,
    at_start,
    binding,
    body_behind,
    definitions,
    digest_of,
    from_binding_to_return,
    make_patch,
)

FILE, TEST = "vllm/engine.py", "tests/test_engine.py"
SOURCE = '''\
import os


class Engine:
    def __init__(self, size):
        self.size: int = size
        self.parts = [
            size,
        ]

    @property
    def double(self):
        """Twice the size."""
        return self.size * 2


def total(engines):
    # The sizes.
    sizes = [engine.size for engine in engines]

    # Their sum.
    return sum(sizes)


LIMIT = 3
'''
CHANGED = '''\
import os


class Engine:
    def __init__(self, size):
        self.size: int = size
        self.parts = [
            size,
        ]
        self.new = 0

    @property
    def double(self):
        """Twice the size."""
        self.new += 1
        return self.size * 2

    def half(self):
        return self.size // 2


def total(engines):
    # The sizes.
    return sum(engine.size for engine in engines)


LIMIT = 3
'''
EDITS = (
    Edit("Engine.__init__", after_binding("self.parts"), "        self.new = 0\n"),
    Edit("Engine.double", at_start, "        self.new += 1\n"),
    Edit("Engine", after, "\n    def half(self):\n        return self.size // 2\n"),
    Edit(
        "total",
        from_binding_to_return("sizes"),
        "    return sum(engine.size for engine in engines)\n",
    ),
)
TEST_CHANGE = Change(
    TEST, (Edit("test_total", after, "\n\ndef test_new(): ...\n"),), adds="test_new", is_test=True
)


def patch_of(*changes):
    return Patch("name", "Subject", "Why.\n", "How fast.\n", "How.\n", changes)


def change(*edits, **options):
    return Change(FILE, edits or EDITS, **{"adds": "self.new", **options})


@pytest.fixture
def root(tmp_path):
    (tmp_path / "vllm").mkdir()
    (tmp_path / FILE).write_text(SOURCE)
    return tmp_path


def refusal(root, *changes):
    with pytest.raises(UsageError) as error:
        make_patch(patch_of(*changes), root, "vLLM 9")
    return str(error.value)


def apply(root, made):
    text = "Subject: a change\n\nWhy.\n\n" + "".join(file.text for file in made.files)
    subprocess.run(
        ["git", "apply", "-"], input=text.encode(), cwd=root, check=True, capture_output=True
    )


def test_git_applies_a_patch_and_takes_it_back(root):
    made = make_patch(patch_of(change(), TEST_CHANGE), root, "vLLM 9")
    assert (made.added, made.added_to_tests, made.removed) == (6, 0, 4)
    assert made.left_out == (TEST,)
    assert (root / FILE).read_text() == SOURCE
    apply(root, made)
    assert (root / FILE).read_text() == CHANGED
    assert "has self.new already, so it is patched" in refusal(root, change())


def test_a_copy_with_tests_gets_tests(root):
    (root / "tests").mkdir()
    (root / TEST).write_text("def test_total(): ...\n")
    made = make_patch(patch_of(change(), TEST_CHANGE), root, "vLLM 9")
    assert (made.added, made.added_to_tests, made.left_out) == (9, 3, ())
    apply(root, made)
    assert (root / TEST).read_text().endswith("...\n\n\ndef test_new(): ...\n")


NESTED = """\
def size(flag):
    kept = flag
    if flag:
        # Many.
        kept = 1
        kept += 1

    else:
        kept = [
            2,
        ]
    return kept
"""


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        (binding("kept"), (1, 2)),
        (binding("kept", 1), (4, 5)),
        (binding("kept", 2), (8, 11)),
        (body_behind("kept"), (4, 6)),
    ],
)
def test_places_at_any_depth(place, lines):
    assert place(definitions(NESTED)["size"]) == lines


def test_line_ends_of_the_copy_stay(root):
    (root / FILE).write_bytes(SOURCE.replace("\n", "\r\n").encode())
    digests = {"total": digest_of(SOURCE, definitions(SOURCE)["total"])}
    apply(root, make_patch(patch_of(change(digests=digests)), root, "vLLM 9"))
    assert (root / FILE).read_bytes() == CHANGED.replace("\n", "\r\n").encode()


def test_a_definition_that_was_changed_is_refused(root):
    known = definitions(SOURCE)
    digests = {name: digest_of(SOURCE, known[name]) for name in ("Engine.double", "total")}
    make_patch(patch_of(change(digests=digests)), root, "vLLM 9")
    (root / FILE).write_text(SOURCE.replace("LIMIT = 3", "LIMIT = 4"))
    make_patch(patch_of(change(digests=digests)), root, "vLLM 9")
    (root / FILE).write_text(SOURCE.replace("@property", "@cached_property"))
    message = refusal(root, change(digests=digests))
    assert f"{FILE}: Engine.double was changed: its digest is " in message
    assert f"in vLLM 9 {digests['Engine.double']}; pass an unchanged copy" in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("Engine.triple", after, ""), f"{FILE} has no Engine.triple; expected the file of"),
        (
            Edit("total", after_binding("numbers"), ""),
            f"{FILE}: total lacks an assignment to numbers; expected the file of vLLM 9",
        ),
        (Edit("total", binding("sizes", 1), ""), "total lacks assignment 2 to sizes; expected"),
        (
            Edit("total", body_behind("sizes"), ""),
            "total lacks an if behind the assignment to sizes",
        ),
        (
            Edit("Engine.__init__", from_binding_to_return("self.size"), ""),
            f"{FILE}: Engine.__init__ lacks a return at its end",
        ),
    ],
)
def test_a_missing_anchor_is_named(root, edit, message):
    assert message in refusal(root, change(edit))


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"def f(:\n", "does not parse"),
        (b"def f(): ...", "does not end with a line end"),
        (b"# \xff\n", "byte 2 is not UTF-8"),
        (None, "does not exist; expected that file of vLLM 9"),
    ],
)
def test_a_file_that_is_not_the_release_s_is_named(root, contents, message):
    path = root / FILE
    if contents is None:
        path.unlink()
    else:
        path.write_bytes(contents)
    found = refusal(root, change())
    assert message in found
    assert FILE in found
