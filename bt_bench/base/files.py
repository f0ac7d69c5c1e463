"""Reading and writing of files that a user names, with errors that name the file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bt_bench.base import atomic
from bt_bench.base.errors import UsageError, nearest
from bt_bench.base.packing import PACKED, packing_of, refuse_stand_in, unpacking
from bt_bench.base.units import format_bytes

STDIN = "-"

MOST_BYTES = 512 << 20
"""The maximum number of bytes read from one file: many times a result with thousands of cases.

Reading a file takes several times its size in memory, and some files, such as /dev/zero, never end.
"""

_CHUNK = 1 << 20

_XZ_END = b"YZ"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


def write_text(path: Path, text: str) -> None:
    """Write a file that the user has named; see `bt_bench.base.atomic.writing`.

    A reader of a regular file sees the old text or the new one, never a part of it.

    Raises:
        UsageError: if it cannot be written.
    """
    with naming(path):
        atomic.write_text(path, text)


def expanded(path: Path | str) -> Path:
    """Return a path with a home directory in place of `~`; as it is if none is known.

    A container's user may have none: without `HOME`, and without a line in `/etc/passwd`.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def name_of(path: Path | str) -> str:
    """Return a file's name for messages; `standard input` for `-`."""
    return "standard input" if str(path) == STDIN else str(path)


def like(path: Path | str) -> str:
    """Suggest a similar path for a missing one, `; did you mean 'reports/origin'?`, or nothing.

    A link leads nowhere if its path is missing.
    """
    path = Path(path)
    if path.is_symlink():
        return "; it is a link that leads nowhere"
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        return ""
    name = nearest(path.name, names)
    return "" if name is None else f"; did you mean {str(path.with_name(name))!r}?"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn system errors into a `UsageError` that names the file."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file of a run folder, which appears under its name when the block ends."""
    with naming(path), atomic.replacing(path) as file:
        yield file


def compact_json(value: object) -> str:
    import json  # not above: `--help` imports this module

    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_text(
    path: Path | str, name: str, expected: str = "a result file", example: str = "baseline.json"
) -> str:
    """Return the text of a file, or of standard input for `-`; unpack it if it is packed.

    Args:
        path: the file.
        name: its name in messages.
        expected: the expected kind of file, for messages.
        example: a typical name of such a file, for messages.

    Raises:
        UsageError: if it cannot be read or unpacked, is larger than `MOST_BYTES`, or is not UTF-8.
    """
    try:
        if str(path) != STDIN:
            with Path(path).open("rb") as file:
                data = limited(file, name, expected)
        elif sys.stdin is None:  # closed before Python began
            raise UsageError(f"{name} is closed; expected {expected}")
        else:
            data = limited(sys.stdin.buffer, name, expected)
    except FileNotFoundError:
        raise UsageError(f"{name} does not exist; expected {expected}{like(path)}") from None
    except IsADirectoryError:
        raise UsageError(
            f"{name} is a folder; expected {expected}, such as {Path(path) / example}"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    data = _unpacked(data, name, expected)
    if data.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        raise UsageError(
            f"{name} is an archive; expected {expected}. Unpack it with tar xf, and give the folder"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not JSON: byte {error.start} is not UTF-8") from None


def unpacked_path(path: Path) -> Path:
    """Return `run/x.json` for `run/x.json.xz`, and a path without such a suffix as it is."""
    return path.with_suffix("") if path.suffix in PACKED else path


def packed_or_not(path: Path) -> Path:
    """Return `run/x.json.xz` for `run/x.json` if only that is a file, else the path as it is."""
    forms = (path.with_name(path.name + suffix) for suffix in ("", *PACKED))
    return next((form for form in forms if form.is_file()), path)


def _unpacked(data: bytes, name: str, expected: str) -> bytes:
    """Unpack data that begins as a packed file does; return other data as it is."""
    suffix = packing_of(data)
    if suffix is None:
        refuse_stand_in(data, name, expected)
        return data
    try:
        data = _without_padding(data)
    except ValueError as error:
        raise UsageError(
            f"cannot unpack {name}, which begins as a {suffix} file: {error}; expected "
            f"{expected}, whole"
        ) from None
    with unpacking(io.BytesIO(data), name, expected) as file:
        return limited(file, f"{name}, unpacked,", expected)


def _without_padding(data: bytes) -> bytes:
    """Return packed data without zeros behind it, which xz allows and Python's lzma does not.

    Raises:
        ValueError: if something else is behind xz data, which Python's lzma ignores.
    """
    if not data.startswith(PACKED[".xz"]):
        return data  # gzip is strict, and its data may end with zeros
    data = data.rstrip(b"\0")
    if not data.endswith(_XZ_END):
        raise ValueError("it does not end as one")
    return data


def limited(file: IO[bytes], name: str, expected: str) -> bytes:
    """Return the rest of a file.

    Args:
        file: a file that is open for reading.
        name: its name in messages.
        expected: the expected kind of file, for messages.

    Raises:
        UsageError: if the rest is larger than `MOST_BYTES`.
    """
    data = bytearray()
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > MOST_BYTES:
            raise UsageError(
                f"{name} is larger than {format_bytes(MOST_BYTES, 3)}, the most that is read; "
                f"expected {expected}"
            )
    return bytes(data)
