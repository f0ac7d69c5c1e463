"""The run of one shard as a merge sees it: all but its cases, which stay on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.config import ConfigParts, read_parts
from bt_bench.results import (
    DIVISION_NAME,
    Division,
    LinedResult,
    RunFolder,
    Shard,
    VariantResult,
    open_lined,
    read_division,
    read_shard,
)


@dataclass(frozen=True)
class ShardRun:
    """A run of a shard.

    Args:
        folder: its folder.
        shard: the shard.
        division: the division of the sweep; runs of one sweep share it, with any `index`.
        config: its config.
        results: by variant, its results; none if nothing was measured.
    """

    folder: Path
    shard: Shard
    division: Division
    config: ConfigParts
    results: dict[str, LinedResult]

    @property
    def name(self) -> str:
        """Shard and folder, for messages."""
        return f"shard {self.shard.text} in {self.folder}"

    @property
    def variants(self) -> list[str]:
        """The variants of its config."""
        return self._names("variants")

    @property
    def operations(self) -> list[str]:
        """The operations of its config."""
        return self._names("operations")

    @property
    def keys(self) -> list[str]:
        """Keys of the shard's cases, in the config's order."""
        operations = self.operations
        return [f"{operation}/{name}" for name in self.own for operation in operations]

    @property
    def own(self) -> list[str]:
        """Names of the shard's cases, in the config's order."""
        return self.division.names.get(self.shard.index, [])

    @property
    def header(self) -> VariantResult | None:
        """The head of any of its results."""
        return next((lined.header for lined in self.results.values()), None)

    @property
    def origin(self) -> str | None:
        """The run's id; `None` if nothing was measured."""
        return None if self.header is None else self.header.run_id

    def _names(self, section: str) -> list[str]:
        names = self.config.values.get(section)
        if not isinstance(names, list):
            raise UsageError(f"{self.config.path} has no list of {section}; expected one")
        return [str(name) for name in names]


def open_shard_runs(folders: Sequence[Path], scratch: Path) -> list[ShardRun]:
    """Open the runs of shards, in the order of the shards.

    Args:
        folders: their folders, in any order.
        scratch: an empty folder for results that have to be written anew.

    Raises:
        UsageError: for a folder that is no run of a shard, or holds a damaged file.
    """
    divisions: dict[str, Division] = {}  # a list of a million cases is read once
    runs = [
        _open(folder, scratch / str(number), divisions) for number, folder in enumerate(folders)
    ]
    return sorted(runs, key=lambda run: (run.shard.index, str(run.folder)))


def _open(folder: Path, scratch: Path, divisions: dict[str, Division]) -> ShardRun:
    run = RunFolder.open(folder)
    shard = read_shard(folder)
    if shard is None:
        lined = [open_lined(path, scratch) for path in run.result_paths()[:1]]
        merged = any(each.header.shards for each in lined)
        told = "is merged already" if merged else f"has no {DIVISION_NAME}: it is no shard"
        raise UsageError(
            f"{folder} {told}; expected the folder of a run of `bt-bench sweep … --shard K/N`"
        )
    division = divisions.get(shard.division) or read_division(folder)
    assert division is not None
    divisions[shard.division] = division
    results: dict[str, LinedResult] = {}
    for path in run.result_paths():
        lined_result = open_lined(path, scratch / path.name)
        variant = lined_result.header.variant.name
        if variant in results:
            raise UsageError(f"{results[variant].given} and {path} are both of variant {variant!r}")
        results[variant] = lined_result
        if lined_result.header.shard != shard:
            raise UsageError(
                f"{path} is not of the shard that {DIVISION_NAME} beside it describes; expected "
                f"shard {shard.text} of that division"
            )
    return ShardRun(folder, shard, division, read_parts(folder), results)
