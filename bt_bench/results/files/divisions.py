"""The division of a sweep into shards: one file beside the config of each shard's run.

Its first line has the shard of the run. Then comes a line for each case of the whole sweep, in
the config's order, with a digest of its parameters and its shard. So each shard knows which cases
the others have, and a merge can name those that are missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from pydantic import ValidationError

from bt_bench.base import compact_json, open_own, replacing
from bt_bench.base.errors import UsageError
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.result import Shard

DIVISION_NAME = "shards.jsonl"


class DividedCase(NamedTuple):
    """A case of a divided sweep: its name, the digest of its parameters, and its shard."""

    name: str
    digest: str
    shard: int


class _Head(Noun):
    """The first line of the file."""

    schema_version: Literal[1] = 1
    kind: Literal["shards"] = "shards"
    shard: Shard


@dataclass(frozen=True)
class Division:
    """The division of a sweep, as one of its shards sees it.

    Args:
        index: the shard, counted from 1.
        count: number of shards.
        balance: id of the earlier run by whose seconds the cases were divided, if any.
        cases: all cases of the sweep, in the config's order.
        digest: of everything but `index`.
    """

    index: int
    count: int
    balance: str | None
    cases: Sequence[DividedCase]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Take the digest."""
        digest = hashlib.sha256(compact_json([self.count, self.balance]).encode())
        for case in self.cases:
            digest.update(_line(case))
        object.__setattr__(self, "digest", digest.hexdigest())

    @property
    def shard(self) -> Shard:
        """The shard, as results record it."""
        return Shard(
            index=self.index,
            count=self.count,
            balance=self.balance,
            cases=len(self.cases),
            division=self.digest,
        )

    @property
    def own(self) -> list[str]:
        """Names of the shard's own cases, in the config's order."""
        return [case.name for case in self.cases if case.shard == self.index]

    @cached_property
    def names(self) -> dict[int, list[str]]:
        """Names of the cases of each shard that has any, in the config's order."""
        names: dict[int, list[str]] = {}
        for case in self.cases:
            names.setdefault(case.shard, []).append(case.name)
        return names


def write_division(folder: Path, division: Division) -> None:
    """Write the division into the folder of a shard's run.

    Raises:
        UsageError: if it cannot be written.
    """
    with replacing(folder / DIVISION_NAME) as file:
        head = _Head(shard=division.shard).model_dump(mode="json")
        file.write(compact_json(head).encode() + b"\n")
        file.writelines(map(_line, division.cases))


def read_shard(folder: Path) -> Shard | None:
    """Read from the folder of a run only which shard it is; `None` if it is none.

    Raises:
        UsageError: if the file is damaged.
    """
    path = folder / DIVISION_NAME
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            return _head(path, file.readline())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def read_division(folder: Path) -> Division | None:
    """Read the division from the folder of a run; `None` if the run is no shard.

    Raises:
        UsageError: if the file is damaged.
    """
    path = folder / DIVISION_NAME
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            shard = _head(path, file.readline())
            cases = list(_cases(path, file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    division = Division(shard.index, shard.count, shard.balance, cases)
    if division.shard != shard:
        raise UsageError(
            f"{path} is damaged: its cases do not have the digest in its first line; copy it anew, "
            "or measure the shard again"
        )
    return division


def _line(case: DividedCase) -> bytes:
    return compact_json(list(case)).encode() + b"\n"


def _head(path: Path, line: bytes) -> Shard:
    try:
        return _Head.model_validate_json(line, strict=True).shard
    except ValidationError as error:
        what = error.errors(include_url=False)[0]["msg"]
        raise UsageError(f"{path} does not begin as a division into shards: {what}") from None


def _cases(path: Path, lines: Iterator[bytes]) -> Iterator[DividedCase]:
    decoder = msgspec.json.Decoder(DividedCase)
    for number, line in enumerate(lines, start=2):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path} is damaged: line {number} is not a case: {error}") from None
