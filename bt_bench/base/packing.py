"""Packed data files, and things that lie in place of a data file: pointers of Git LFS, and more.

Every reader of data files calls `refuse_stand_in` with the first bytes: a pointer is short text,
and would otherwise be blamed for the columns or keys that it lacks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

from bt_bench.base.errors import UsageError
from bt_bench.base.units import format_bytes

PACKED = {".xz": b"\xfd7zXZ\x00", ".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
"""The suffixes of packed files, each with their first bytes."""

HEAD_BYTES = 1024
"""Bytes with which a file begins that distinguish all of these; a pointer is shorter."""

_MODULES = {".xz": "lzma", ".gz": "gzip"}
_LFS = re.compile(rb"version https?://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/")
_LFS_SIZE = re.compile(rb"^size (\d+)\s*$", re.MULTILINE)
_ANNEX = re.compile(rb"(?:\.\./)*(?:\.git)?/?annex/objects/")
_PAGE = re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE)
_OTHERS = {
    re.compile(rb"PK\x03\x04"): "a ZIP archive: unpack it, and name the file in it",
    re.compile(rb"BZh[1-9]1AY&SY"): "packed with bzip2: unpack it with bunzip2",
    re.compile(rb"PAR1"): "a Parquet file: convert it, such as by pandas.read_parquet and to_csv",
}
_PACKED_BYTES = 8192  # of a zstd file at a time: they unpack to 256 MiB at most


def refuse_stand_in(head: bytes, name: str, expected: str, *, unpacks: bool = False) -> None:
    """Refuse a file that stands for another one, or is of a kind that nothing here reads.

    Args:
        head: the first bytes of the file, `HEAD_BYTES` or more if it is that long.
        name: the file's name in messages.
        expected: the expected kind of file, for messages.
        unpacks: whether the reader takes files packed in one of the ways of `PACKED`.

    Raises:
        UsageError: for a pointer of Git LFS or git-annex, a web page, and packed or binary files
            that are not read, with the remedy.
    """
    head = head[:HEAD_BYTES]
    if _LFS.match(head):
        size = _LFS_SIZE.search(head)
        of = f" to a file of {format_bytes(int(size[1][:18]))}" if size else ""
        raise UsageError(
            f"{name} is a pointer of Git LFS{of}; expected {expected}. Fetch the file itself: "
            "git lfs pull, in its repository (git lfs install, once before)"
        )
    if _ANNEX.match(head):
        raise UsageError(
            f"{name} is a pointer of git-annex; expected {expected}. Fetch the file itself: "
            "git annex get, in its repository"
        )
    if _PAGE.match(head):
        raise UsageError(
            f"{name} is a web page; expected {expected}. Download the file itself: on GitHub that "
            "is the link 'Raw'"
        )
    suffix = None if unpacks else packing_of(head)
    if suffix is not None:
        raise UsageError(f"{name} begins as a {suffix} file; expected {expected}: unpack it")
    for magic, what in _OTHERS.items():
        if magic.match(head):
            raise UsageError(f"{name} is {what}; expected {expected}")


def packing_of(head: bytes) -> str | None:
    """Return the suffix of files that begin like this one, `.gz` for one; `None`: not packed."""
    return next((suffix for suffix, magic in PACKED.items() if head.startswith(magic)), None)


@contextmanager
def unpacking(file: IO[bytes], name: str, expected: str) -> Iterator[IO[bytes]]:
    """Yield a file that is open at its beginning, unpacked as it is read if it is packed.

    Only parts of it are in memory. The caller closes `file`.

    Args:
        file: a file that can be rewound.
        name: its name in messages.
        expected: the expected kind of file, for messages.

    Raises:
        UsageError: as from `refuse_stand_in`, before and behind the packing; if it is damaged or
            cut off; or if no unpacker of it is installed.
    """
    head = file.read(HEAD_BYTES)
    file.seek(0)
    refuse_stand_in(head, name, expected, unpacks=True)
    suffix = packing_of(head)
    if suffix is None:
        yield file
        return
    errors: tuple[type[Exception], ...] = (EOFError, OSError)
    try:
        opened, more = _opener(suffix, name)
        errors += more
        with opened(file) as unpacked:
            buffered = io.BufferedReader(unpacked)
            refuse_stand_in(buffered.peek(HEAD_BYTES), f"{name}, unpacked,", expected)
            yield buffered
    except errors as error:
        raise UsageError(
            f"cannot unpack {name}, which begins as a {suffix} file: "
            f"{error or type(error).__name__}; expected {expected}, whole"
        ) from None


Opener = Callable[[IO[bytes]], Any]


def _opener(suffix: str, name: str) -> tuple[Opener, tuple[type[Exception], ...]]:
    """Return a function that unpacks a file as it is read, and the exceptions of damaged ones.

    The modules are imported here: few files are packed, and some Pythons are built without them.
    """
    if suffix == ".zst":
        begin, error = _zstd(name)
        return lambda file: _ZstdFile(file, begin), (error,)
    try:
        module = import_module(_MODULES[suffix])
    except ImportError as error:
        raise UsageError(
            f"cannot unpack {name}: this Python was built without {error.name}; unpack it before"
        ) from None
    import zlib

    return module.open, (zlib.error, getattr(module, "LZMAError", zlib.error))


def _zstd(name: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return the function that begins a frame of zstd: Python's own, or else `zstandard`'s."""
    try:
        standard = import_module("compression.zstd")  # of Python 3.14
        return standard.ZstdDecompressor, standard.ZstdError
    except ImportError:
        pass
    try:
        package = import_module("zstandard")
    except ImportError:
        raise UsageError(
            f"{name} is packed with zstd, which this Python cannot unpack: pip install "
            "'bt-bench[zstd]' adds zstandard; Python 3.14 needs nothing. Or unpack it with "
            "zstd -d"
        ) from None
    return lambda: package.ZstdDecompressor().decompressobj(), package.ZstdError


class _ZstdFile(io.RawIOBase):
    """A file of zstd frames, unpacked as it is read; one that is cut off is an error.

    Args:
        file: the packed file.
        begin: returns the unpacker of a frame.
    """

    def __init__(self, file: IO[bytes], begin: Callable[[], Any]) -> None:
        super().__init__()
        self._file = file
        self._begin = begin
        self._frame: Any = None
        self._packed = b""
        self._unpacked = memoryview(b"")

    def readable(self) -> bool:
        """Return true, as a file that is open for reading does."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the beginning of a buffer; return the number of bytes, 0 at the end."""
        while not self._unpacked and (chunk := self._packed or self._file.read(_PACKED_BYTES)):
            self._frame = self._frame or self._begin()
            self._unpacked = memoryview(self._frame.decompress(chunk))
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        if not self._unpacked and self._frame is not None:
            raise EOFError("it is cut off")
        count = min(len(buffer), len(self._unpacked))
        buffer[:count] = self._unpacked[:count]
        self._unpacked = self._unpacked[count:]
        return count
