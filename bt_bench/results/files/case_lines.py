"""The cases of a result file as lines of text, for merging many files in bounded memory.

Each case of a file that bt-bench has written is one line. Its place in the file is kept, and not
its content. A file in another form, such as a packed one or one of an interrupted run, is first
written anew.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from pydantic import ValidationError

from bt_bench.base import compact_json, no_collection, packing_of, replacing
from bt_bench.base.errors import UsageError
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.invalid import repeated_key
from bt_bench.results.files.journals import has_journal
from bt_bench.results.files.parsing import CaseParser, KnownTexts
from bt_bench.results.files.reading import read_result
from bt_bench.results.files.writing import result_chunks, write_result
from bt_bench.results.run.nouns import Status
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.soundness import case_problems, header_problems, part_problems
from bt_bench.results.run.suites import context_of

_CASES = b'  "cases": ['
_NO_CASES = b"]"
_INDENT = 4
_PART = re.compile(rb'"part":(?:null|(\d+))\}$')
_MOST_OPEN = 128  # files; systems often allow 1024
_MOST_KNOWN = 64  # texts of a field: memory must not grow with cases


class _OtherForm(Exception):  # noqa: N818  # never leaves this file
    """A file is not in the form that bt-bench writes, though it may be a sound result."""


@dataclass(frozen=True)
class LinedResult:
    """A result file whose cases are lines.

    Args:
        given: the file as the user knows it, for messages.
        path: the file that has the lines: the same one, or a copy.
        header: the result without its cases.
        scratch: an empty folder for a copy.
    """

    given: Path
    path: Path
    header: VariantResult
    scratch: Path


@dataclass(frozen=True)
class CasePlaces:
    """The places of the lines of a file's cases.

    Args:
        path: the file.
        given: the file as the user knows it, for messages.
        places: offset and length of the line of each key, one after the other; a length of 0: the
            file lacks the case.
        statuses: how many of the cases ended how.
    """

    path: Path
    given: Path
    places: array[int]
    statuses: dict[Status, int]

    def has(self, number: int) -> bool:
        """Return whether the file has the case of the key of that number."""
        return self.places[2 * number + 1] > 0


def open_lined(path: Path, scratch: Path) -> LinedResult:
    """Open a result file, and read all but its cases.

    Args:
        path: the file, packed or not, perhaps with the journal of an interrupted run.
        scratch: an empty folder, in which the file is written anew if it is in another form.

    Raises:
        UsageError: if it is no sound result.
    """
    try:
        lined = LinedResult(path, path, _header_of(path), scratch)
    except _OtherForm:
        return _written_anew(path, scratch)
    if has_journal(path) and not lined.header.complete:
        return _written_anew(path, scratch)
    return lined


def place_cases(lined: LinedResult, keys: Sequence[str]) -> CasePlaces:
    """Check each case of a file as `read_result` does, and return the places of their lines.

    Args:
        lined: the file.
        keys: all keys that it may have.

    Raises:
        UsageError: for a damaged file, and for a case with another key.
    """
    try:
        return _places(lined, keys)
    except _OtherForm:
        if lined.path != lined.given:
            raise
        return _places(_written_anew(lined.given, lined.scratch), keys)


class CaseReader:
    """A reader of single lines from many files, with few of them open at a time."""

    def __init__(self) -> None:
        self._open: dict[Path, IO[bytes]] = {}

    def __enter__(self) -> Self:
        """Begin without an open file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()

    def line(self, places: CasePlaces, number: int, key: str, first: int) -> str:
        """Return the line of a case, with its part.

        Args:
            places: the file.
            number: the number of its key.
            key: the key.
            first: the number of the file's first part among all.

        Raises:
            UsageError: if the file is not the same any more.
        """
        file = self._file(places.path)
        file.seek(places.places[2 * number])
        line = file.read(places.places[2 * number + 1])
        begin = f'{{"key":{compact_json(key)},'.encode()
        end = _PART.search(line)
        if end is None or not line.startswith(begin):
            raise UsageError(f"{places.given} has changed while it was merged; merge again")
        return f'{line[: end.start()].decode()}"part":{first + int(end[1] or 0)}}}'

    def _file(self, path: Path) -> IO[bytes]:
        file = self._open.pop(path, None)
        if file is None:
            if len(self._open) == _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()  # the one not used for longest
            file = path.open("rb")
        self._open[path] = file
        return file


def write_lines(path: Path, header: VariantResult, lines: Iterable[str]) -> None:
    """Write a result file whose cases are given as lines, one at a time.

    Raises:
        UsageError: if it cannot be written.
        ValueError: if `read_result` would refuse the header.
    """
    for problem in header_problems(header, ()):
        raise ValueError(f"result of variant {header.variant.name!r}: {problem}")
    with replacing(path) as file:
        for chunk in result_chunks(header, lines):
            file.write(chunk.encode())


def _written_anew(path: Path, scratch: Path) -> LinedResult:
    """Return a copy of a sound result in the form that bt-bench writes."""
    result = read_result(path)
    scratch.mkdir(parents=True, exist_ok=True)
    copy = write_result(RunFolder(scratch), result)
    return LinedResult(path, copy, result.model_copy(update={"cases": []}), scratch)


def _header_of(path: Path) -> VariantResult:
    """Return a result without its cases.

    Raises:
        UsageError: if it cannot be read.
        _OtherForm: if it is in another form, or no result.
    """
    head: list[bytes] = []
    try:
        with path.open("rb") as file:
            for line in file:
                if line.startswith(_CASES):
                    break
                if not head and packing_of(line):
                    raise _OtherForm
                head.append(line)
            else:
                raise _OtherForm
        text = b"".join(head) + _CASES + b"]}"
        header = VariantResult.model_validate_json(text, strict=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError:
        raise _OtherForm from None  # reading it as a whole tells more
    if repeated_key(text.decode()) or any(header_problems(header, ())):
        raise _OtherForm
    return header


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield offset and text of the line of each case."""
    offset, inside = 0, False
    with path.open("rb") as file:
        for line in file:
            text = line.rstrip(b"\n")
            if not inside:
                inside = text == _CASES
                if text == _CASES + _NO_CASES:
                    return
            elif text.strip() == _NO_CASES:
                return
            else:
                case = text[_INDENT:].removesuffix(b",")
                if not case.startswith(b"{") or not _PART.search(case):
                    raise _OtherForm
                yield offset + _INDENT, case
            offset += len(line)


def _places(lined: LinedResult, keys: Sequence[str]) -> CasePlaces:
    header, given = lined.header, lined.given
    numbers = {key: number for number, key in enumerate(keys)}
    places = array("Q", bytes(16 * len(keys)))
    statuses: dict[Status, int] = {}
    parser = CaseParser(context_of(header.suite), KnownTexts(_MOST_KNOWN))
    with no_collection(collect_first=False):
        for index, (offset, line) in enumerate(_lines(lined.path)):
            try:
                case, repeated = parser.parse(line)
            except ValidationError:
                raise _OtherForm from None  # reading it as a whole tells more
            at = f"$.cases[{index}]"
            number = numbers.get(case.key)
            if number is None:
                raise UsageError(
                    f"{given} has a case {case.key!r}, which is not of its shard; expected a case "
                    "that the list of shards beside it gives to it"
                )
            if places[2 * number + 1]:
                raise UsageError(f"{given} is damaged: it has the case {case.key!r} twice")
            if repeated is not None:
                raise UsageError(f"{given} is damaged: case {case.key!r} {repeated}")
            for check in (part_problems(at, case, header), case_problems(at, case)):
                for problem in check:
                    raise UsageError(f"{given} is damaged: {problem} (case {case.key})")
            places[2 * number], places[2 * number + 1] = offset, len(line)
            statuses[case.status] = statuses.get(case.status, 0) + 1
    return CasePlaces(lined.path, given, places, statuses)
