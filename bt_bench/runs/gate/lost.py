"""Cases that a gate loses because the head's config differs from the base's.

Both revisions are measured by the head's config, so nobody would miss a case that was removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bt_bench.base.names import Operation
from bt_bench.config import SweepSpec
from bt_bench.protocol import (
    SuiteRef,
    WorkloadParameters,
    flat_parameters,
    is_regular,
    load_suite,
)
from bt_bench.runs.gate.revisions import CACHES, own_files
from bt_bench.runs.gate.sameness import same_bytes
from bt_bench.runs.gate.trees import Tree, place_below
from bt_bench.variants import REFERENCE, encodable, real_path

_SHOWN = 3

Place = tuple[Operation, str, str]  # operation, case, variant


@dataclass(frozen=True)
class Lost:
    """The parts of the base's config that the head's lacks.

    Args:
        places: operation, case and variant that only the base's config measures.
        warnings: other differences between the configs that affect verdicts; a clause each.
    """

    places: tuple[Place, ...] = ()
    warnings: tuple[str, ...] = ()


def config_of(tree: Tree, head: Tree, config: Path) -> Path | None:
    """Return a config's path in another tree than the head's; `None` if the head's lacks it."""
    place = place_below(config, head.location.top)
    return None if place is None else tree.top / place


def other_files(spec: SweepSpec, base: Tree, head: Tree) -> tuple[str, ...]:
    """Return warnings about cases with a file, such as a trace, that differs between the trees."""
    found, checkout = [], head.location.top  # where the head's are read from
    for case in spec.cases:
        for path in case.parameters.files():
            place = place_below(path, checkout)
            if place is None or not is_regular(checkout / place):
                continue
            if not same_bytes(base.top / place, checkout / place):
                found.append(f"case {case.name} uses {place}, which differs in the base")
    return tuple(found)


def other_places(base: Tree, head: Tree) -> tuple[str, ...]:
    """Return warnings about kernels that the base's config or settings take from other folders."""
    old, new = base.location, head.location
    found = []
    for what, before, now in (
        ("variants", old.folders, new.folders),
        (f"the package {new.package}", (old.kernels,), (new.kernels,)),
    ):
        if before != now:
            here, there = (", ".join(map(str, filter(None, of))) for of in (now, before))
            found.append(
                f"{head.label} takes {what} from {here or 'no folder'}, and {base.label} from "
                f"{there or 'no folder'}, as config and settings of each have it"
            )
    return tuple(found)


def other_suite(base: Tree, head: Tree) -> tuple[str, ...]:
    """Return a warning if a user's suite differs: the head's drives and checks both revisions.

    Its package of kernels is measured, except the reference, and may differ.
    """
    if head.location.suite.folder is None:
        return ()
    if head.location.suite.is_file:
        before, now = (_driving(tree) for tree in (base, head))
        differing = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    else:
        old, new = (dict(_parts_of_suite(tree)) for tree in (base, head))
        differing = [
            name
            for name in sorted(old.keys() | new.keys())
            if name not in old or name not in new or not _is_same(old[name], new[name])
        ]
    if not differing:
        return ()
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return (
        f"the suite differs from the base's in {encodable(', '.join(differing[:_SHOWN]))}{more}; "
        f"{head.label}'s drives and checks both revisions, so a change there can hide one in "
        "the kernels",
    )


def _driving(tree: Tree) -> Mapping[str, str]:
    """Return digests of the functions that drive and check the others, in a tree's file of them."""
    kernels, file = tree.location.kernels, tree.location.suite.folder
    assert kernels is not None
    assert file is not None
    path = tree.top / kernels / file.name
    return load_suite(SuiteRef(name=path.stem, folder=path)).driving


Part = tuple[Path, str]
"""A file of a suite, and the commit if it is a submodule."""


def _parts_of_suite(tree: Tree) -> Iterator[tuple[str, Part]]:
    """Yield all files that may drive and check variants, by their names in the suite's folder.

    Any file may be read as data, whatever its name, and through links to folders too.
    """
    if tree.location.kernels is None:
        return
    package = tree.location.package
    reference = f"{package}/variants/{REFERENCE}.py"
    folder = real_path(tree.top / tree.location.kernels)
    for name, commit in own_files(tree.top, folder).items():
        if name != reference and Path(name).parts[0] == package:
            continue
        path = folder / name
        yield name, (path, commit)
        if path.is_symlink():
            yield from ((each, (file, "")) for each, file in _behind(path, name, frozenset()))


def _behind(path: Path, name: str, seen: frozenset[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files below a link to a folder, each folder once on the way to it."""
    real = real_path(path)
    if real in seen or not os.path.isdir(path):  # noqa: PTH112 - says no where it cannot find out
        return
    with suppress(OSError):
        for each in sorted(os.listdir(path)):  # noqa: PTH208
            if each not in CACHES and each != ".git":
                yield f"{name}/{each}", path / each
                yield from _behind(path / each, f"{name}/{each}", seen | {real})


def _is_same(old: Part, new: Part) -> bool:
    (before, commit), (after, other) = old, new
    # One file is the same as itself, even if it cannot be read. Two folders count as the same here:
    # the files in them are compared under names of their own.
    return commit == other and (real_path(before) == real_path(after) or same_bytes(before, after))


def without_variant(spec: SweepSpec, head: Tree) -> tuple[str, ...]:
    """Return warnings about folders of variants without a compared one."""
    entries = head.variants()
    used = [entries[name].path for name in spec.variants if name in entries]
    return tuple(
        f"no variant of {folder} is compared; name them in the config's variants, or by --variants"
        for folder in head.location.folders
        if not any(path.is_relative_to(head.top / folder) for path in used)
    )


def lost_between(base: SweepSpec, head: SweepSpec, trees: tuple[Tree, Tree]) -> Lost:
    """Compare the configs of both revisions, with the same flags applied to each.

    Args:
        base: the base's config, read in its own tree.
        head: the head's config, likewise.
        trees: base and head. A file at the same place in both counts as the same here;
            `other_files` looks into it.
    """
    base = _in_head(base, *trees)
    there = set(_places(head))
    return Lost(
        tuple(place for place in _places(base) if place not in there),
        tuple(_differences(base, head)),
    )


def _in_head(spec: SweepSpec, base: Tree, head: Tree) -> SweepSpec:
    """Return the base's config with the head's files."""

    def place(_name: str, path: Path) -> Path:
        below = place_below(path, base.top)
        return path if below is None else head.location.top / below

    cases = [
        case.model_copy(update={"parameters": case.parameters.with_files(place)})
        for case in spec.cases
    ]
    return spec.model_copy(update={"cases": cases})


def _places(spec: SweepSpec) -> Iterator[Place]:
    for case in spec.cases:
        for operation in spec.operations:
            for variant in spec.variants:
                yield operation, case.name, variant


def _differences(base: SweepSpec, head: SweepSpec) -> Iterator[str]:
    cases = {case.name: case for case in base.cases}
    for case in head.cases:
        before = cases.get(case.name)
        if before is not None and _values(before.parameters) != _values(case.parameters):
            yield f"case {case.name} has another workload in the base's config; the head's is used"
        if before is not None and before.margin_percent != case.margin_percent:
            yield (
                f"the margin of case {case.name} is {_percent(case.margin_percent)}, but "
                f"{_percent(before.margin_percent)} in the base's config"
            )
    if _suite_name(base.suite) != _suite_name(head.suite):
        yield (
            f"the suite is {_suite_name(head.suite)}, but {_suite_name(base.suite)} in the base's "
            "config"
        )
    for section in ("gate", "plan"):
        before, after = getattr(base, section), getattr(head, section)
        for name in type(after).model_fields:
            old, new = getattr(before, name), getattr(after, name)
            if old != new:
                yield f"{section}.{name} is {_shown(new)}, but {_shown(old)} in the base's config"


def _values(parameters: WorkloadParameters) -> tuple[str, object]:
    """Return a workload's values, which compare even if its suite is loaded twice."""
    return parameters.workload, flat_parameters(parameters)


def _suite_name(suite: SuiteRef) -> str:
    """Return the name of a suite; the place of a user's own is not part of it."""
    return "one of the repository's own" if suite.folder is not None else suite.name


def _percent(margin: float | None) -> str:
    return "the gate's" if margin is None else f"{margin:g} %"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "the default"
    return "the default" if value is None else str(value)
