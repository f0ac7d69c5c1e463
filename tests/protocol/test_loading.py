"""How suites are found and loaded, and what is said of those that are wrong."""

from __future__ import annotations

import os
import pickle
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
from support.forked import forked_suites
from support.suites import changed

from bt_bench.base.errors import UsageError
from bt_bench.protocol import (
    DEFAULT_REF,
    SuiteRef,
    default_suite,
    driver_of,
    find_suite,
    info_of,
    load_suite,
    loaded_suites,
    ref_of,
    shipped_suites,
    suite_of,
)
from bt_bench.variants.catalogue import find_variants, load_apart

TAG = sys.implementation.cache_tag
OTHERS = "from bt_bench.suites.block_tables.workloads import UniformParameters as OTHERS\n"
PART, HELPER = "deep/er/part.py", "lib/helper.py"


@pytest.fixture(autouse=True)
def _forked():
    with forked_suites():
        yield


def test_a_name_is_a_suite_that_comes_with_the_tool(tmp_path):
    assert "block_tables" in shipped_suites()
    assert find_suite("block_tables", tmp_path) == DEFAULT_REF
    assert load_suite(DEFAULT_REF) is default_suite()


def test_a_folder_is_a_users_suite(folder, tmp_path, monkeypatch, suites_run_here):
    ref = find_suite("mine", tmp_path)
    assert ref == SuiteRef(name="mine", folder=folder)
    monkeypatch.chdir(tmp_path)
    assert find_suite("./mine", Path.cwd()) == find_suite(str(folder), Path("/")) == ref
    suite = load_suite(ref)
    assert suite.name == "copying"
    assert suite is load_suite(ref)
    assert ref_of(type(suite)) == ref


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere", "--suite nowhere: no such folder, nor a suite of that name; expected one of"),
        ("block_table", "did you mean 'block_tables'"),
        ("empty", "--suite empty: the folder holds no suite.py"),
        ("suite.py", "--suite suite.py: is a file; expected the folder of a suite"),
        ("file.txt", "--suite file.txt: is a file; expected the folder of a suite"),
        ("folder.py", "--suite folder.py: is a folder named like a Python file"),
        ("a\0b", "not a path of a folder"),
        ("loop", "--suite loop: no such folder"),
    ],
)
def test_what_is_no_suite_is_refused(tmp_path, given, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "suite.py").write_text("")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=said):
        find_suite(given, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("SUITE = Copying()", "SUITE = Copying", "SUITE is <class .*; expected an instance"),
        ("SUITE = Copying()", "", "SUITE is None; expected an instance of a class of Suite"),
        ("SUITE = Copying()", "1 / 0", r"suite.py:\d+: .*does not import: ZeroDivisionError"),
        ("SUITE = Copying()", "SUITE = (", r"suite.py:\d+: .*does not import: SyntaxError"),
        ("SUITE = Copying()", "raise SystemExit(3)", r"suite.py:\d+: .*SystemExit: 3"),
        ('name = "copying"', 'name = "Copying"', "name is 'Copying'; expected lower-case"),
        ('title = "Copies"', 'title = ""', "SUITE has no title; expected one"),
        ("protocol = 1", "protocol = 7", "protocol is 7; expected 1: this bt-bench"),
        ("protocol = 1", "", "protocol is None; expected 1"),
        ('Operation("copy", title="Copy")', '"copy"', "operations has 'copy'; expected Operation"),
        ('Operation("copy", title="Copy")', 'Operation("copy")', "'copy' has no title"),
        (
            'Operation("copy", title="Copy")',
            'Operation("copy", title="Copy", path=("other",))',
            "path has 'other'; expected names of operations",
        ),
        (
            'Operation("copy", title="Copy"),',
            'Operation("a", title="A", on_host=True), Operation("b", title="B", on_host=True),',
            "several operations are on_host; expected at most one",
        ),
        (
            "operations = (Operation(",
            "operations = [0] or (Operation(",
            "operations is .0.; expect",
        ),
        (
            'Operation("copy", title="Copy"),)',
            'Operation("copy", title="Copy", stages=True),)',
            "has stages=True, and no operation is on_host",
        ),
        (
            'Operation("copy", title="Copy"),)',
            'Operation("copy", title="Copy", on_host=True),)',
            "is on_host; expected stages=True",
        ),
        (
            'Operation("copy", title="Copy"),)',
            'Operation("copy", title="C"), Operation("fast", title="F", path=("copy",)))',
            "'fast' is not in its own path, copy; expected it there",
        ),
        (
            'package = "copy_kernels"',
            'package = "copy_kernels"\n    defaults = (Operation("other", title="O"),)',
            "defaults has 'other'; expected some of copy",
        ),
        (
            "parameters = (Tokens,)",
            f"{OTHERS}    parameters = (OTHERS,)",
            "is of suite 'block_tables'; expected",
        ),
        ('Literal["tokens"]', "str", "workload is <class 'str'>; expected its name"),
    ],
)
def test_what_is_wrong_with_a_suite_is_said(folder, old, new, said):
    changed(folder, "suite.py", old, new)
    with pytest.raises(UsageError, match=said) as caught:
        load_suite(find_suite(str(folder), folder))
    assert str(folder / "suite.py") in str(caught.value)


def test_parameters_of_another_suite_may_be_imported(folder):
    changed(folder, "suite.py", "class Copying", f"{OTHERS}class Copying")
    load_suite(find_suite(str(folder), folder))


def test_an_error_in_another_module_names_that_one(folder):
    (folder / "sizes.py").write_text("LIMIT = 3\nLIMIT['x']\n")
    changed(folder, "suite.py", "class Copying", "from . import sizes\nclass Copying")
    with pytest.raises(UsageError, match=r"sizes.py:2: the suite does not import: TypeError"):
        load_suite(find_suite(str(folder), folder))


def test_a_fresh_process_gets_parameters_of_a_users_suite(folder, tmp_path, suites_run_here):
    suite = load_suite(find_suite(str(folder), folder))
    parameters = suite.kinds["tokens"](workload="tokens", rows=3)
    assert pickle.loads(pickle.dumps(parameters)) == parameters
    assert suite_of(parameters) is suite
    (tmp_path / "it").write_bytes(pickle.dumps(parameters))
    code = (
        "import pickle, sys\n"
        "from bt_bench.protocol import run_suites_here\n"
        "run_suites_here()\n"
        "found = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert 'torch' not in sys.modules\n"
        "print(type(found).__name__, found.rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "it")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Tokens 3\n"


def test_a_class_of_no_suite_is_named():
    with pytest.raises(LookupError, match="Path is of no suite"):
        ref_of(Path)


def test_the_digest_is_of_the_suite_and_not_of_its_kernels(folder):
    suite = load_suite(find_suite(str(folder), folder))
    before = info_of(suite)
    variant = folder / "copy_kernels" / "variants" / "baseline.py"
    variant.write_text(variant.read_text() + "\n# changed\n")
    assert info_of(suite) == before
    (folder / "driver.py").write_text((folder / "driver.py").read_text() + "\n# changed\n")
    changed = info_of(suite)
    assert changed.source_sha256 != before.source_sha256
    assert info_of(default_suite()).operations[0].on_host
    # What is no file, or leads to none, is no part of it, and does not end whoever asks.
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "dead.py").symlink_to("nowhere")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    assert info_of(suite) == changed


def test_the_digest_of_a_suite_covers_the_suite_that_it_derives_from(monkeypatch):
    derived = load_suite(SuiteRef(name="batch_preparation"))
    before = info_of(derived).source_sha256
    read = Path.read_bytes

    def changed_bytes(path):
        return read(path) + b"# changed" * (path.name == "scheduler.py")

    monkeypatch.setattr(Path, "read_bytes", changed_bytes)
    assert info_of(derived).source_sha256 != before


def test_suites_share_a_package_of_kernels():
    tables, batches = (load_suite(SuiteRef(name=name)) for name in shipped_suites()[::-1])
    assert tables.package == batches.package
    assert find_variants(suite=tables).keys() >= {"reference", "fused"}
    found = find_variants(suite=batches)
    assert found.keys() >= {"reference", "separate", "staged_copy"}
    assert found["separate"].source_sha256() != found["staged_copy"].source_sha256()
    apart = load_apart(found["separate"])
    assert apart.__module__ == "bt_kernels.batch_inputs.variants.separate"
    assert apart is not load_apart(found["separate"])


@pytest.mark.parametrize(
    "module",
    [
        "bt_bench.protocol",
        "bt_bench.suites.block_tables.suite",
        "bt_bench.suites.batch_preparation.suite",
    ],
)
def test_torch_is_not_loaded_for_a_suite(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["suite.py", "driver.py", "deep/er/part.py", "lib/helper.py"])
def test_no_bytecode_stands_for_a_source(folder, tmp_path, monkeypatch, suites_run_here, name):
    """Which may be tracked and say that nobody need compare the two; in the folder and beside."""
    texts = {each: f"{each[:-3].replace('/', '_')} = 'source'\n" for each in (name, PART, HELPER)}
    for each, text in texts.items():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        path = folder / each
        path.write_text((path.read_text() if path.exists() else "") + text)
    with (folder / "suite.py").open("a") as file:
        file.write("from .deep.er import part\nimport helper\n")
    sys.modules.pop("helper", None)
    monkeypatch.syspath_prepend(folder / "lib")
    other = tmp_path / "other.py"
    other.write_text((folder / name).read_text().replace("'source'", "'bytecode'"))
    py_compile.compile(
        str(other),
        cfile=str((folder / name).parent / f"__pycache__/{Path(name).stem}.{TAG}.pyc"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    suite = load_suite(find_suite("mine", tmp_path))
    driver_of(suite)
    module = sys.modules[type(suite).__module__]
    loaded = {
        "suite.py": module,
        "driver.py": sys.modules[module.__name__.replace(".suite", ".driver")],
        PART: module.part,
        HELPER: module.helper,
    }
    assert getattr(loaded[name], name[:-3].replace("/", "_")) == "source"
    del sys.modules["helper"]


def test_bytecode_without_a_source_is_refused(folder, suites_run_here):
    py_compile.compile(str(folder / "driver.py"), cfile=str(folder / "driver.pyc"))
    (folder / "driver.py").unlink()
    with pytest.raises(UsageError, match=r"driver\.pyc has no source beside it"):
        driver_of(load_suite(find_suite(str(folder), folder)))


def test_a_suite_that_does_not_load_is_not_among_those_that_are(tmp_path, suites_run_here):
    """Errors are located by the packages of these, also that of a suite that has just failed."""
    (tmp_path / "suite.py").write_text("raise RuntimeError('never')\n")
    before = loaded_suites()
    with pytest.raises(UsageError, match="never"):
        load_suite(SuiteRef(name="mine", folder=tmp_path))
    assert loaded_suites() == before
