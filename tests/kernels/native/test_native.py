"""Helpers in C: of a wheel or compiled where they can be, and done without where they cannot."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bt_kernels import native
from bt_kernels.staging import StagedWrites, staged_writes

SOURCES = sorted(Path(native.__file__).parent.glob("*.c"))
HEADERS = Path(sysconfig.get_path("include"))
COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
CAN_COMPILE = COMPILER is not None and (HEADERS / "Python.h").is_file()

SMALL = """
#include <Python.h>
static PyModuleDef_Slot slots[] = {{0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "small", "Of a test.", 0, 0, slots};
PyMODINIT_FUNC PyInit_small(void) { return PyModuleDef_Init(&definition); }
"""

needs_compiler = pytest.mark.skipif(not CAN_COMPILE, reason="no C compiler or no Python.h")


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch):
    monkeypatch.delenv(native.SWITCH, raising=False)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder of C files, and an empty cache for what they are compiled to."""
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "small.c").write_text(SMALL)
    native._outcome.cache_clear()
    yield tmp_path
    native._outcome.cache_clear()


@needs_compiler
@pytest.mark.parametrize("name", [path.stem for path in SOURCES])
def test_it_is_there_where_there_is_a_compiler(name):
    assert native.why_not(name) is None
    assert native.load(name) is native.load(name) is not None


def test_the_switch_turns_it_off(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")
    assert native.load("staged") is None
    assert native.why_not("staged") == "the environment has BT_KERNELS_NATIVE=0; unset it"
    assert staged_writes(native=True) is StagedWrites


@needs_compiler
def test_a_python_without_its_lock_keeps_it_off(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert native.load("staged") is not None
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False)
    assert native.load("staged") is None
    assert "runs without its global lock" in native.why_not("staged")


def test_a_subinterpreter_does_without(monkeypatch, tmp_path):
    assert not native._is_subinterpreter()
    said = tmp_path / "said"
    lines = [
        "import sys",
        f"sys.path[:] = {sys.path!r}",
        "from bt_kernels import native",
        'said = f\'{native.load("staged")}: {native.why_not("staged")}\'',
        f"open({str(said)!r}, 'w').write(said)",
    ]
    # In a process of its own, since numpy and others may not bear what comes first.
    script = (
        "try:\n    import _interpreters as inner\nexcept ImportError:\n"
        "    import _xxsubinterpreters as inner\n"
        f"inner.run_string(inner.create(), {chr(10).join(lines)!r})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert said.read_text().startswith("None: this is a subinterpreter")


def test_python_is_used_where_it_is_asked_for():
    assert staged_writes(native=False) is StagedWrites
    assert (staged_writes(native=True) is StagedWrites) is (native.load("staged") is None)


@needs_compiler
def test_it_is_compiled_once_and_kept(folder, monkeypatch):
    assert native.load("small").__name__ == "small"
    native._outcome.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native.load("small") is not None


@needs_compiler
@pytest.mark.parametrize("left", [0, 7, 0.1, 0.5, -1])
def test_what_is_damaged_is_compiled_anew(left, folder, monkeypatch):
    """A file that was cut off ended the process with SIGBUS where it was mapped beyond its end."""
    assert native.load("small") is not None
    (built,) = (folder / "cache").rglob("small*")
    whole = built.read_bytes()
    # Not the same file: it is loaded.
    damaged = folder / "damaged" / built.relative_to(folder / "cache")
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(whole[: int(left * len(whole)) if 0 < left < 1 else left])
    real, imported = native._imported, []

    def noting(name, path):
        imported.append(Path(path).read_bytes())
        return real(name, path)

    monkeypatch.setattr(native, "_imported", noting)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "damaged"))
    native._outcome.cache_clear()
    assert native.load("small") is not None
    assert imported == [damaged.read_bytes()] == [whole]


@pytest.fixture
def prebuilt(folder, monkeypatch):
    """The file of a wheel beside the sources; from here on there is neither compiler nor Triton."""
    file = folder / native.file_of("small")
    binary = native.compiled(folder / "small.c")
    file.write_bytes(native.sealed(binary, native.key_of("small")))
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", None)
    return file


@needs_compiler
def test_that_of_a_wheel_needs_neither_compiler_nor_triton(prebuilt):
    module = native.load("small")
    assert module.__file__ == str(prebuilt)
    native._outcome.cache_clear()
    assert native.load("small") is not module


@needs_compiler
@pytest.mark.parametrize("change", ["source", "header", "flags", "suffix", "platform"])
def test_that_of_a_wheel_is_not_loaded_if_it_is_of_something_else(change, prebuilt, monkeypatch):
    if change == "source":
        (prebuilt.parent / "small.c").write_text(SMALL + "/* changed */")
    elif change == "header":
        (prebuilt.parent / "new.h").write_text("/* new */")
    elif change == "flags":
        monkeypatch.setattr(native, "_FLAGS", (*native._FLAGS, "-O1"))
    elif change == "suffix":
        monkeypatch.setattr(native, "EXTENSION_SUFFIXES", [".cpython-399-x86_64-linux-gnu.so"])
        prebuilt.rename(prebuilt.with_name(native.file_of("small")))
    else:
        monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-riscv64")
    assert native.load("small") is None
    assert "triton.runtime.cache" in native.why_not("small")


@needs_compiler
@pytest.mark.parametrize("left", [0, 7, 0.5, -1])
def test_that_of_a_wheel_is_not_loaded_if_it_is_damaged(left, prebuilt):
    whole = prebuilt.read_bytes()
    prebuilt.unlink()  # not overwritten: it may be mapped
    prebuilt.write_bytes(whole[: int(left * len(whole)) if 0 < left < 1 else left])
    assert native.load("small") is None


@needs_compiler
def test_that_of_a_wheel_for_a_newer_c_library_is_compiled_here(prebuilt, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(native, "_FOLDER", prebuilt.parent)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(prebuilt.parent / "cache"))
    real = native._imported

    def refusing(name, path):
        if path == str(prebuilt):
            raise ImportError("version `GLIBC_2.99' not found")
        return real(name, path)

    monkeypatch.setattr(native, "_imported", refusing)
    assert Path(native.load("small").__file__).is_relative_to(prebuilt.parent / "cache")


@needs_compiler
@pytest.mark.parametrize(("owner", "is_taken"), [("mine", True), ("root's", True), ("hers", False)])
def test_what_another_user_has_left_in_the_cache_is_compiled_anew(
    owner, is_taken, folder, monkeypatch
):
    assert native.load("small") is not None
    (built,) = (folder / "cache").rglob("small*")
    before = built.stat().st_ino
    owners = {"mine": os.geteuid(), "root's": 0, "hers": os.geteuid() + 1}
    monkeypatch.setattr(native, "_owner_of", lambda _path: owners[owner])
    native._outcome.cache_clear()
    assert native.load("small") is not None
    assert (built.stat().st_ino == before) is is_taken


@needs_compiler
@pytest.mark.timeout(60)
def test_what_is_no_file_in_the_cache_is_not_waited_for(folder, monkeypatch):
    """Reading a FIFO that nobody writes to never ends."""
    assert native.load("small") is not None
    (built,) = (folder / "cache").rglob("small*")
    there = folder / "other" / built.relative_to(folder / "cache")
    there.parent.mkdir(parents=True)
    os.mkfifo(there)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "other"))
    native._outcome.cache_clear()
    assert native.load("small") is not None
    assert there.is_file()


@needs_compiler
def test_a_file_that_does_not_compile_is_done_without_in_silence(folder, capfd):
    (folder / "small.c").write_text(SMALL + "int wrong = nowhere;\n")
    assert native.load("small") is None
    assert "small.c does not compile" in native.why_not("small")
    assert "nowhere" in native.why_not("small")
    assert capfd.readouterr() == ("", "")


def test_so_it_is_without_a_compiler(folder, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    assert native.load("small") is None
    said = native.why_not("small")
    assert "no C compiler" in said or "Python.h is not in" in said


def test_so_it_is_with_a_compiler_that_is_not_there(folder, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    said = native.why_not("small")
    assert "CC is no-such-compiler -O1, which was not found" in said or "Python.h" in said


def test_why_the_driver_does_not_launch(monkeypatch):
    for missing, said in ((None, None), ("cuAny", "the CUDA driver lacks cuAny")):
        launcher = SimpleNamespace(lacking=lambda missing=missing: missing)
        monkeypatch.setattr(native, "load", {"launcher": launcher}.get)
        assert native.why_not_direct() == said
    monkeypatch.setattr(native, "load", lambda _: None)
    monkeypatch.setattr(native, "why_not", lambda name: f"no {name}")
    assert native.why_not_direct() == "no launcher"


def test_so_it_is_without_headers(folder, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder / name))
    assert native.load("small") is None
    assert "Python.h is not in" in native.why_not("small")


@needs_compiler
def test_so_it_is_with_a_cache_that_nothing_may_run_from(folder, monkeypatch):
    """As of a folder for temporary files that is mounted noexec."""

    def refuse(_name, path):
        raise ImportError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(native, "_imported", refuse)
    assert native.why_not("small").startswith("ImportError: ")
    native._outcome.cache_clear()
    monkeypatch.setattr("os.statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    assert re.fullmatch(
        f"{folder}/cache/[A-Z0-9]+ is on a file system that is mounted noexec; "
        "set TRITON_CACHE_DIR to a folder on another one",
        native.why_not("small"),
    )


def test_so_it_is_with_a_cache_that_cannot_be_written(folder, monkeypatch):
    (folder / "cache").write_text("a file in its place")
    monkeypatch.setattr(native, "compiled", lambda _source: b"")
    reason = native.why_not("small")
    assert reason.endswith("; set TRITON_CACHE_DIR to a folder that can be written")
    assert str(folder / "cache") in reason


def test_so_it_is_with_a_triton_that_keeps_nothing(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", None)
    assert native.load("small") is None
    assert "triton.runtime.cache" in native.why_not("small")


@needs_compiler
def test_processes_may_compile_at_a_time(folder):
    code = (
        "import importlib.util, pathlib, sys\n"
        f"spec = importlib.util.spec_from_file_location('native', {native.__file__!r})\n"
        "native = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(native)\n"
        f"native._FOLDER = pathlib.Path({str(folder)!r})\n"
        "print(native.why_not('small'))\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in started] == ["None\n"] * 3


@needs_compiler
def test_copies_share_nothing():
    """The harness loads each variant with a copy of `bt_kernels` of its own."""
    modules = [native._built("staged") for _ in range(2)]
    kinds = [module.StagedWrites for module in modules]
    assert kinds[0] is not kinds[1]
    num_blocks = np.zeros((1, 4), dtype=np.int32)
    first, second = (kind([8], num_blocks) for kind in kinds)
    assert first.append(1, [[5]], False, False)
    assert not second
    del modules, kinds, first
    gc.collect()
    assert second.append(1, [[6]], False, False)
    assert second.intervals() == [(0, 1, 1, [6])]


@needs_compiler
def test_nothing_leaks():
    kind = staged_writes(native=True)
    num_blocks = np.zeros((1, 4), dtype=np.int32)
    before = sys.getrefcount(num_blocks), sys.getrefcount(kind)
    staged = kind([8], num_blocks)
    value = 123_456_789
    ids, rows, overwrite = [value, np.int64(7)], [1], [True]
    view = np.zeros(64, dtype=np.int32)
    kept = (value, ids, ids[1], rows, overwrite, view)
    counts = [sys.getrefcount(each) for each in kept]
    for _ in range(20):
        assert staged.append(1, [ids], True, False)
        assert staged.append_many(rows, [[ids]], overwrite, False)
        assert not staged.append(9, [ids], False, False)
        assert not staged.append(1, [[*ids, None]], False, False)
        assert not staged.append_many(rows, [[ids], []], overwrite, False)
        assert not staged.append_many(rows, [ids], overwrite, False)
        staged.pack(memoryview(view), 0)
        staged.pack_step(view, 16, 1)
        with pytest.raises(ValueError, match="view has"):
            staged.pack(view, 60)
        staged.intervals()
    assert counts == [sys.getrefcount(each) for each in kept]
    with pytest.raises(ValueError, match="num_blocks"):
        kind([8, 8], num_blocks)
    del staged
    assert before == (sys.getrefcount(num_blocks), sys.getrefcount(kind))


@needs_compiler
@pytest.mark.parametrize("path", SOURCES, ids=[path.name for path in SOURCES])
def test_the_compiler_has_nothing_to_say(path):
    flags = ("-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
    ended = subprocess.run(
        [*native._compiler(), *flags, f"-isystem{HEADERS}", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_compiler
def test_a_header_that_changes_has_it_compiled_anew(folder):
    (folder / "small.c").write_text('#include "said.h"\n' + SMALL)
    (folder / "said.h").write_text("/* one */\n")
    assert native.load("small") is not None
    (folder / "said.h").write_text("/* another */\n")
    native._outcome.cache_clear()
    assert native.load("small") is not None
    assert len(list((folder / "cache").rglob("small*.so"))) == 2
