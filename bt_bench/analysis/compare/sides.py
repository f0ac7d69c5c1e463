"""The arguments of `compare`: results, their labels, and their matchups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.labels import unique_labels
from bt_bench.base import STDIN
from bt_bench.base.errors import NotComparableError, OtherSchemaError, UsageError
from bt_bench.results import (
    CONFIG_NAME,
    RESULT_SUFFIX,
    CompactResult,
    in_order,
    read_compact,
    read_compact_run,
)


@dataclass(frozen=True)
class Given:
    """An argument: a result file, a run folder or `-`; `label` is `None` where none was given."""

    label: str | None
    path: str

    @property
    def is_folder(self) -> bool:
        """Return whether it is a run folder."""
        return self.path != STDIN and Path(self.path).is_dir()

    @property
    def folder(self) -> Path | None:
        """Return the run folder; `None` for stdin."""
        if self.path == STDIN:
            return None
        return Path(self.path) if self.is_folder else Path(self.path).parent


@dataclass(frozen=True)
class Matched:
    """The matchups, and the labels of both sides as wholes.

    `wholes` maps each side to the member of `others` that it is, or is a variant of. It omits a
    variant that its run should have but does not: nothing of it can be compared.
    """

    base: str
    others: tuple[str, ...]
    matchups: tuple[Matchup, ...]
    wholes: Mapping[str, str]


def parse_given(text: str) -> Given:
    """Parse `label=path` or a path; an existing file with `=` in its name is a path.

    Raises:
        UsageError: for a label or a path that is empty.
    """
    label, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return Given(None, text)
    if not label.strip() or not path:
        raise UsageError(f"{text}: expected LABEL=PATH, or a path")
    return Given(label.strip(), path)


PlannedOf = Callable[[Path, Collection[str]], tuple[str, ...] | None]
"""The signature of `config.planned_variants`: the variants that a run folder's config names."""


def match_sides(
    given: Sequence[Given], planned_of: PlannedOf, stored: Given | None = None
) -> Matched:
    """Read results, and match each with the result that it is compared with.

    Run folders only, two or more: each variant of the first is matched with the same one of the
    others. Otherwise all results are matched with the first one; in a run folder that is the
    variant `baseline`, or else the first one of its config.

    Args:
        given: the arguments.
        planned_of: returns the variants that a run folder was to have.
        stored: a stored baseline, which all are then compared with.

    Raises:
        UsageError: for an unreadable argument, or if there is only one result.
        NotComparableError: for a file of another schema version.
    """
    if sum(each.path == STDIN for each in given) > 1:
        raise UsageError("- is given twice; expected it once, since stdin holds one result")
    if stored is None and len(given) > 1 and all(each.is_folder for each in given):
        return _match_folders(given, planned_of)
    everything = [*(() if stored is None else (stored,)), *given]
    read = [(each, one) for each in everything for one in _read(each, planned_of)]
    if len(read) < 2:
        raise UsageError(
            f"{given[0].path} holds one result; expected two or more to compare: result files, or "
            "a run folder, or --baseline NAME"
        )
    base, *others = _labelled(read)
    there = [other for other in others if not other.absent]
    return Matched(
        base.label,
        tuple(other.label for other in others),
        tuple(Matchup(base, other) for other in others),
        # Something must be compared, even where missing variants are allowed.
        {other.label: other.label for other in there or others},
    )


def _read(given: Given, planned_of: PlannedOf) -> list[Side]:
    """Return the results of an argument; their labels are the names of their variants."""
    try:
        if not given.is_folder:
            return [_side(read_compact(given.path), given)]
        found = read_compact_run(Path(given.path))
    except OtherSchemaError as error:
        raise NotComparableError(str(error)) from None
    if not found:
        raise UsageError(f"{given.path} holds no result file; expected a run folder")
    known = [result.header.variant.name for result in found]
    planned = planned_of(Path(given.path), known) or ()
    found = in_order(found, lambda result: result.header.variant.name, planned)
    first = replace(found[0], warnings=(*found[0].warnings, *_other_runs(given, found)))
    return [
        *(_side(result, given) for result in (first, *found[1:])),
        *(_absent(name, given, found[0], planned) for name in planned if name not in known),
    ]


def _other_runs(given: Given, found: Sequence[CompactResult]) -> Iterator[str]:
    """Warn if a folder holds results of several runs; they are compared as different runs."""
    runs: dict[str, list[str]] = {}
    for result in found:
        name = f"{result.header.variant.name}{RESULT_SUFFIX}"
        runs.setdefault(result.header.run_id, []).append(name)
    if len(runs) > 1:
        named = "; ".join(f"{', '.join(names)} of run {run_id!r}" for run_id, names in runs.items())
        yield f"{given.path} has results of {len(runs)} runs: {named}"


def _absent(variant: str, given: Given, of_run: CompactResult, planned: Sequence[str] = ()) -> Side:
    """Return a stand-in for a variant without a result, with the cases of another variant."""
    info = of_run.header.variant.model_copy(update={"name": variant})
    header = of_run.header.model_copy(update={"variant": info})
    why = f"{given.path} has no result of variant {variant}"
    if variant in planned:
        why += f", which its {CONFIG_NAME} names"
    return _side(CompactResult(header, of_run.cases), given, why)


def _side(result: CompactResult, given: Given, absent: str | None = None) -> Side:
    return Side(result.header.variant.name, result, given.folder, absent)


def _labelled(read: Sequence[tuple[Given, Side]]) -> list[Side]:
    """Label sides as given, else by variant, with the run where names alone are ambiguous."""
    headers = [side.result.header for _, side in read]
    labels = [
        _label(given, default, side.label)
        for (given, side), default in zip(read, unique_labels(headers), strict=True)
    ]
    return [
        replace(side, label=label)
        for label, (_, side) in zip(unique_labels(headers, labels), read, strict=True)
    ]


def _label(given: Given, default: str, variant: str) -> str:
    if given.label is None:
        return default
    return f"{variant}@{given.label}" if given.is_folder else given.label


def _match_folders(given: Sequence[Given], planned_of: PlannedOf) -> Matched:
    folders = [{side.label: side for side in _read(each, planned_of)} for each in given]
    headers = [next(iter(folder.values())).result.header for folder in folders]
    tails = iter(_tails([Path(each.path).resolve() for each in given if not each.label]))
    names = [each.label or next(tails) for each in given]
    base, *others = unique_labels(headers, names)
    matchups: list[Matchup] = []
    wholes: dict[str, str] = {}
    for other, of_other, folder in zip(others, given[1:], folders[1:], strict=True):
        for variant in dict.fromkeys([*folders[0], *folder]):
            side = _side_of(folder, variant, other, of_other)
            matchups.append(Matchup(_side_of(folders[0], variant, base, given[0]), side))
            wholes[side.label] = other
    return Matched(base, tuple(others), tuple(matchups), wholes)


def _tails(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that tell them apart: `h100/run`, `h200/run`."""
    distinct = len({*paths})
    for count in range(1, max((len(path.parts) for path in paths), default=0)):
        tails = ["/".join(path.parts[-count:]) for path in paths]
        if len({*tails}) == distinct:
            return tails
    return [str(path) for path in paths]


def _side_of(folder: dict[str, Side], variant: str, label: str, given: Given) -> Side:
    side = folder.get(variant) or _absent(variant, given, next(iter(folder.values())).result)
    return replace(side, label=f"{variant}@{label}")
