"""The archive of a run: one file with its results, their origin, and the digest of each file.

It is a `.tar.xz` that any tar unpacks. `MANIFEST` has the lines that `sha256sum -c` reads. Equal
run folders give equal archives, byte for byte, with one version of liblzma.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from pydantic import ValidationError

from bt_bench.base import (
    HEAD_BYTES,
    MOST_BYTES,
    limited,
    lock,
    naming,
    open_own,
    refuse_stand_in,
    writing,
)
from bt_bench.base.errors import UsageError
from bt_bench.results.files.folders import LOCK_NAME, RunFolder
from bt_bench.results.files.reading import read_run
from bt_bench.results.run.commands import sweep_commands
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.result import Environment, VariantInfo, VariantResult
from bt_bench.results.run.suites import suite_name

ARCHIVE_SUFFIX = ".tar.xz"
ABOUT_NAME = "ABOUT.json"
MANIFEST_NAME = "MANIFEST"

_OWN = ((ABOUT_NAME,), (MANIFEST_NAME,))
_MOST_BYTES_OF_OWN = 16 << 20
_MOST_FILES = 10_000
_LINE = re.compile(r"([0-9a-f]{64})  ([^\\]+)")
_XZ_MAGIC, _XZ_END = b"\xfd7zXZ\x00", b"YZ"
_CHUNK = 1 << 20
_FAULTS = (tarfile.TarError, lzma.LZMAError, EOFError, OSError, ValueError)


class ArchivedSuite(Noun):
    """A suite of archived results; the digest is `None` in results that name no suite."""

    name: str
    source_sha256: str | None


class About(Noun):
    """The origin of archived results, in `ABOUT.json`: commands, machines, digests of sources."""

    schema_version: Literal[1] = 1
    kind: Literal["archive"] = "archive"
    run_ids: list[str]
    config: str
    created: str
    complete: bool
    commands: list[str]
    variants: list[VariantInfo]
    suites: list[ArchivedSuite]
    environments: list[Environment]


@dataclass(frozen=True)
class Archive:
    """A written or verified archive.

    Args:
        path: its file.
        sha256: digest of the file.
        num_bytes: size of the file.
        about: content of its `ABOUT.json`.
        digests: SHA-256 of each file in it, by its path below the folder that tar makes; without
            `MANIFEST`, which has them.
    """

    path: Path
    sha256: str
    num_bytes: int
    about: About
    digests: Mapping[str, str]


def write_archive(folder: Path, out: Path) -> Archive:
    """Pack a run folder into a new file.

    Hidden files are left out. The file appears when it is complete.

    Args:
        folder: the run folder.
        out: the file, which must not exist; its name ends in `.tar.xz`.

    Raises:
        UsageError: if the folder is no run, is being written, or holds anything but regular files;
            if a result is damaged; if the file exists or cannot be written.
    """
    run = RunFolder.open(folder)
    _refuse_place(folder, out)
    _refuse_in_progress(run)
    results = read_run(run)
    if not results:
        raise UsageError(f"{folder} holds no result file; expected a run folder")
    top = _checked_name(folder.resolve().name or "run", folder)
    paths = sorted(_files_below(folder), key=lambda path: path.relative_to(folder).parts)
    about = about_run(results)
    digests: dict[str, str] = {}
    with (
        naming(out),
        writing(out) as raw,
        lzma.open(raw, "wb") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        add = partial(_add, tar, _seconds(about.created))
        text = json.dumps(about.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
        for name, data in chain([(ABOUT_NAME, text.encode())], _members(folder, paths)):
            if name in (*digests, MANIFEST_NAME):
                raise UsageError(f"{folder / name} has a name that an archive needs; rename it")
            digests[name] = hashlib.sha256(data).hexdigest()
            add(f"{top}/{name}", data)
        manifest = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
        add(f"{top}/{MANIFEST_NAME}", manifest.encode())
    return Archive(out, *_digest_of(out), about, digests)


def about_run(results: Sequence[VariantResult]) -> About:
    """Return the origin of results.

    Args:
        results: results of a run's variants, at least one.
    """
    environments = [each for result in results for each in result.environments]
    suites = {suite_name(each.suite): each.suite for each in results}
    return About(
        run_ids=[*dict.fromkeys(result.run_id for result in results)],
        config=results[0].config,
        created=results[0].created,
        complete=all(result.complete for result in results),
        commands=sweep_commands(results),
        variants=[result.variant for result in results],
        suites=[
            ArchivedSuite(name=name, source_sha256=suite.source_sha256 if suite else None)
            for name, suite in suites.items()
        ],
        environments=[
            each for index, each in enumerate(environments) if each not in environments[:index]
        ],
    )


def verify_archive(path: Path) -> Archive:
    """Read an archive, and compare each file with its digest. Nothing is unpacked.

    Args:
        path: the archive.

    Raises:
        UsageError: if it is no archive of a run, or is damaged; names the first difference.
    """
    try:
        with path.open("rb") as raw:
            found, texts = _read_members(raw, path)
        sha256, num_bytes = _digest_of(path)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; expected an archive of a run") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; expected an archive of a run") from None
    except _FAULTS as error:
        raise _damaged(path, str(error) or type(error).__name__) from None
    wanted = _manifest(path, texts.get(MANIFEST_NAME))
    for name, digest in wanted.items():
        if name not in found:
            raise _damaged(path, f"{name} is missing, though its {MANIFEST_NAME} lists it")
        if found[name] != digest:
            raise _damaged(path, f"{name} is not the file that its {MANIFEST_NAME} lists")
    if unlisted := [name for name in found if name not in wanted and name != MANIFEST_NAME]:
        raise _damaged(path, f"its {MANIFEST_NAME} does not list {unlisted[0]}")
    return Archive(path, sha256, num_bytes, _about(path, texts.get(ABOUT_NAME)), wanted)


def _refuse_place(folder: Path, out: Path) -> None:
    if not out.name.endswith(ARCHIVE_SUFFIX):
        raise UsageError(f"--out {out}: expected a name that ends in {ARCHIVE_SUFFIX}")
    if os.path.lexists(out):
        raise UsageError(
            f"{out} exists, and an archive never overwrites a file; choose another with --out"
        )
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"--out {out} lies in the run folder; choose a place outside {folder}")


def _refuse_in_progress(run: RunFolder) -> None:
    path = run.path / LOCK_NAME
    if not os.path.lexists(path):
        return
    try:
        os.close(lock(path, create=False))
    except BlockingIOError:
        raise UsageError(
            f"{run.path} is being written by another bt-bench process; wait for its end, or end it "
            "by Ctrl-C, which keeps its finished cases"
        ) from None
    except OSError:
        return  # it has just ended; or nobody can write into the folder


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield all files of a folder but hidden ones.

    Raises:
        UsageError: for anything else than files and folders, links above all: they may lead out of
            the folder, and whoever unpacks the archive has not got their targets.
    """
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        _checked_name(path.name, path)
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _files_below(path)
        elif stat.S_ISREG(mode):
            yield path
        else:
            leads = f", which leads to {path.readlink()}" if stat.S_ISLNK(mode) else ""
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
            raise UsageError(
                f"{path} is {kind}{leads}; an archive holds only files of the run folder itself. "
                "Put the file in its place, or remove it"
            )


def _checked_name(name: str, path: Path) -> str:
    if not name.isprintable() or "\\" in name:
        raise UsageError(
            f"{str(path)!r} cannot be listed in a {MANIFEST_NAME}; expected a name of printable "
            "characters without a backslash"
        )
    return name


def _members(folder: Path, paths: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    if len(paths) > _MOST_FILES:
        raise UsageError(f"{folder} has {len(paths):,} files; at most {_MOST_FILES:,} are packed")
    for path in paths:
        try:
            with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
                data = limited(file, str(path), "a file of a run")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
        yield path.relative_to(folder).as_posix(), data


def _seconds(created: str) -> int:
    """Return the time of all files in an archive, which must not depend on the day of packing."""
    try:
        return max(0, int(datetime.fromisoformat(created).timestamp()))
    except (ValueError, OverflowError):  # no other program checks this text
        return 0


def _add(tar: tarfile.TarFile, time: int, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), time, 0o644
    tar.addfile(info, io.BytesIO(data))


def _read_members(raw: IO[bytes], path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the digests of all files in an archive, and the contents of its own two."""
    begin = raw.read(HEAD_BYTES)
    refuse_stand_in(begin, str(path), "an archive of a run", unpacks=True)
    if not begin.startswith(_XZ_MAGIC):
        raise UsageError(f"{path} is no {ARCHIVE_SUFFIX} file; expected an archive of a run")
    raw.seek(-len(_XZ_END), os.SEEK_END)
    if raw.read() != _XZ_END:
        raise ValueError("it is cut off, or something was appended to it")
    raw.seek(0)
    digests: dict[str, str] = {}
    texts: dict[str, bytes] = {}
    tops = set()
    with lzma.open(raw, "rb") as packed:
        with tarfile.open(fileobj=packed, mode="r|") as tar:
            for member in tar:
                top, name = _place_of(member)
                tops.add(top)
                if len(tops) > 1 or name in digests or len(digests) >= _MOST_FILES:
                    raise ValueError(f"{member.name!r} is one file too many")
                file = tar.extractfile(member)
                assert file is not None  # it is a regular file
                digest = hashlib.sha256()
                kept = texts.setdefault(name, b"") if name in (ABOUT_NAME, MANIFEST_NAME) else None
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    if kept is not None:
                        texts[name] += chunk
                digests[name] = digest.hexdigest()
        while chunk := packed.read(_CHUNK):  # xz checks its data only once all of it was read
            if chunk.strip(b"\0"):
                raise ValueError("it goes on behind its end")
    return digests, texts


def _place_of(member: tarfile.TarInfo) -> tuple[str, str]:
    """Return the top folder of a member, and its path below.

    Raises:
        ValueError: for anything that `write_archive` does not write.
    """
    parts = PurePosixPath(member.name).parts
    plain = "/".join(parts) == member.name and not {"..", "/"} & set(parts) and len(parts) > 1
    most = _MOST_BYTES_OF_OWN if parts[-1:] in _OWN else MOST_BYTES
    if not plain or not member.isreg() or member.size > most:
        raise ValueError(f"{member.name!r} is no file of a run folder")
    return parts[0], "/".join(parts[1:])


def _manifest(path: Path, data: bytes | None) -> dict[str, str]:
    if data is None:
        raise UsageError(f"{path} has no {MANIFEST_NAME}; expected an archive of a run")
    try:
        lines = data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise _damaged(path, f"its {MANIFEST_NAME} is not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise _damaged(path, f"line {number} of its {MANIFEST_NAME} is not `SHA256  FILE`")
        found[match[2]] = match[1]
    return found


def _about(path: Path, data: bytes | None) -> About:
    try:
        return About.model_validate_json(data or b"")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(
            f"{path} has an {ABOUT_NAME} of no run, or of another version: {where}: {first['msg']}"
        ) from None


def _digest_of(path: Path) -> tuple[str, int]:
    digest, num_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            num_bytes += len(chunk)
    return digest.hexdigest(), num_bytes


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is damaged: {why}. Get it again from where it was made")
