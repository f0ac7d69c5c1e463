"""Archives of runs: packed, verified, refused."""

from __future__ import annotations

import errno
import hashlib
import io
import lzma
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from support.factories import make_case, make_result

from bt_bench.base.errors import UsageError
from bt_bench.results import RunFolder, verify_archive, write_archive
from bt_bench.results.files.writing import write_result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder as a sweep leaves it, with a profile."""
    folder = RunFolder.create_exact(tmp_path / "run")
    for variant in ("baseline", "fused"):
        write_result(folder, make_result(variant, [make_case()]))
    (folder.path / "config.yaml").write_text("variants: [baseline, fused]\n")
    (folder.path / "comparison.md").write_text("# Comparison\n")
    (folder.path / ".hidden").write_text("not packed")
    (folder.path / "profile-small").mkdir()
    (folder.path / "profile-small" / "profile.md").write_text("# Profile\n")
    return folder.path


def refusal(call, *arguments) -> str:
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    return str(caught.value)


def test_all_files_come_back(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.tar.xz"
    written = write_archive(run, out)
    assert verify_archive(out) == written
    assert written.sha256 == hashlib.sha256(out.read_bytes()).hexdigest()
    assert written.about.run_ids == ["quick-20260102T030405Z"]
    assert [each.source_sha256 for each in written.about.variants] == ["ab" * 32] * 2
    assert written.about.commands == ["bt-bench sweep configs/quick.yaml"]
    with tarfile.open(out) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    unpacked = tmp_path / "unpacked" / "run"
    for path in run.rglob("[!.]*"):
        if path.is_file():
            assert (unpacked / path.relative_to(run)).read_bytes() == path.read_bytes()
    assert not (unpacked / ".hidden").exists()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_the_manifest_is_checked_without_bt_bench(run: Path, tmp_path: Path) -> None:
    write_archive(run, tmp_path / "run.tar.xz")
    subprocess.run(["tar", "xf", "run.tar.xz"], cwd=tmp_path, check=True)
    check = ["sha256sum", "--check", "--strict", "MANIFEST"]
    done = subprocess.run(check, cwd=run, capture_output=True, text=True, check=True)
    assert done.stdout.count(": OK\n") == 6


def test_equal_folders_give_equal_archives(run: Path, tmp_path: Path) -> None:
    first = write_archive(run, tmp_path / "first.tar.xz")
    copied = tmp_path / "elsewhere" / "run"
    copied.parent.mkdir()
    for path in sorted(run.rglob("*"), reverse=True):  # in another order, at another time
        target = copied / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes())
            target.chmod(0o600)
    assert write_archive(copied, tmp_path / "second.tar.xz").sha256 == first.sha256


def test_a_partial_run_is_packed_as_such(run: Path, tmp_path: Path) -> None:
    write_result(RunFolder(run), make_result("fused", [], complete=False))
    assert write_archive(run, tmp_path / "run.tar.xz").about.complete is False


def test_a_run_in_progress_is_refused(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.tar.xz"
    with RunFolder(run).locked():
        assert "is being written by another bt-bench process" in refusal(write_archive, run, out)
    (run / ".lock").touch()  # left behind by a process that was killed
    write_archive(run, out)


def test_places_for_an_archive(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.tar.xz"
    there.write_text("mine")
    assert "an archive never overwrites a file" in refusal(write_archive, run, there)
    assert there.read_text() == "mine"
    (tmp_path / "link.tar.xz").symlink_to("nowhere")
    assert "exists" in refusal(write_archive, run, tmp_path / "link.tar.xz")
    assert "ends in .tar.xz" in refusal(write_archive, run, tmp_path / "run.zip")
    assert "lies in the run folder" in refusal(write_archive, run, run / "run.tar.xz")
    assert "No such file" in refusal(write_archive, run, tmp_path / "no" / "run.tar.xz")


def test_what_is_no_run(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.tar.xz"
    assert "does not exist" in refusal(write_archive, tmp_path / "rum", out)
    assert "is not a folder" in refusal(write_archive, run / "fused.json", out)
    assert "it holds the runs run" in refusal(write_archive, tmp_path, out)
    (run / "fused.json").write_text('{"schema_version": 3')
    assert "fused.json is not JSON" in refusal(write_archive, run, out)
    for path in run.glob("*.json"):
        path.unlink()
    assert "holds no result file" in refusal(write_archive, run, out)
    assert not out.exists()


def test_links_and_fifos_are_refused(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.tar.xz"
    (tmp_path / "secret").write_text("secret")
    link = run / "profile-small" / "notes.txt"
    link.symlink_to("../../secret")
    told = refusal(write_archive, run, out)
    assert "notes.txt is a symbolic link, which leads to ../../secret" in told
    link.unlink()
    link.symlink_to("..")  # a loop
    assert "is a symbolic link" in refusal(write_archive, run, out)
    link.unlink()
    os.mkfifo(link)
    assert "is no regular file" in refusal(write_archive, run, out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["two\nlines", "back\\slash", "\udcff"])
def test_names_that_a_manifest_cannot_have(run: Path, tmp_path: Path, name: str) -> None:
    (run / name).write_text("x")
    assert "cannot be listed in a MANIFEST" in refusal(write_archive, run, tmp_path / "a.tar.xz")


@pytest.mark.parametrize("name", ["MANIFEST", "ABOUT.json"])
def test_names_that_an_archive_has_itself(run: Path, tmp_path: Path, name: str) -> None:
    (run / name).write_text("{}")
    assert name in refusal(write_archive, run, tmp_path / "a.tar.xz")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_full_disk_leaves_nothing(run: Path, tmp_path: Path, monkeypatch) -> None:
    def full(_number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    told = refusal(write_archive, run, tmp_path / "run.tar.xz")
    assert told.endswith("run.tar.xz: No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_no_damage_goes_unnoticed(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.tar.xz"
    write_archive(run, out)
    data = out.read_bytes()
    draw = random.Random(1)
    for _ in range(60):
        at, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
        out.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        assert str(out) in refusal(verify_archive, out)
    for length in range(0, len(data), max(1, len(data) // 40)):
        out.write_bytes(data[:length])
        assert str(out) in refusal(verify_archive, out)
    out.write_bytes(data + b"more")
    assert "is damaged" in refusal(verify_archive, out)


def packed(path: Path, *members: tuple[str | tarfile.TarInfo, bytes]) -> Path:
    """Write a well-formed `.tar.xz` with these files."""
    with lzma.open(path, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def listed(*files: tuple[str, bytes]) -> bytes:
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files)
    return "".join(lines).encode()


LINK = tarfile.TarInfo("run/fused.json")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ([("run/x", b"1")], "has no MANIFEST"),
        ([("run/x", b"1"), ("run/MANIFEST", listed(("x", b"2")))], "x is not the file that"),
        ([("run/MANIFEST", listed(("x", b"2")))], "x is missing"),
        ([("run/x", b"1"), ("run/MANIFEST", b"")], "line 1 of its MANIFEST"),
        ([("run/x", b"1"), ("run/MANIFEST", b"\xff")], "is not UTF-8"),
        ([("run/x", b""), ("run/y", b""), ("run/MANIFEST", listed(("x", b"")))], "not list y"),
        ([("run/x", b"1"), ("run/MANIFEST", listed(("x", b"1")))], "ABOUT.json of no run"),
        ([("run/x", b"1"), ("run/x", b"1")], "one file too many"),
        ([("run/x", b"1"), ("other/x", b"1")], "one file too many"),
        ([("../x", b"1")], "no file of a run folder"),
        ([("/etc/x", b"1")], "no file of a run folder"),
        ([("run/../../x", b"1")], "no file of a run folder"),
        ([(LINK, b"")], "no file of a run folder"),
    ],
)
def test_foreign_archives(tmp_path: Path, members, told: str) -> None:
    assert told in refusal(verify_archive, packed(tmp_path / "x.tar.xz", *members))


def test_what_is_no_archive(run: Path, tmp_path: Path) -> None:
    assert "does not exist" in refusal(verify_archive, tmp_path / "no.tar.xz")
    assert "is a folder" in refusal(verify_archive, run)
    assert "is no .tar.xz file" in refusal(verify_archive, run / "fused.json")
    (tmp_path / "text.xz").write_bytes(lzma.compress(b"no tar" * 1000))
    assert "is damaged" in refusal(verify_archive, tmp_path / "text.xz")
