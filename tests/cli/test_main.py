"""Hold that failures outside of a command end like its own: only a verdict has exit code 1."""

from __future__ import annotations

import errno
import io
import os

import pytest

from bt_bench import cli
from bt_bench.base.errors import ExitCode

GONE = "bt-bench: error: the working directory no longer exists; change to one that does, with cd\n"


@pytest.fixture
def gone(tmp_path, monkeypatch):
    """A working directory that somebody has deleted."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    yield
    os.chdir(tmp_path)  # `monkeypatch` does it too late for other fixtures


@pytest.fixture
def ended(monkeypatch):
    """Call `main` with arguments, or with a program that raises; return the exit code."""

    def end(*arguments: str, raising: BaseException | None = None) -> object:
        monkeypatch.setattr("sys.argv", ["bt-bench", *arguments])
        if raising is not None:

            def fail(**_options: object) -> None:
                raise raising

            monkeypatch.setattr("bt_bench.cli.app.app", fail)
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code

    return end


@pytest.mark.parametrize(
    "arguments",
    [
        ("gate", "--config", "quick", "--base", "HEAD"),
        ("list",),
        ("env",),
        ("sweep", "quick", "--out", "run"),
        ("--suite", "mine", "list"),
    ],
    ids=" ".join,
)
def test_a_working_directory_that_is_gone(gone, ended, capsys, arguments):
    assert ended(*arguments) == ExitCode.USAGE
    assert capsys.readouterr().err == GONE


def test_what_needs_none_works(gone, ended, capsys):
    assert ended("schema") == ExitCode.OK
    assert capsys.readouterr().err == ""


def test_an_error_of_the_program_itself(ended, capsys):
    assert ended(raising=TypeError("of an old library")) == ExitCode.INTERNAL
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-2:] == [
        "TypeError: of an old library",
        "bt-bench: internal error; please report it with the output above",
    ]


def test_an_error_of_the_system(ended, capsys):
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")
    assert ended(raising=error) == ExitCode.USAGE
    assert (
        capsys.readouterr().err == "bt-bench: error: [Errno 28] No space left on device: 'file'\n"
    )


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_stderr_that_is_full(ended, monkeypatch):
    monkeypatch.setattr("sys.stderr", Full())
    assert ended("sweep", "--no-such-option") == ExitCode.USAGE
