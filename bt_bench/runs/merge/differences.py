"""Differences between shards that must not be merged, each with file and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Protocol, TypeVar

from bt_bench.base.errors import NotComparableError, UsageError, shown
from bt_bench.results import (
    DIVISION_NAME,
    Division,
    Environment,
    GateArm,
    LinedResult,
    Recording,
    Shard,
    VariantResult,
    helper_differences,
    suite_name,
)
from bt_bench.runs.merge.shard_gates import ShardGate
from bt_bench.runs.merge.shard_runs import ShardRun

_MOST = 10  # differences that are listed
_PATHS = ("suite", "kernels")  # of a config; digests tell whether the code is the same
_SOFTWARE = ("device", "interpreted", "bt_bench", "commit", "torch", "triton", "cuda")


class OfShard(Protocol):
    """The folder of a shard, of a sweep or of a gate."""

    @property
    def folder(self) -> Path:
        """The folder."""
        ...

    @property
    def shard(self) -> Shard:
        """The shard."""
        ...

    @property
    def division(self) -> Division:
        """The division into shards."""
        ...

    @property
    def own(self) -> list[str]:
        """Names of the shard's cases."""
        ...

    @property
    def origin(self) -> object:
        """A value that copies have in common, and nothing else; `None`: it is unknown."""
        ...


ShardT = TypeVar("ShardT", bound=OfShard)


def refuse_differences(
    shards: Sequence[ShardT], differences: Callable[[ShardT, ShardT], Iterator[str]], whole: str
) -> None:
    """Refuse folders that are not shards of one sweep or gate, measured by the same code.

    GPUs, drivers and hosts may differ: each case keeps its own.

    Args:
        shards: in their order, at least one.
        differences: yields a line for each difference of two, beside their divisions.
        whole: `sweep` or `gate`, for the message.

    Raises:
        NotComparableError: with a line per difference from the first one, or the first measured.
    """
    first, *others = shards
    # Of a shard without a case or a round, there is nothing to compare the others with.
    measured = next((each for each in shards if each.origin is not None), first)
    found = chain(
        *(_between_divisions(first, other) for other in others),
        *(differences(measured, other) for other in shards if other is not measured),
    )
    listed = list(islice(found, _MOST + 1))
    if listed:
        more = ["… and more"] if len(listed) > _MOST else []
        raise NotComparableError(
            "\n".join([f"these are not shards of one {whole}:", *listed[:_MOST], *more])
        )


def refuse_twice(shards: Sequence[OfShard]) -> None:
    """Refuse two folders of one shard: its cases would be there twice.

    Args:
        shards: in their order.

    Raises:
        UsageError: naming both folders, and a case.
    """
    for before, run in pairwise(shards):
        if before.shard.index != run.shard.index:
            continue
        is_copy = before.origin is not None and before.origin == run.origin
        copies = " and are copies of one run" if is_copy else ""
        own = run.own
        twice = f"case {own[0]!r} would be there twice" if own else "one is enough"
        raise UsageError(
            f"{before.folder} and {run.folder} are both shard {run.shard.text}{copies}: "
            f"{twice}; leave one of them out"
        )


def _between_divisions(first: OfShard, other: OfShard) -> Iterator[str]:
    if first.division.digest != other.division.digest:
        files = [f"{each.folder / DIVISION_NAME}" for each in (first, other)]
        for what, *values in _of_divisions(first.division, other.division):
            yield _told(what, files, values)


def run_differences(first: ShardRun, other: ShardRun) -> Iterator[str]:
    """Yield the differences of two runs of shards in config, code and software."""
    files = [str(run.config.path) for run in (first, other)]
    before, after = (
        {name: value for name, value in run.config.values.items() if name not in _PATHS}
        for run in (first, other)
    )
    yield from _of_values(files, before, after)
    for variant, lined in first.results.items():
        if variant in other.results:
            yield from _of_results(lined, other.results[variant])


def _of_divisions(first: Division, other: Division) -> Iterator[tuple[str, object, object]]:
    """Yield the differences of two divisions, each with both values."""
    if first.count != other.count:
        yield "number of shards", first.count, other.count
    if first.balance != other.balance:
        by_hash = "by hash"
        yield "division", first.balance or by_hash, other.balance or by_hash
    before, after = ({case.name: case for case in each.cases} for each in (first, other))
    for name in {**before, **after}:
        if name not in before or name not in after:
            left, right = ("there" if name in each else "not there" for each in (before, after))
            yield f"case {name!r}", left, right
    common = [case.name for case in first.cases if case.name in after]
    for name in common:
        if before[name].digest != after[name].digest:
            what = f"digest of the parameters of case {name!r}"
            yield what, before[name].digest, after[name].digest
        elif before[name].shard != after[name].shard and first.count == other.count:
            yield f"shard of case {name!r}", before[name].shard, after[name].shard
    there = [case.name for case in other.cases if case.name in before]
    for number, (left, right) in enumerate(zip(common, there, strict=True), start=1):
        if left != right:
            yield f"case number {number}", left, right
            return


def gate_differences(first: ShardGate, other: ShardGate) -> Iterator[str]:
    """Yield the differences of the gates of two shards in revisions, rules, options and software.

    Of one that was stopped before it had begun, nothing is known.
    """
    files = [str(each.recording_path) for each in (first, other)]
    before, after = first.recording, other.recording
    if before is not None and after is not None:
        yield from _of_values(files, _facts_of_gate(before), _facts_of_gate(after))
        yield from _of_helpers(files, before.environment, after.environment)


def _facts_of_gate(recording: Recording) -> dict[str, object]:
    """Return the facts by name that must be equal; margins of cases are in the division."""
    suite, judging, asked = recording.suite, recording.judging, recording.asked
    rules = {"margin", "alpha", "looks", "most_rounds", "detect"}
    return {
        "schema_version": recording.schema_version,
        "tool.version": recording.tool.version,
        "config": recording.config,
        "suite": suite_name(suite),
        "suite.source_sha256": None if suite is None else suite.source_sha256,
        "arms": {arm: recording.arms[arm].model_dump() for arm in (GateArm.BASE, GateArm.HEAD)},
        "judging": judging and judging.model_dump(include=rules),
        "asked": asked and asked.model_dump(mode="json"),
        **_software(recording.environment),
    }


def _software(environment: Environment) -> dict[str, object]:
    return {f"environment.{name}": getattr(environment, name) for name in _SOFTWARE}


def _of_values(
    files: Sequence[str], first: Mapping[str, object], other: Mapping[str, object], path: str = ""
) -> Iterator[str]:
    """Yield the differences of two sections of a config, or of two lists of facts."""
    for name in {**first, **other}:
        values = first.get(name), other.get(name)
        if all(isinstance(value, dict) for value in values):
            yield from _of_values(files, *values, f"{path}{name}.")  # type: ignore[arg-type]
        elif values[0] != values[1]:
            yield _told(f"{path}{name}", files, values)


def _of_results(first: LinedResult, other: LinedResult) -> Iterator[str]:
    files = [str(first.given), str(other.given)]
    yield from _of_values(files, _facts(first.header), _facts(other.header))
    yield from _of_helpers(files, first.header.environment, other.header.environment)


def _of_helpers(files: Sequence[str], first: Environment, other: Environment) -> Iterator[str]:
    for difference in helper_differences(first.helpers, other.helpers):
        yield f"  {difference}: {files[0]} against {files[1]}"


def _facts(header: VariantResult) -> dict[str, object]:
    """Return the facts by name that must be equal."""
    suite, variant = header.suite, header.variant
    return {
        "schema_version": header.schema_version,
        "tool.version": header.tool.version,
        "config": header.config,
        **{f"plan.{name}": value for name, value in header.plan},
        "suite": suite_name(suite),
        "suite.source_sha256": None if suite is None else suite.source_sha256,
        "variant.source_sha256": variant.source_sha256,
        "variant.native": variant.native,
        **_software(header.environment),
    }


def _told(what: str, files: Sequence[str], values: Sequence[object]) -> str:
    """Return a line on a value that differs, such as `plan.rounds: 6 in A, 7 in B`."""
    sides = (f"{shown(value)} in {file}" for value, file in zip(values, files, strict=True))
    return f"  {what}: {', '.join(sides)}"
