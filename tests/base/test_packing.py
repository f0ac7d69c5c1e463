"""Packed data files, and what lies in place of one, for every reader of data files."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bt_bench.base import packing, read_text, refuse_stand_in, unpacking
from bt_bench.base.errors import UsageError
from bt_bench.config import load_config
from bt_bench.results import read_result
from bt_bench.results.files.archive import verify_archive
from bt_bench.results.gate.census import read_census
from bt_bench.results.gate.recording import read_recording
from bt_bench.suites.block_tables.workloads.layouts.engine_file import read_engine_file
from bt_bench.suites.block_tables.workloads.recorded.file import RecordedFile
from bt_bench.suites.block_tables.workloads.serving.trace import read_trace

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4bb3783693d0a435686fbfc885615d2349bd067239079fa4b749f2e679e12122\n"
    b"size 52283111\n"
)


def zstd_pack() -> Callable[[bytes], bytes]:
    """Return what packs bytes as a frame of zstd, or skip the test."""
    try:
        from compression.zstd import compress

        return compress
    except ImportError:
        package = pytest.importorskip("zstandard", reason="neither Python 3.14 nor zstandard")
        return lambda data: package.ZstdCompressor(write_checksum=True).compress(data)


def unpacked(data: bytes) -> bytes:
    with unpacking(io.BytesIO(data), "a.csv", "a trace") as file:
        return file.read()


@pytest.mark.parametrize(
    "read",
    [
        lambda path: load_config(str(path)),
        lambda path: read_result(path),
        lambda path: read_census(path),
        lambda path: read_recording(path),
        lambda path: read_engine_file(path),
        lambda path: read_trace(str(path)),
        lambda path: RecordedFile(path),
        lambda path: verify_archive(path),
    ],
    ids=[
        "config",
        "result",
        "census",
        "recording of rounds",
        "kv_cache_config",
        "trace",
        "recorded calls",
        "archive",
    ],
)
def test_every_reader_names_a_pointer_of_git_lfs(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(POINTER)
    message = "data.json is a pointer of Git LFS to a file of 49.86 MiB; expected .* git lfs pull"
    with pytest.raises(UsageError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"version https://hawser.github.com/spec/v1\n", "x is a pointer of Git LFS; expected a t"),
        (b"/annex/objects/SHA256E-s5--0a.csv\n", "git-annex; expected a trace. .* git annex get"),
        (b"../.git/annex/objects/k/SHA256E-s5--0a.csv", "git-annex"),
        (b"\n<!DOCTYPE html><html>", "is a web page; .* 'Raw'"),
        (b"PK\x03\x04\x14", "is a ZIP archive: unpack it"),
        (b"BZh91AY&SY", "packed with bzip2"),
        (b"PAR1\x15\x04", "a Parquet file: convert it"),
    ],
)
def test_what_lies_in_place_of_a_file_is_named(head: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        refuse_stand_in(head, "x", "a trace")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize(
    "read", [lambda path: load_config(str(path)), read_engine_file, RecordedFile]
)
def test_readers_that_do_not_unpack_name_packed_files(tmp_path: Path, read: Any, pack: Any) -> None:
    path = tmp_path / "data"
    path.write_bytes(pack(b"cases: []\n"))
    with pytest.raises(UsageError, match=r"data begins as a \.(gz|xz) file; .*: unpack it"):
        read(path)
    with pytest.raises(UsageError, match=r"unpacked, begins as a \.gz file; expected a trace"):
        unpacked(pack(gzip.compress(b"twice")))


def test_data_is_not_taken_for_a_pointer() -> None:
    for head in (b"", b"version: 2\n", b"BZh,PAR,1\n", b'{"a": "<html>"}', POINTER[9:]):
        refuse_stand_in(head, "x", "a trace")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, None], ids=["gzip", "xz", "zstd"])
def test_packed_files_are_unpacked_as_they_are_read(pack: Any) -> None:
    pack = pack or zstd_pack()
    data = b"".join(b"%d,%d\n" % (i, i * i) for i in range(30_000))
    assert unpacked(pack(data)) == data
    assert unpacked(pack(data[:9]) + pack(data[9:])) == data  # two frames, as `cat` makes them
    for damaged in (pack(data)[:-9], pack(data)[:8]):
        with pytest.raises(UsageError, match=r"cannot unpack a.csv, which begins as a \.\w+ file:"):
            unpacked(damaged)
    with pytest.raises(UsageError, match=r"a.csv, unpacked, is a pointer of Git LFS"):
        unpacked(pack(POINTER))


def test_a_result_may_be_packed_with_zstd(tmp_path: Path) -> None:
    (tmp_path / "a.json.zst").write_bytes(zstd_pack()(b'{"a": 1}'))
    assert read_text(tmp_path / "a.json.zst", "a") == '{"a": 1}'


def test_zstd_that_nothing_here_unpacks_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(packing, "import_module", absent)
    with pytest.raises(UsageError, match=r"a.csv is packed with zstd, .* 'bt-bench\[zstd\]'"):
        unpacked(packing.PACKED[".zst"] + b"x")


def test_frames_of_zstd_are_read_by_either_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for both: a frame is its magic bytes, text, and an end."""

    class Frame:
        def __init__(self) -> None:
            self.eof, self.unused_data = False, b""

        def decompress(self, data: bytes) -> bytes:
            text, end, rest = data.removeprefix(packing.PACKED[".zst"]).partition(b"#")
            self.eof, self.unused_data = bool(end), rest
            return text

        def decompressobj(self) -> Frame:
            return self

    magic = packing.PACKED[".zst"]
    modules: dict[str, Any] = {
        "compression.zstd": SimpleNamespace(ZstdDecompressor=Frame, ZstdError=ArithmeticError),
        "zstandard": SimpleNamespace(ZstdDecompressor=Frame, ZstdError=ArithmeticError),
    }
    for name in modules:

        def only(asked: str, name: str = name) -> Any:
            if asked != name:
                raise ImportError(asked)
            return modules[name]

        monkeypatch.setattr(packing, "import_module", only)
        assert unpacked(magic + b"one#" + magic + b"two#") == b"onetwo"
        with pytest.raises(UsageError, match="it is cut off"):
            unpacked(magic + b"one#" + magic + b"tw")
