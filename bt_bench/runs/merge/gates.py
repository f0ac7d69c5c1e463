"""Merging of the gates of shards: their verdicts and rounds in one folder, as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bt_bench import __version__
from bt_bench.analysis import Judged
from bt_bench.base import write_text
from bt_bench.base.errors import UsageError
from bt_bench.base.names import RECORDING_NAME, VERDICTS_NAME
from bt_bench.report.formats.json_format import render_json
from bt_bench.results import Asked, RecordedSubject, Recording, Tool, write_recording
from bt_bench.runs.gate.shards import JudgedShard, collected
from bt_bench.runs.merge.differences import gate_differences, refuse_differences, refuse_twice
from bt_bench.runs.merge.merging import (
    MergeRequest,
    named,
    new_folder,
    refuse_existing,
    refuse_missing,
)
from bt_bench.runs.merge.shard_gates import ShardGate, open_shard_gates


@dataclass(frozen=True)
class MergedGate:
    """A merged gate.

    Args:
        folder: its folder.
        judged: the verdicts of all shards.
        shards: the shards, each with its own verdicts.
        asked: the options that all shards had.
        missing: a line for each shard without verdicts.
    """

    folder: Path
    judged: Judged
    shards: Sequence[JudgedShard]
    asked: Asked
    missing: Sequence[str]


def merge_gates(request: MergeRequest) -> MergedGate:
    """Merge the gates of shards; nothing is judged again, and the folder appears when complete.

    Raises:
        NotComparableError: if they are not of one gate and the same code, or if a shard is missing
            or did not end, and that is not allowed.
        UsageError: for a shard that is there twice, a damaged file, or an existing folder.
    """
    refuse_existing(request.out)
    gates = open_shard_gates(request.folders)
    refuse_differences(gates, gate_differences, "gate")
    refuse_twice(gates)
    shards = [
        JudgedShard(gate.recording, gate.judged, gate.own)
        for gate in gates
        if gate.recording is not None and gate.judged is not None
    ]
    if not shards:
        raise UsageError(
            f"{request.folders[0]} has no verdicts; expected the gate of at least one shard that "
            "has ended"
        )
    missing = list(_missing(gates))
    refuse_missing(missing, request)
    cases = [case.name for case in gates[0].division.cases]
    judged = collected(shards, cases, missing)
    with new_folder(request.out) as folder:
        write_recording(folder / RECORDING_NAME, _recording(request, shards, cases, missing))
        write_text(folder / VERDICTS_NAME, render_json(judged))
    asked = shards[0].recording.asked
    assert asked is not None
    return MergedGate(request.out, judged, shards, asked, missing)


def _missing(gates: Sequence[ShardGate]) -> Iterator[str]:
    """Yield a line for each shard that has cases and no verdicts."""
    division = gates[0].division
    by_index = {gate.shard.index: gate for gate in gates}
    for index, names in sorted(division.names.items()):
        gate = by_index.get(index)
        if gate is None:
            yield f"shard {index}/{division.count} is missing: {named(names)}"
        elif gate.judged is None:
            yield f"shard {gate.shard.text} in {gate.folder} has not ended: {named(names)}"


def _recording(
    request: MergeRequest,
    shards: Sequence[JudgedShard],
    cases: Sequence[str],
    missing: Sequence[str],
) -> Recording:
    parts = [shard.recording for shard in shards]
    first = next((part for part in parts if part.judging is not None), parts[0])
    places = {name: place for place, name in enumerate(cases)}
    subjects: list[RecordedSubject] = [each for part in parts for each in part.subjects]
    command = ["bt-bench", "merge", *map(str, request.folders), "--out", str(request.out)]
    environments = [each for part in parts for each in (part.environment, *part.others)]
    return first.model_copy(
        update={
            "created": max(part.created for part in parts),
            "tool": Tool(version=__version__, command=command),
            "environment": environments[0],
            "others": environments[1:],
            "apart": {},
            "judging": first.judging and first.judging.model_copy(update={"share": 1.0}),
            "shard": None,
            "subjects": sorted(subjects, key=lambda each: places[each.case]),
            "rounds": [],
            "parts": parts,
            "missing": list(missing),
        }
    )
