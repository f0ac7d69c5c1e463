"""Merging of the runs of shards into the run that one GPU would have made.

Cases are read and written one at a time, so memory does not grow with their samples.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bt_bench import __version__
from bt_bench.base import naming, replacing, scratch_folder
from bt_bench.base.errors import NotComparableError, UsageError, counted
from bt_bench.config import merged_config
from bt_bench.results import (
    CONFIG_NAME,
    CasePlaces,
    CaseReader,
    Environment,
    Part,
    Status,
    Tool,
    VariantResult,
    place_cases,
    result_name,
    write_lines,
)
from bt_bench.runs.merge.differences import refuse_differences, refuse_twice, run_differences
from bt_bench.runs.merge.shard_runs import ShardRun, open_shard_runs

_MOST_NAMED = 10


@dataclass(frozen=True)
class MergeRequest:
    """A request to merge.

    Args:
        folders: the runs of the shards, in any order.
        out: the folder to make.
        allow_partial: merge although shards or cases are missing; the result is then partial.
    """

    folders: Sequence[Path]
    out: Path
    allow_partial: bool = False


@dataclass(frozen=True)
class Merged:
    """A merged run.

    Args:
        folder: its folder.
        header: of one of its results.
        variants: names of its variants.
        cases: number of its results of cases, over all variants.
        statuses: how many of these ended how.
        crashes: number of crashes that did not happen again.
        missing: a line for each shard with cases that are missing.
    """

    folder: Path
    header: VariantResult
    variants: Sequence[str]
    cases: int
    statuses: Mapping[Status, int]
    crashes: int
    missing: Sequence[str]

    @property
    def environments(self) -> Sequence[Environment]:
        """Where the parts were measured."""
        return self.header.environments


def merge(request: MergeRequest) -> Merged:
    """Merge the runs of the shards of a sweep; the new folder appears when it is complete.

    Raises:
        NotComparableError: if the runs are not of one sweep and the same code, or if something is
            missing and that is not allowed.
        UsageError: for a case that would be there twice, a damaged file, or an existing folder.
    """
    refuse_existing(request.out)
    with scratch_folder("merge") as scratch:
        runs = open_shard_runs(request.folders, scratch)
        # One sweep first: another one's shard 1 is no second copy of this one's.
        refuse_differences(runs, run_differences, "sweep")
        refuse_twice(runs)
        measured = [run for run in runs if run.results]
        if not measured:
            raise UsageError(
                f"{request.folders[0]} has no results; expected the run of at least one shard that "
                "has measured something"
            )
        placed = {run.shard.index: _places(run) for run in measured}
        missing = list(_missing(runs, placed))
        refuse_missing(missing, request)
        with new_folder(request.out) as folder:
            return _write(request, measured, placed, missing, folder)


def refuse_existing(out: Path) -> None:
    """Refuse a folder that exists.

    Raises:
        UsageError: naming it.
    """
    if os.path.lexists(out):
        raise UsageError(f"{out} exists, and a run is never overwritten; choose another folder")


def refuse_missing(missing: Sequence[str], request: MergeRequest) -> None:
    """Refuse to merge without shards or cases that are missing, unless that is allowed.

    Raises:
        NotComparableError: with the lines that name them.
    """
    if missing and not request.allow_partial:
        raise NotComparableError(
            "\n".join(
                [
                    *missing,
                    "Measure the missing cases and merge again, or pass --allow-partial for a "
                    "result that is marked as partial",
                ]
            )
        )


def _places(run: ShardRun) -> dict[str, CasePlaces]:
    """Check the results of a run, and return by variant where their cases are."""
    keys = run.keys
    return {variant: place_cases(lined, keys) for variant, lined in run.results.items()}


def _missing(
    runs: Sequence[ShardRun], placed: Mapping[int, Mapping[str, CasePlaces]]
) -> Iterator[str]:
    """Yield a line for each shard of which a run, a result or cases are missing."""
    division = runs[0].division
    by_index = {run.shard.index: run for run in runs}
    for index, names in sorted(division.names.items()):
        run = by_index.get(index)
        if run is None:
            yield f"shard {index}/{division.count} is missing: {named(names)}"
            continue
        keys = run.keys
        for variant in run.variants:
            places = placed.get(index, {}).get(variant)
            lacking = [
                key for number, key in enumerate(keys) if places is None or not places.has(number)
            ]
            if lacking:
                yield f"{run.name} lacks of variant {variant}: {named(lacking)}"


def named(names: Sequence[str]) -> str:
    """Return the number of cases, and the names of the first ones."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{counted(len(names), 'case')}: {', '.join(names[:_MOST_NAMED])}{more}"


def _write(
    request: MergeRequest,
    runs: Sequence[ShardRun],
    placed: Mapping[int, Mapping[str, CasePlaces]],
    missing: Sequence[str],
    folder: Path,
) -> Merged:
    statuses: Counter[Status] = Counter()
    crashes = 0
    header = None
    variants = [name for name in runs[0].variants if any(name in run.results for run in runs)]
    command = ["bt-bench", "merge", *(str(run.folder) for run in runs), "--out", str(request.out)]
    tool = Tool(version=__version__, command=command)
    parts = [part for run in runs for part in _parts(run)]
    for variant in variants:
        header = _header(runs, parts, variant, tool, complete=not missing)
        crashes += len(header.crashes)
        lines = _lines(runs, placed, variant)
        write_lines(folder / result_name(variant), header, lines)
        for of_variant in placed.values():
            if variant in of_variant:
                statuses.update(of_variant[variant].statuses)
    configs = [(run.config, run.own) for run in runs]
    order = (case.name for case in runs[0].division.cases)
    with replacing(folder / CONFIG_NAME) as file:
        file.writelines(merged_config(configs, order, request.out))
    assert header is not None
    return Merged(request.out, header, variants, sum(statuses.values()), statuses, crashes, missing)


def _parts(run: ShardRun) -> list[Part]:
    """Return the devices that have measured a shard: one, unless it went on on another."""
    header = run.header
    assert header is not None
    if header.parts is not None:
        return [part.model_copy(update={"shard": run.shard}) for part in header.parts]
    return [
        Part(
            run_id=header.run_id,
            created=header.created,
            tool=header.tool,
            environment=header.environment,
            calibration=header.calibration,
            shard=run.shard,
        )
    ]


def _header(
    runs: Sequence[ShardRun], parts: Sequence[Part], variant: str, tool: Tool, *, complete: bool
) -> VariantResult:
    headers = [run.results[variant].header for run in runs if variant in run.results]
    digest = hashlib.sha256("\n".join(part.run_id for part in parts).encode()).hexdigest()
    return headers[0].model_copy(
        update={
            # Equal ids: merged of the same runs, so their cases were measured side by side.
            "run_id": f"{headers[0].config}-merged-{digest[:16]}",
            "created": max(part.created for part in parts),
            "complete": complete,
            "tool": tool,
            "environment": parts[0].environment,
            "calibration": None,
            "crashes": [crash for header in headers for crash in header.crashes],
            "shard": None,
            "parts": list(parts),
        }
    )


def _lines(
    runs: Sequence[ShardRun], placed: Mapping[int, Mapping[str, CasePlaces]], variant: str
) -> Iterator[str]:
    """Yield the lines of the cases of a variant, in the order of the whole sweep."""
    operations = runs[0].operations
    counts = [len(_parts(run)) for run in runs]
    first_part = {run.shard.index: sum(counts[:place]) for place, run in enumerate(runs)}
    number_in = dict.fromkeys(first_part, 0)  # by shard, the number of the next of its keys
    with CaseReader() as reader:
        for case in runs[0].division.cases:
            places = placed.get(case.shard, {}).get(variant)
            for operation in operations if places is not None else ():
                assert places is not None
                number = number_in[case.shard]
                number_in[case.shard] += 1
                if places.has(number):
                    key = f"{operation}/{case.name}"
                    yield reader.line(places, number, key, first_part[case.shard])


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a hidden folder beside a path; it gets that name when the block ends well."""
    with naming(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        yield folder
        with naming(out):
            folder.chmod(0o777 & ~_umask())
            folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
