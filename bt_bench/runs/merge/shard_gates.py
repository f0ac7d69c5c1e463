"""The gate of one shard as a merge sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bt_bench.analysis import Judged
from bt_bench.base import packed_or_not
from bt_bench.base.errors import UsageError
from bt_bench.base.names import RECORDING_NAME, VERDICTS_NAME
from bt_bench.report.formats.json_format import read_judged
from bt_bench.results import (
    CONFIG_NAME,
    DIVISION_NAME,
    Division,
    Recording,
    Shard,
    read_division,
    read_recording,
)


@dataclass(frozen=True)
class ShardGate:
    """The gate of a shard.

    Args:
        folder: its folder.
        division: the division of the whole gate.
        recording: its rounds and rules; `None` if it never began, or has no case.
        judged: its verdicts; `None` if it did not end, or has no case.
    """

    folder: Path
    division: Division
    recording: Recording | None
    judged: Judged | None

    @property
    def shard(self) -> Shard:
        """The shard."""
        return self.division.shard

    @property
    def own(self) -> list[str]:
        """Names of the shard's cases, in the config's order."""
        return self.division.own

    @property
    def origin(self) -> Recording | None:
        """Its recording, which copies have in common."""
        return self.recording

    @property
    def recording_path(self) -> Path:
        """The file of its recording."""
        return self.folder / RECORDING_NAME


def is_gate(folder: Path) -> bool:
    """Return whether a folder is a gate's, and not a run's."""
    if (folder / CONFIG_NAME).exists():
        return False
    names = (RECORDING_NAME, VERDICTS_NAME, DIVISION_NAME)
    return any(packed_or_not(folder / name).exists() for name in names)


def open_shard_gates(folders: Sequence[Path]) -> list[ShardGate]:
    """Open the gates of shards, in the order of the shards.

    Args:
        folders: their folders, in any order.

    Raises:
        UsageError: for a folder that is no gate of a shard, or holds a damaged file.
    """
    gates = [_open(folder) for folder in folders]
    return sorted(gates, key=lambda gate: (gate.shard.index, str(gate.folder)))


def _open(folder: Path) -> ShardGate:
    if not is_gate(folder):
        raise UsageError(
            f"{folder} is no gate's folder, but another one is; expected the folders of "
            "`bt-bench gate … --shard K/N`, or only of runs"
        )
    path, verdicts = (packed_or_not(folder / name) for name in (RECORDING_NAME, VERDICTS_NAME))
    recording = read_recording(path) if path.exists() else None
    division = read_division(folder)
    if division is None:
        merged = recording is not None and recording.parts
        told = "is merged already" if merged else f"has no {DIVISION_NAME}: it is no shard"
        raise UsageError(f"{folder} {told}; expected the folder of `bt-bench gate … --shard K/N`")
    if recording is not None and recording.shard != division.shard:
        raise UsageError(
            f"{path} is not of the shard that {DIVISION_NAME} beside it describes; expected "
            f"shard {division.shard.text} of that division"
        )
    if recording is None or not verdicts.exists():
        return ShardGate(folder, division, recording, None)
    judged = read_judged(verdicts, recording.suite)
    others = {case.name for case in division.cases} - {*division.own}
    for judgement in judged.judgements:
        if judgement.case in others:
            raise UsageError(
                f"{verdicts} has verdicts on case {judgement.case!r}, which is not of shard "
                f"{division.shard.text}; copy the folder anew, or run the shard again"
            )
    return ShardGate(folder, division, recording, judged)
