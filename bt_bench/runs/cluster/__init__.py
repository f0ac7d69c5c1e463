"""A sweep on the GPUs of a cluster: its shards are given out to workers, and merged at the end."""

from __future__ import annotations

from pathlib import Path

from bt_bench.base.extras import refuse_packed
from bt_bench.runs.cluster.dispatch import run_shards
from bt_bench.runs.cluster.engine import Engine, ShardTask
from bt_bench.runs.cluster.ledger import LEDGER_NAME, Ledger, Plan
from bt_bench.runs.cluster.task import Ended, run_shard, versions

SUFFIX = ".shards"  # of the folder of the shards, beside the one of the merged run


def ready_files() -> dict[str, Path]:
    """Return the files of clusters that come with bt-bench, by name."""
    folder = Path(__file__).parent / "files"
    refuse_packed(folder)
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
