"""Files that a user names: replaced where they are regular, and written through where not."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bt_bench.base.atomic import descriptor_of, is_stream, replacing, target_of, write_text
from bt_bench.base.errors import UsageError
from bt_bench.base.files import write_text as write_named

FULL = Path("/dev/full")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def kind(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode)


def test_a_link_stays_and_the_file_behind_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link, second = tmp_path / "real/file", tmp_path / "link", tmp_path / "second"
    target.write_text("old")
    link.symlink_to("real/file")
    second.symlink_to(link)
    before = target.open()
    write_text(second, "new\n")
    assert (link.is_symlink(), second.is_symlink()) == (True, True)
    assert (target.read_text(), before.read()) == ("new\n", "old")
    before.close()
    assert names(tmp_path / "real") == ["file"]


def test_a_link_to_nothing_gets_its_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("file")
    write_text(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_device_is_written_through_and_is_still_there(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    write_text(link, "text")
    assert link.is_symlink()
    assert kind(Path(os.devnull)) == stat.S_IFCHR


def test_a_full_device_is_said_by_name(tmp_path: Path) -> None:
    """By a link, which a defect would replace and not the device."""
    link = tmp_path / "full"
    link.symlink_to(FULL)
    with pytest.raises(UsageError, match=f"cannot write {link}: {os.strerror(errno.ENOSPC)}"):
        write_named(link, "text")
    assert link.is_symlink()
    assert kind(FULL) == stat.S_IFCHR


def test_a_fifo_takes_the_text_and_is_still_there(fifo: Path) -> None:
    heard = []
    reader = threading.Thread(target=lambda: heard.append(fifo.read_text()), daemon=True)
    reader.start()
    write_text(fifo, "text\n")
    assert kind(fifo) == stat.S_IFIFO
    reader.join(600)
    assert heard == ["text\n"]


def test_waiting_for_the_reader_of_a_fifo_can_be_broken_off(fifo: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            write_text(fifo, "text")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert kind(fifo) == stat.S_IFIFO


def test_a_socket_and_a_folder_are_refused_and_stay(tmp_path: Path) -> None:
    import socket

    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        with pytest.raises(UsageError, match=f"cannot write {path}: No such device"):
            write_named(path, "text")
        assert kind(path) == stat.S_IFSOCK
    with pytest.raises(UsageError, match=f"cannot write {tmp_path}: it is a folder"):
        write_named(tmp_path, "text")


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("mode", ["a", "w"])
def test_stdout_goes_on_where_it_is(tmp_path: Path, target: str, mode: str) -> None:
    """Also where it is a file: it is neither replaced nor cut off."""
    (tmp_path / "link").symlink_to(target)  # or a defect would replace what the machine has
    log = tmp_path / "log"
    log.write_text("earlier\n" if mode == "a" else "")
    code = (
        "from pathlib import Path; from bt_bench.base.atomic import write_text;"
        "print('before'); write_text(Path('link'), 'text\\n'); print('after')"
    )
    with log.open(mode) as stdout:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=stdout, cwd=tmp_path)
    earlier = "earlier\n" if mode == "a" else ""
    assert log.read_text() == f"{earlier}before\ntext\nafter\n"
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path) == ["link", "log"]


def test_an_open_file_that_was_deleted_is_not_made_anew(tmp_path: Path) -> None:
    """What a link in /proc leads to need not be what it says."""
    path = tmp_path / "file"
    with path.open("w+") as file:
        child = subprocess.Popen(["sleep", "600"], stdout=file)
        path.unlink()
        try:
            write_text(Path(f"/proc/{child.pid}/fd/1"), "text")
        finally:
            child.kill()
            child.wait()
        assert file.read() == "text"
    assert names(tmp_path) == []


def test_paths_of_descriptors() -> None:
    assert descriptor_of(Path("/dev/stdin")) == 0
    assert descriptor_of(Path("/dev/fd/63")) == 63
    assert descriptor_of(Path("/dev/fd/x")) is None
    assert descriptor_of(Path("1")) is None
    assert descriptor_of(Path("/dev/null")) is None
    assert descriptor_of(Path(f"/proc/{os.getppid()}/fd/1")) is None


def test_places(tmp_path: Path, fifo: Path) -> None:
    (tmp_path / "link").symlink_to(fifo)
    (tmp_path / "folder").mkdir()
    assert target_of(tmp_path / "link") == target_of(fifo)
    assert target_of(tmp_path / "new") == target_of(tmp_path / "folder/../new")
    assert target_of(tmp_path / "new") != target_of(tmp_path / "other")
    assert (is_stream(fifo), is_stream(tmp_path / "new")) == (True, False)


WRITE = """
import os, sys, time
from pathlib import Path
from bt_bench.base.atomic import writing
with writing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_writer_left_goes_with_the_next_writing(tmp_path: Path) -> None:
    """And what a living one is writing stays, as do files that only look alike."""
    path = tmp_path / "file"
    others = [".file.tmp", ".file.12.json.tmp", ".file2.1.0123abcd.tmp"]
    for name in others:
        (tmp_path / name).touch()
    command = [sys.executable, "-c", WRITE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        write_text(path, "first")
        assert len(names(tmp_path)) == len(others) + 2  # with the living one's
        writer.kill()
    write_text(path, "second")
    assert names(tmp_path) == sorted([*others, "file"])
    assert path.read_text() == "second"


def test_a_file_system_without_locks_keeps_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_number: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    (tmp_path / ".file.1.0123abcd.tmp").touch()
    write_text(tmp_path / "file", "text")
    assert names(tmp_path) == [".file.1.0123abcd.tmp", "file"]
    assert (tmp_path / "file").read_text() == "text"


def test_a_file_of_ours_is_no_link(tmp_path: Path, fifo: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to(target)
    for path, what in ((link, "a symbolic link"), (fifo, "a FIFO")):
        before = kind(path)
        with (
            pytest.raises(OSError, match=f"it is {what}; expected a regular file"),
            replacing(path) as file,
        ):
            file.write(b"ours")
        assert kind(path) == before
    assert target.read_text() == "theirs"
