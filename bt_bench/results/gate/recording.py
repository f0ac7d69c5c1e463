"""Recordings of the process-rounds of a live gate, for judging them again and resampling.

A recording is one JSON file of raw values; readers derive the verdicts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from bt_bench.base import name_of, read_text, write_text
from bt_bench.base.errors import UsageError
from bt_bench.base.names import FailOn, Operation
from bt_bench.results.files.invalid import parsed
from bt_bench.results.files.kinds import RECORDING
from bt_bench.results.gate.rounds import GateArm, GateRound, SeriesKey
from bt_bench.results.run.metrics import metric_named
from bt_bench.results.run.nouns import Method, Noun
from bt_bench.results.run.result import Environment, Shard, Tool
from bt_bench.results.run.soundness import impossible_times
from bt_bench.results.run.suites import SuiteInfo, context_of

SCHEMA_VERSION: Final = 2
BEFORE_PAIRS: Final = "recorded by a version that measured each arm in a process of its own"
_OF_SHARDS = ("shard", "asked", "parts", "missing")
_OF_ARMS = ("changes", "places")  # of shards alone, too
DECIMALS = 6  # of a microsecond: far finer than any clock, without digits of binary rounding


class Revision(Noun):
    """The revision of an arm: its label, and the commit if there is one.

    Shards have in `changes` a digest of the changes since the commit, if there are any, and in
    `places` the folders of kernels and variants in the repository.
    """

    label: str
    commit: str | None = None
    dirty: bool | None = None
    changes: str | None = None
    places: list[str] = []


class RecordedSubject(Noun):
    """A row of the table of subjects, see `bt_bench.results.gate.rounds.SeriesKey`."""

    operation: Operation
    case: str
    variant: str
    metric: str


class RecordedRound(Noun):
    """One round: the arms in order of time, and per arm a value for each subject of the table.

    A value is `None` if it was not measured. An arm without values may be absent from `values`.
    `ticks` has the tick of the device's clock in µs by method, as far as times showed it. `device`
    counts the devices of the recording.
    """

    order: list[GateArm]
    values: dict[GateArm, list[Annotated[float, Field(ge=0)] | None]]
    ticks: dict[Method, Annotated[float, Field(gt=0)]] = {}
    device: Annotated[int, Field(ge=0)] = 0


class Judging(Noun):
    """The rules that a gate judges its rounds by; margins are shares.

    Cases may have margins of their own; `most_rounds` limits the look that noise calls for.
    `share` is the share of the gate's figures that the recording has; other shards have the others.
    """

    margin: Annotated[float, Field(ge=0)]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    looks: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    most_rounds: Annotated[int, Field(ge=1)]
    detect: Annotated[float, Field(gt=0)]
    margins: dict[str, Annotated[float, Field(ge=0)]] = {}
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


class Asked(Noun):
    """The options of a gate that all of its shards have, beside its rules and revisions.

    `config` is the config without its cases, whose digests are in the division into shards.
    """

    metrics: list[str]
    fail_on: list[FailOn]
    require_power: bool
    time_equal: bool
    build: str | None
    config: dict[str, Any]


class Recording(Noun):
    """A recording: its origin and its rounds, with values in the units of their metrics.

    In a round, one process measures all arms in turns. A variant in `apart` has a process for each
    of its arms instead, for the reason given there; in schema 1, which is read too, all have.
    `judging` is `None` for rounds without a gate, and in recordings of earlier versions. If several
    devices measured, `environment` is the first one's.

    The recording of a shard has `shard` and `asked`. A merged one has those of its shards in
    `parts`, the subjects of all, no rounds itself, and in `missing` a line for each shard without
    verdicts.
    """

    schema_version: Literal[1, 2] = SCHEMA_VERSION
    created: str  # ISO 8601, UTC
    tool: Tool
    environment: Environment
    others: list[Environment] = []
    config: str
    suite: SuiteInfo | None = None
    arms: dict[GateArm, Revision]
    apart: dict[str, str] = {}
    judging: Judging | None = None
    shard: Shard | None = None
    asked: Asked | None = None
    subjects: list[RecordedSubject]
    rounds: list[RecordedRound]
    parts: list[Recording] = []
    missing: list[str] = []

    def measured_apart(self) -> dict[str, str]:
        """Return the variants whose arms ran in a process each, and why; other arms shared one."""
        if self.schema_version == 1:
            return {subject.variant: BEFORE_PAIRS for subject in self.subjects}
        return dict(self.apart)

    def table(self) -> list[SeriesKey]:
        """Return the subjects, in their order in `values`."""
        return [SeriesKey(s.operation, s.case, s.variant, s.metric) for s in self.subjects]

    def gate_rounds(self) -> list[GateRound]:
        """Return the rounds by subject, without values that were not measured."""
        table = self.table()
        return [
            GateRound(
                tuple(taken.order),
                {
                    arm: {
                        s: value for s, value in zip(table, row, strict=True) if value is not None
                    }
                    for arm, row in taken.values.items()
                },
                taken.ticks,
                taken.device,
            )
            for taken in self.rounds
        ]


class Recorder:
    """A writer of a recording, round by round; the file is complete after each `add`.

    Args:
        path: the file; replaced if it exists.
        header: the recording without subjects and rounds.

    Raises:
        UsageError: if it cannot be written.
    """

    def __init__(self, path: Path, header: Recording) -> None:
        self._path = path
        self._header = header
        self._rounds: list[GateRound] = []
        write_recording(path, header)

    def add(self, rounds: Sequence[GateRound]) -> None:
        """Store more rounds; the table grows by subjects that no earlier round had."""
        self._rounds.extend(rounds)
        write_recording(self._path, self.recording)

    @property
    def recording(self) -> Recording:
        """The recording so far."""
        return with_rounds(self._header, self._rounds)


def with_rounds(header: Recording, rounds: Sequence[GateRound]) -> Recording:
    """Return a recording with these rounds and a table of all their subjects."""
    subjects = {s for taken in rounds for values in taken.values.values() for s in values}
    table = sorted(subjects)
    return header.model_copy(
        update={
            "subjects": [RecordedSubject(**vars(subject)) for subject in table],
            "rounds": [_recorded_round(taken, table) for taken in rounds],
        }
    )


def write_recording(path: Path, recording: Recording) -> None:
    """Write or replace the file atomically, with a line per subject and per round.

    Raises:
        ValueError: if `read_recording` would refuse it.
        UsageError: if it cannot be written.
    """
    for problem in _problems(recording):
        raise ValueError(f"recording for {path}: {problem}")
    write_text(path, "".join(_chunks(recording)))


def read_recording(path: Path | str) -> Recording:
    """Read a recording, or standard input for `-`.

    Raises:
        UsageError: with the file, the problem and its place.
    """
    name = name_of(path)
    text = read_text(path, name, "a recording of rounds", "recording.json")
    return parsed(text, name, Recording, RECORDING, _context(text), _problems)


def _context(text: str) -> dict[str, object]:
    """Return the context for validating operations: the suite's, if that can be read."""
    try:
        suite = SuiteInfo.model_validate(json.loads(text)["suite"])
    except (ValueError, KeyError, TypeError, RecursionError):
        suite = None  # of an earlier version, or damaged, which is reported elsewhere
    return context_of(suite)


def _recorded_round(taken: GateRound, table: Sequence[SeriesKey]) -> RecordedRound:
    values = {
        arm: [_rounded(row.get(subject)) for subject in table] for arm, row in taken.values.items()
    }
    order, ticks = list(taken.order), dict(taken.ticks)
    return RecordedRound(order=order, values=values, ticks=ticks, device=taken.device)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), DECIMALS)


def _problems(recording: Recording) -> Iterator[str]:
    """Yield problems that types do not catch, each with its JSON path."""
    for index, part in enumerate(recording.parts):
        for problem in _problems(part):
            yield problem.replace("$", f"$.parts[{index}]", 1)
    if GateArm.BASE not in recording.arms:
        yield "$.arms lacks 'base', which all others are compared with"
    for subject, count in Counter(recording.table()).items():
        if count > 1:
            names = (subject.operation, subject.case, subject.variant, subject.metric)
            yield f"$.subjects has {', '.join(names)} {count} times; expected it once"
    for index, subject in enumerate(recording.table()):
        try:
            metric_named(subject.metric)
        except UsageError as error:
            yield f"$.subjects[{index}].metric: {error}"
    for index, taken in enumerate(recording.rounds):
        yield from _round_problems(f"$.rounds[{index}]", taken, recording)


def _round_problems(path: str, taken: RecordedRound, recording: Recording) -> Iterator[str]:
    if len(set(taken.order)) != len(taken.order):
        yield f"{path}.order has an arm twice; expected each once"
    if taken.device > len(recording.others):
        devices = 1 + len(recording.others)
        yield f"{path}.device is {taken.device}; expected one of {devices}, counted from 0"
    for arm in taken.order:
        if arm not in recording.arms:
            yield f"{path}.order has {arm.value!r}; expected only arms that $.arms names"
    for arm, row in taken.values.items():
        if arm not in taken.order:
            yield f"{path}.values has {arm.value!r}, which is not in its order"
        if len(row) != len(recording.subjects):
            yield (
                f"{path}.values.{arm.value} has {len(row)} values; "
                f"expected {len(recording.subjects)}, one for each subject"
            )
        yield from impossible_times(f"{path}.values.{arm.value}", row)


def _chunks(recording: Recording) -> Iterator[str]:
    yield "{\n"
    fields = recording.model_dump(mode="json")
    told = [(fields, _OF_SHARDS), *((arm, _OF_ARMS) for arm in fields["arms"].values())]
    for section, names in told:  # few recordings have any of them
        for name in names:
            if not section[name]:
                del section[name]
    lists = [name for name in ("subjects", "rounds", "parts") if name in fields]
    yield ",\n".join(f"  {json.dumps(k)}: {_line(v)}" for k, v in fields.items() if k not in lists)
    for key in lists:
        rows = ",\n".join(f"    {_line(row)}" for row in fields[key])
        yield f',\n  "{key}": [' + (f"\n{rows}\n  ]" if rows else "]")
    yield "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
