"""What a gate no longer looks at because the head's config differs from the base's.

Both revisions are measured by the head's config, so nobody would miss a case that was removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bt_bench.config import SweepSpec
from bt_bench.names import Operation
from bt_bench.runs.gate.trees import Tree, place_below

Place = tuple[Operation, str, str]  # operation, case, variant


@dataclass(frozen=True)
class Lost:
    """What the base's config has but the head's does not.

    Args:
        places: operation, case and variant that only the base's config measures.
        warnings: other differences between the configs that affect verdicts; a clause each.
    """

    places: tuple[Place, ...] = ()
    warnings: tuple[str, ...] = ()


def config_of(tree: Tree, head: Tree, config: Path) -> Path | None:
    """Where a config of the head's tree is in another tree; `None` if it is not in the head's."""
    place = place_below(config, head.top)
    return None if place is None else tree.top / place


def other_files(spec: SweepSpec, base: Tree, head: Tree) -> tuple[str, ...]:
    """Warnings about cases with a file, such as a trace, that differs between the trees."""
    found = []
    for case in spec.cases:
        for path in case.parameters.files():
            place = place_below(path, head.top)
            if place is None or not (head.top / place).is_file():
                continue
            before, now = base.top / place, head.top / place
            if not before.is_file() or before.read_bytes() != now.read_bytes():
                found.append(f"case {case.name} uses {place}, which differs in the base")
    return tuple(found)


def without_variant(spec: SweepSpec, head: Tree) -> tuple[str, ...]:
    """Warnings about folders of variants none of which is compared."""
    entries = head.variants()
    used = [entries[name].path for name in spec.variants if name in entries]
    return tuple(
        f"no variant of {folder} is compared; name them in the config's variants, or by --variants"
        for folder in head.location.folders
        if not any(path.is_relative_to(head.top / folder) for path in used)
    )


def lost_between(base: SweepSpec, head: SweepSpec, trees: tuple[Tree, Tree]) -> Lost:
    """Compares the config of both revisions, with the same flags applied to each.

    Args:
        base: the base's config, read in its own tree.
        head: the head's, likewise.
        trees: of base and head. A file at the same place of both counts as the same here;
            `other_files` looks into it.
    """
    base = _in_head(base, *trees)
    there = set(_places(head))
    return Lost(
        tuple(place for place in _places(base) if place not in there),
        tuple(_differences(base, head)),
    )


def _in_head(spec: SweepSpec, base: Tree, head: Tree) -> SweepSpec:
    """The base's config with the head's files."""

    def place(_name: str, path: Path) -> Path:
        below = place_below(path, base.top)
        return path if below is None else head.top / below

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
        if before is not None and before.parameters != case.parameters:
            yield f"case {case.name} has another workload in the base's config; the head's is used"
        if before is not None and before.margin_percent != case.margin_percent:
            yield (
                f"the margin of case {case.name} is {_percent(case.margin_percent)}, but "
                f"{_percent(before.margin_percent)} in the base's config"
            )
    for section in ("gate", "plan"):
        before, after = getattr(base, section), getattr(head, section)
        for name in type(after).model_fields:
            old, new = getattr(before, name), getattr(after, name)
            if old != new:
                yield f"{section}.{name} is {_shown(new)}, but {_shown(old)} in the base's config"


def _percent(margin: float | None) -> str:
    return "that of the gate" if margin is None else f"{margin:g} %"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "the default"
    return "the default" if value is None else str(value)
