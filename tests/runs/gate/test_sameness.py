"""What is equal beyond doubt, and so needs no measuring: nothing short of equal trees."""

from __future__ import annotations

import inspect
import lzma
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
from support.repositories import git, write

from bt_bench.base.errors import UsageError
from bt_bench.runs.gate.sameness import compare_trees
from bt_bench.runs.gate.trees import Location, Tree
from bt_bench.variants import encodable

FILES = {"mine/one.py": "x = 1\n", "mine/deep/data.json": "{}", "README": "text"}


@pytest.fixture
def pair(tmp_path):
    """Two trees with the same files."""
    trees = []
    for name in ("base", "head"):
        write(tmp_path / name, FILES)
        top = (tmp_path / name).resolve()
        trees.append(Tree(name, "0" * 40, False, top, Location(top, None, (Path("mine"),))))
    return trees


def how(pair, **options):
    same = compare_trees(*pair, built=False, **options)
    assert not same.proved
    return same.how


def test_equal_trees(pair):
    same = compare_trees(*pair, built=False)
    assert same.proved
    assert same.how == (
        "Nothing is measured, since the trees are equal: 3 files, byte by byte. Files that git "
        "ignores are in neither, and no --build ran."
    )


def test_what_was_built_is_never_equal(pair):
    same = compare_trees(*pair, built=True)
    assert not same.proved
    assert same.how == "Everything is measured, since --build ran in both trees."


@pytest.mark.parametrize("name", ["mine/one.py", "mine/deep/data.json", "README"])
def test_any_file_that_differs_counts(pair, name):
    path = pair[1].top / name
    path.write_text(path.read_text().swapcase() + " ")
    assert how(pair) == f"Everything is measured, since the trees differ: {name}."
    path.write_text(FILES[name])
    assert compare_trees(*pair, built=False).proved


def test_a_file_of_the_same_size_and_time(pair):
    path = pair[1].top / "README"
    path.write_text("txet")
    assert "the trees differ: README." in how(pair)


def test_files_that_git_knows_nothing_of(pair):
    write(pair[1].top, {"build/lib.so": "x", ".gitignore": "build\n"})
    write(pair[0].top, {".gitignore": "build\n"})
    assert "differ: build (only in the head)." in how(pair)
    write(pair[0].top, {"gone.json": "x"})
    assert "build (only in the head), gone.json (only in the base)." in how(pair)
    for name in "abcdef":
        write(pair[1].top, {name: "x"})
    assert how(pair).endswith(
        "a (only in the head), b (only in the head), build (only in the head) and more."
    )


def test_what_can_be_executed(pair):
    (pair[1].top / "README").chmod(0o755)
    assert "differ: README." in how(pair)


def test_an_empty_folder(pair):
    (pair[1].top / "flag").mkdir()
    assert "flag (only in the head)" in how(pair)


def test_a_file_in_the_place_of_a_folder(pair):
    write(pair[0].top, {"x/y": ""})
    write(pair[1].top, {"x": ""})
    assert "differ: x." in how(pair)


@pytest.mark.parametrize(
    ("target", "equal"),
    [("mine/one.py", True), ("../outside", False), ("/etc/hostname", True), ("..", False)],
)
def test_symlinks(pair, target, equal):
    """A relative one that leads out of its tree leads to another place from another tree."""
    for tree in pair:
        (tree.top / "link").symlink_to(target)
    assert compare_trees(*pair, built=False).proved == equal
    (pair[1].top / "link").unlink()
    (pair[1].top / "link").symlink_to("README")
    assert "differ: link." in how(pair)


def to_a_pipe(top):
    os.mkfifo(top / "pipe")


def to_a_socket(top):
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(os.path.relpath(top / "socket"))  # an absolute path may be too long for it


# What git can track, or what a checkout can hold, that is neither a file nor a folder; or is odd.
ODD = {
    "a loop": lambda top: (top / "odd").symlink_to("odd"),
    "a loop of two": lambda top: [
        (top / a).symlink_to(b) for a, b in (("odd", "odder"), ("odder", "odd"))
    ],
    "a loop in a folder": lambda top: (top / "mine/odd.py").symlink_to("../mine/odd.py/x"),
    "a dangling link": lambda top: (top / "odd").symlink_to("nowhere"),
    "a link to a device": lambda top: (top / "odd").symlink_to("/dev/stdin"),
    "a link to a folder": lambda top: (top / "odd").symlink_to("mine"),
    "a name that is no text": lambda top: Path(os.fsdecode(bytes(top) + b"/\xff.py")).touch(),
    "a name of lines": lambda top: (top / "a\nb\x1b[1m").touch(),
    "a name with an end": lambda top: (top / " odd ").touch(),
    "a folder like a file": lambda top: (top / "mine/odd.py").mkdir(),
    "a long name": lambda top: (top / ("n" * 255)).touch(),
    "an empty submodule": lambda top: (top / "sub").mkdir(),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_things_that_are_alike_are_equal_and_others_are_named(pair, what):
    for tree in pair:
        ODD[what](tree.top)
    assert compare_trees(*pair, built=False).proved
    (pair[1].top / "README").write_text("txet")
    assert "differ: README." in how(pair)


@pytest.mark.parametrize("what", ODD)
def test_odd_things_that_one_side_has_are_named(pair, what):
    before = {path.name for path in pair[1].top.iterdir()}
    ODD[what](pair[1].top)
    said = how(pair)
    names = {path.name for path in pair[1].top.iterdir()} - before or {"mine/odd.py"}
    assert f"{encodable(min(names))} (only in the head)" in said


def test_trees_deeper_than_the_stack_of_python(pair):
    deep = Path(*"d" * 300)
    for tree in pair:
        (tree.top / deep).mkdir(parents=True)
    (pair[1].top / deep / "x").touch()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack()) + 200)
        said = how(pair)
    finally:
        sys.setrecursionlimit(limit)
    assert f"{deep}/x (only in the head)" in said


def test_a_link_in_place_of_a_file_and_a_file_in_place_of_a_link(pair):
    for tree, other in (pair, pair[::-1]):
        (tree.top / "odd").symlink_to("odd")
        (other.top / "odd").write_text("")
        assert "differ: odd." in how(pair)
        (tree.top / "odd").unlink()
        (other.top / "odd").unlink()


@pytest.mark.parametrize("make", [to_a_pipe, to_a_socket])
def test_what_cannot_be_compared_is_not_equal(pair, make, monkeypatch):
    for tree in pair:
        monkeypatch.chdir(tree.top)
        make(tree.top)
    assert "differ: pipe." in how(pair).replace("socket", "pipe")


@pytest.mark.parametrize("name", ["README", "mine"])
def test_what_cannot_be_read_is_not_equal(pair, name, monkeypatch):
    """Whoever runs the tests may read all, so that reading is made to fail."""

    def failing(real):
        def read(path, *arguments):
            if os.fspath(path) == str(pair[1].top / name):
                raise PermissionError(13, "Permission denied")
            return real(path, *arguments)

        return read

    monkeypatch.setattr(os, "listdir", failing(os.listdir))
    monkeypatch.setattr(Path, "open", failing(Path.open))
    assert f"differ: {name} (not readable: Permission denied)." in how(pair)


def test_what_git_keeps_for_itself_is_passed_over(pair):
    git(pair[1].top, "init", "-q")
    write(pair[0].top, {".git": "gitdir: elsewhere\n"})
    assert compare_trees(*pair, built=False).proved


RUN = {
    "config.yaml": "name: it\n",
    "comparison.md": "# It\n",
    "one.json": '{\n "schema_version": 3,\n "run_id": "it"}',
}
GATE = {
    "recording.json": '{"schema_version":2,"created":"now"}',
    "verdicts.json": '{"schema_version":1,"x":0}',
}


@pytest.mark.parametrize(
    "files",
    [
        {f"reports/it/{name}": text for name, text in RUN.items()},
        {f"reports/gate/{name}": text for name, text in GATE.items()},
        {f"mine/out/{name}": text for name, text in RUN.items()},
        {"reports/a/one.json": RUN["one.json"], "reports/b/verdicts.json": GATE["verdicts.json"]},
    ],
    ids=["run", "gate", "elsewhere", "several"],
)
def test_results_of_the_tool_are_passed_over_and_named(pair, files):
    write(pair[1].top, files)
    same = compare_trees(*pair, built=False)
    assert same.proved
    folder = next(iter(files)).rpartition("/")[0]
    shown = folder if folder.startswith("mine") else "reports"
    assert f", and nothing beside them but results of bt-bench ({shown}). Files that" in same.how


def test_packed_results_are_passed_over_too(pair):
    folder = pair[1].top / "reports" / "it"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(RUN["config.yaml"])
    for name, text in {"one.json": RUN["one.json"], **GATE}.items():
        (folder / f"{name}.xz").write_bytes(lzma.compress(text.encode()))
    assert compare_trees(*pair, built=False).proved
    (folder / "data.json.xz").write_bytes(lzma.compress(b"{}"))
    assert how(pair).endswith("the trees differ: reports (only in the head).")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.json", "{}"),
        ("data.json", '{"schema_version": 1, "rows": 3}'),
        ("data.json", '{"rows": 3, "schema_version": 1, "run_id": "it"}'),
        ("helper.py", "x = 1\n"),
        ("deep/helper.py", "x = 1\n"),
        ("one.json.py", RUN["one.json"]),
        ("notes.md", "text"),
        ("verdicts.json", "{}"),
    ],
)
def test_anything_beside_results_counts(pair, name, text):
    write(pair[1].top, {f"reports/it/{file}": of for file, of in RUN.items()})
    write(pair[1].top, {f"reports/it/{name}": text})
    assert how(pair).endswith("the trees differ: reports (only in the head).")


def test_results_that_were_committed_or_are_links_or_none_count(pair):
    write(pair[0].top, {"reports/it/one.json": RUN["one.json"]})
    assert "reports (only in the base)" in how(pair)
    shutil.rmtree(pair[0].top / "reports")
    (pair[1].top / "reports").mkdir()
    assert "reports (only in the head)" in how(pair)
    write(pair[1].top, {"reports/comparison.md": RUN["comparison.md"]})
    assert "reports (only in the head)" in how(pair)  # no result
    write(pair[1].top, {"reports/one.json": RUN["one.json"]})
    assert compare_trees(*pair, built=False).proved
    (pair[1].top / "reports" / "two.json").symlink_to(pair[1].top / "reports" / "one.json")
    assert "reports (only in the head)" in how(pair)


def test_results_that_were_added_count(pair):
    write(pair[1].top, {"reports/one.json": RUN["one.json"]})
    git(pair[1].top, "init", "-q")
    assert compare_trees(*pair, built=False).proved
    git(pair[1].top, "add", "-A")
    assert "differ: reports (only in the head)." in how(pair)


def test_where_git_cannot_say_what_it_tracks_nothing_is_passed_over(pair):
    write(pair[1].top, {".git/HEAD": "damaged"})
    with pytest.raises(UsageError, match="git: fatal: not a git repository"):
        compare_trees(*pair, built=False)


def test_a_link_to_what_one_tree_alone_has_counts(pair):
    """Where it is a result, nothing else tells of it."""
    for tree in pair:
        (tree.top / "mine/tuned.json").symlink_to("../reports/one.json")
    assert compare_trees(*pair, built=False).proved
    write(pair[1].top, {"reports/one.json": RUN["one.json"]})
    assert how(pair) == "Everything is measured, since the trees differ: mine/tuned.json."
