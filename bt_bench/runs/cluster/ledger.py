"""The ledger of a sweep on a cluster: which shards there are, and which are done.

It lies beside the folders of the shards. Its first line has how shards are begun and continued,
each further line a shard that is done. A line that is missing, or was cut off when the process was
killed, costs no measurement: that shard is continued, and finds all of its cases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from bt_bench.base import read_text
from bt_bench.base.errors import UsageError
from bt_bench.results import Noun
from bt_bench.runs.cluster.engine import ShardTask
from bt_bench.runs.cluster.task import Ended, versions

LEDGER_NAME = "ledger.jsonl"


class Plan(Noun):
    """Hold the commands that begin and continue the shards of a sweep.

    Args:
        shards: their number.
        arguments: of `bt-bench` to begin a shard, but for its number and folder.
        resumed: of `bt-bench` to continue one.
        versions: that every worker has to have.
    """

    shards: int
    arguments: list[str]
    resumed: list[str]
    versions: dict[str, str]

    def task(self, folder: Path, index: int) -> ShardTask:
        """Return the task of a shard, counted from 1."""
        return ShardTask(
            index,
            folder / f"{index}-of-{self.shards}",
            [*self.arguments, "--shard", f"{index}/{self.shards}"],
            self.resumed,
            self.versions,
        )

    def check_versions(self, here: Mapping[str, str] | None = None) -> None:
        """Refuse to continue shards with other versions than those that they were begun with.

        Raises:
            UsageError: naming them.
        """
        found = versions() if here is None else here
        differ = [f"{n} {found.get(n, 'none')} in place of {v}" for n, v in self.versions.items()
                  if found.get(n) != v]  # fmt: skip
        if differ:
            raise UsageError(
                f"the shards were begun with other versions: here is {', '.join(differ)}; install "
                "the earlier ones, or start a new sweep"
            )


class Ledger:
    """The shards of a sweep, and which of them are done; it is written as they end.

    Args:
        folder: of the ledger and of the shards.
        plan: of the shards.
        done: shards that are done already.
    """

    def __init__(self, folder: Path, plan: Plan, done: Sequence[int] = ()) -> None:
        self.folder = folder
        self.plan = plan
        self._done = set(done)

    @classmethod
    def begin(cls, folder: Path, plan: Plan) -> Ledger:
        """Make the folder of a new sweep.

        Raises:
            UsageError: if it exists, or cannot be made.
        """
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"{folder} exists, and shards are never overwritten; pass --resume {folder} to "
                "continue them, or choose another folder"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot make {folder}: {error.strerror}") from None
        ledger = cls(folder, plan)
        ledger._write(plan.model_dump_json())
        return ledger

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open the ledger of an interrupted sweep.

        Raises:
            UsageError: if it is not one.
        """
        path = folder / LEDGER_NAME
        if not path.is_file():
            raise UsageError(
                f"{folder} has no {LEDGER_NAME}; expected the folder that a sweep with --cluster "
                "names, such as reports/run.shards"
            )
        first, *rest = read_text(path, str(path)).split("\n")
        try:
            plan = Plan.model_validate_json(first)
        except ValidationError as error:
            what = error.errors(include_url=False)[0]["msg"]
            raise UsageError(f"{path}: line 1 is no plan of shards: {what}") from None
        done = []
        for line in rest[:-1]:  # what follows the last line break was cut off
            index = json.loads(line).get("shard") if line.startswith("{") else None
            if isinstance(index, int) and plan.task(folder, index).folder.is_dir():
                done.append(index)
        return cls(folder, plan, done)

    @property
    def done(self) -> int:
        """The number of shards that are done."""
        return len(self._done)

    def missing(self) -> list[ShardTask]:
        """Return the tasks of the shards that are not done."""
        numbers = range(1, self.plan.shards + 1)
        return [self.plan.task(self.folder, n) for n in numbers if n not in self._done]

    def folders(self) -> list[Path]:
        """Return the folders of all shards, in their order."""
        numbers = range(1, self.plan.shards + 1)
        return [self.plan.task(self.folder, number).folder for number in numbers]

    def add(self, index: int, ended: Ended) -> None:
        """Note that a shard is done."""
        self._done.add(index)
        facts = {"shard": index, "host": ended["host"], "device": ended["device"]}
        self._write(json.dumps(facts | {"seconds": ended["seconds"], "code": ended["code"]}))

    def _write(self, line: str) -> None:
        path = self.folder / LEDGER_NAME
        file: IO[str]
        try:
            with path.open("a+", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
