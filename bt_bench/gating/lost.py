"""What a gate no longer looks at, since the head has another config than the base.

Both revisions are measured by the head's config. A case that it lost would be missed by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bt_bench.config.schema import SweepSpec
from bt_bench.gating.trees import Tree
from bt_bench.operation import Operation

Place = tuple[Operation, str, str]  # operation, case, variant


@dataclass(frozen=True)
class Lost:
    """What the base's config has, and the head's has not.

    Args:
        places: what is measured of which variant by the base's config alone.
        warnings: what else differs between the configs and bears on a verdict; a clause each.
    """

    places: tuple[Place, ...] = ()
    warnings: tuple[str, ...] = ()


def config_of(tree: Tree, head: Tree, config: Path) -> Path | None:
    """The file of a config in another tree; `None` where it is not one of the head's tree."""
    path = config.resolve()
    if not path.is_relative_to(head.top):
        return None
    return tree.top / path.relative_to(head.top)


def lost_between(base: SweepSpec, head: SweepSpec) -> Lost:
    """Compares the config of both revisions, with the same flags applied to each."""
    there = set(_places(head))
    return Lost(
        tuple(place for place in _places(base) if place not in there),
        tuple(_differences(base, head)),
    )


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
            yield f"case {case.name} has another workload in the base's config; the head's is taken"
        if before is not None and before.margin_percent != case.margin_percent:
            yield (
                f"case {case.name} has the margin {_percent(case.margin_percent)}, and in the "
                f"base's config {_percent(before.margin_percent)}"
            )
    for name in type(head.gate).model_fields:
        old, new = getattr(base.gate, name), getattr(head.gate, name)
        if old != new:
            yield f"gate.{name} is {_shown(new)}, and in the base's config {_shown(old)}"


def _percent(margin: float | None) -> str:
    return "of the gate" if margin is None else f"{margin:g} %"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "the default"
    return "the default" if value is None else str(value)
