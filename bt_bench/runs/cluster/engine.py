"""The engine of a cluster, as a sweep needs it: it runs shards, and counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bt_bench.runs.cluster.task import Ended


@dataclass(frozen=True)
class ShardTask:
    """A shard to be measured; see `run_shard`.

    Args:
        index: the shard, counted from 1.
        folder: of its run.
        arguments: to begin it.
        resumed: to continue it.
        versions: that the worker has to have.
    """

    index: int
    folder: Path
    arguments: Sequence[str]
    resumed: Sequence[str]
    versions: Mapping[str, str]


class Engine(Protocol):
    """Workers somewhere, each of which runs `run_shard` on a device of its own."""

    def submit(self, task: ShardTask) -> Future[Ended]:
        """Have a worker run a shard, once; the future raises if the worker is lost."""
        ...

    def num_running(self) -> int:
        """Return the number of shards that workers have begun and not yet ended."""
        ...
