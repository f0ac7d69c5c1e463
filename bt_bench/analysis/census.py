"""The comparison of two static censuses: their figures are exact, so it needs no statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from bt_bench.analysis.census_figures import (
    COMPILED_VARIANTS,
    LAUNCHES,
    CensusFigure,
    figures_of,
    per_step,
    taken,
)
from bt_bench.analysis.judging import Entry, Settled, exact, settled
from bt_bench.analysis.verdicts import LOST_FROM_CONFIG, Cause, Judged, Judgement, Verdict
from bt_bench.base.errors import NotComparableError
from bt_bench.base.names import DEFAULT_SUITE, Operation
from bt_bench.results import (
    COUNTED,
    Metric,
    OperationCensus,
    StaticCensus,
    Toolchain,
    VariantCensus,
)

ALL_CASES = "(all cases)"
"""The name in place of a case for counts over all cases; no real case can have it."""

_Place = tuple[Operation, str]
_PerTarget = dict[str, OperationCensus]


@dataclass(frozen=True)
class _Sides:
    """One variant in both censuses; it has no operations in a census that lacks it."""

    base: VariantCensus
    head: VariantCensus
    base_label: str
    head_label: str


def judge_static(
    base: StaticCensus, head: StaticCensus, base_label: str = "base", head_label: str = "head"
) -> Judged:
    """Judge the changes from one census to another: more is `SLOWER`, less is `FASTER`.

    A figure that changed differently for different targets has a metric for each, such as
    `registers/sm_90`. If a binary changed without changing a figure, this is reported as a fact and
    gets no verdict.

    Raises:
        NotComparableError: when toolchains or workloads differ, or nothing is in both.
    """
    refuse_differences(base, head, base_label, head_label)
    judgements: list[Judgement] = []
    for name in _names(base, head):
        nothing = VariantCensus(name=name, host_code="0" * 16, operations=[], kernels=[])
        both = base.variant(name) or nothing, head.variant(name) or nothing
        sides = _Sides(*both, f"{name}@{base_label}", f"{name}@{head_label}")
        judgements += _judged_variant(sides)
    if all(judgement.verdict is Verdict.MISSING for judgement in judgements):
        raise NotComparableError(
            f"{base_label} and {head_label} have no variant, operation and case in common: "
            f"{_content(base)} against {_content(head)}"
        )
    return Judged(
        title=f"Static census of {head.config}: {head_label} against {base_label}",
        base=base_label,
        others=(head_label,),
        judgements=tuple(judgements),
        overall=(),
        facts=(_compiled_by(head.toolchain), *_facts(base, head), *_not_run(base, head)),
    )


def equal_launches(
    base: StaticCensus, head: StaticCensus, variant: str, case: str, operation: Operation
) -> bool:
    """Return whether both launch the same binaries in the same order, on the same data.

    Grids, integers and the contents of all given tensors are the same; addresses in them are
    compared only by which of them are equal. The kernels do not run here, so a kernel that would
    compute other inputs for the next one goes unnoticed.
    """
    sequences = [_sequences(census, variant, case, operation) for census in (base, head)]
    known = bool(sequences[0]) and None not in sequences[0].values()
    return known and base.toolchain == head.toolchain and sequences[0] == sequences[1]


def equal_host_code(base: StaticCensus, head: StaticCensus, variant: str) -> bool:
    """Return whether a variant's code is equal in both, up to comments, docstrings and layout."""
    before, after = base.variant(variant), head.variant(variant)
    return before is not None and after is not None and before.host_code == after.host_code


def _sequences(
    census: StaticCensus, variant: str, case: str, operation: Operation
) -> dict[str, str | None]:
    """Return digests of the launch sequence by target; empty if the census lacks the operation."""
    found = census.variant(variant)
    places = {} if found is None else _places(found)
    return {target: of.sequence for target, of in places.get((operation, case), {}).items()}


def refuse_differences(
    base: StaticCensus, head: StaticCensus, base_label: str, head_label: str
) -> None:
    """Refuse to compare censuses that were compiled differently, or for different workloads.

    Raises:
        NotComparableError: when toolchains, suites or workloads of one name differ.
    """
    differences = list(_toolchain_differences(base.toolchain, head.toolchain))
    names = [census.suite or DEFAULT_SUITE for census in (base, head)]
    if names[0] != names[1]:
        differences.append(f"suite {names[0]} against {names[1]}")
    workloads = {case.name: case.workload for case in head.cases}
    differences += [
        f"the workload of case {case.name!r}"
        for case in base.cases
        if workloads.get(case.name, case.workload) != case.workload
    ]
    if differences:
        raise NotComparableError(
            f"{base_label} and {head_label} are not comparable: {'; '.join(differences)}; "
            "take both censuses with one toolchain and one config"
        )


def _toolchain_differences(base: Toolchain, head: Toolchain) -> Iterator[str]:
    if base.triton != head.triton:
        yield f"Triton {base.triton} against {head.triton}"
    yield from _differences("ptxas for ", base.ptxas, head.ptxas)
    yield from _differences("", base.settings, head.settings)


def _differences(what: str, base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(base.keys() | head.keys()):
        if base.get(key) != head.get(key):
            yield f"{what}{key} {base.get(key, 'absent')} against {head.get(key, 'absent')}"


def _names(base: StaticCensus, head: StaticCensus) -> list[str]:
    return list(dict.fromkeys(variant.name for variant in (*base.variants, *head.variants)))


def _places(variant: VariantCensus) -> dict[_Place, _PerTarget]:
    places: dict[_Place, _PerTarget] = {}
    for operation in variant.operations:
        places.setdefault((operation.operation, operation.case), {})[operation.target] = operation
    return places


def _judged_variant(sides: _Sides) -> Iterator[Judgement]:
    base, head = _places(sides.base), _places(sides.head)
    judged: list[_Place] = []
    for place in dict.fromkeys((*base, *head)):
        if place not in base or place not in head:
            yield _missing(sides, place, in_base=place in base)
        elif why := (
            _failure(sides, base[place], head[place]) or _idle(sides, base[place], head[place])
        ):
            outcome = Settled(Verdict.INVALID, Cause.FAILED, why)
            yield settled(_entry(sides, place, COUNTED[LAUNCHES], outcome))
        else:
            judged.append(place)
            yield from _judged_place(sides, place, base[place], head[place])
    for operation in dict.fromkeys(operation for operation, _ in judged):
        cases = [place for place in judged if place[0] == operation]
        if len(cases) > 1:
            figures = _of_all_cases([base[p] for p in cases], [head[p] for p in cases])
            yield from _judgements(sides, (operation, ALL_CASES), COMPILED_VARIANTS, figures)


def _failure(sides: _Sides, base: _PerTarget, head: _PerTarget) -> str | None:
    for label, per_target in ((sides.base_label, base), (sides.head_label, head)):
        for target, operation in per_target.items():
            if operation.failure is not None:
                return f"{label} failed for {target}: {operation.failure}"
    if base.keys() != head.keys():
        return f"targets {', '.join(base)} against {', '.join(head)}"
    return None


def _idle(sides: _Sides, base: _PerTarget, head: _PerTarget) -> str | None:
    """Explain a head that launches nothing where the base does: its work is not less, but gone."""
    for target, before in base.items():
        if per_step(before) and not per_step(head[target]):
            return (
                f"{sides.head_label} launches nothing, and {sides.base_label} {per_step(before):g} "
                "per step: the work is done elsewhere or not at all, which only `bt-bench check` "
                "can find"
            )
    return None


def _judged_place(
    sides: _Sides, place: _Place, base: _PerTarget, head: _PerTarget
) -> Iterator[Judgement]:
    figures = {
        target: figures_of(taken(sides.base, base[target]), taken(sides.head, head[target]))
        for target in base
    }
    for metric in COUNTED:
        of_metric = {target: by_metric[metric] for target, by_metric in figures.items()}
        yield from _judgements(sides, place, metric, of_metric)


def _of_all_cases(base: list[_PerTarget], head: list[_PerTarget]) -> dict[str, CensusFigure]:
    """Count the kernel variants for any of the cases, as for a server that meets all of them."""
    return {
        target: CensusFigure(
            len({kernel for case in base for kernel in case[target].kernels}),
            len({kernel for case in head for kernel in case[target].kernels}),
            "over all cases",
        )
        for target in base[0]
    }


def _judgements(
    sides: _Sides, place: _Place, metric: str, figures: Mapping[str, CensusFigure]
) -> Iterator[Judgement]:
    """Yield one judgement for all targets if they changed alike or not at all, else one each."""
    unchanged = not any(figure.change for figure in figures.values())
    if unchanged or len(set(figures.values())) == 1:
        figures = {"": max(figures.values(), key=lambda figure: figure.base)}
    for target, figure in figures.items():
        of_target = COUNTED[metric]
        if target:
            of_target = replace(of_target, name=f"{metric}/{target}")
        entry = _entry(sides, place, of_target, exact(figure.base, figure.head, figure.detail))
        entry.base_value, entry.other_value = figure.base, figure.head
        yield settled(entry)


def _missing(sides: _Sides, place: _Place, in_base: bool) -> Judgement:
    labels = [sides.base_label, sides.head_label]
    there, absent = labels if in_base else reversed(labels)
    detail = f"in the census of {there}, but missing from {absent}'s"
    outcome = Settled(Verdict.MISSING, Cause.NO_CASE, detail)
    return settled(_entry(sides, place, COUNTED[LAUNCHES], outcome))


def missing_from_config(operation: Operation, case: str, variant: str, judged: Judged) -> Judgement:
    """Return the judgement `MISSING` for an operation of a case that only the base's config has."""
    return settled(
        Entry(
            operation,
            case,
            COUNTED[LAUNCHES],
            f"{variant}@{judged.base}",
            f"{variant}@{judged.others[0]}",
            outcome=Settled(Verdict.MISSING, Cause.NO_CASE, LOST_FROM_CONFIG),
        )
    )


def _entry(sides: _Sides, place: _Place, metric: Metric, outcome: Settled) -> Entry:
    return Entry(*place, metric, sides.base_label, sides.head_label, outcome=outcome)


def _facts(base: StaticCensus, head: StaticCensus) -> Iterator[str]:
    """Report per variant whether code, binaries and launches changed, which no figure shows."""
    for name in _names(base, head):
        before, after = base.variant(name), head.variant(name)
        if before is not None and after is not None:
            code = "is equal" if equal_host_code(base, head, name) else "has changed"
            other = [
                f"{operation}/{case}"
                for operation, case in _places(before).keys() & _places(after).keys()
                if not equal_launches(base, head, name, case, operation)
            ]
            said = f"{name}: the Python code {code}, {_changed_binaries(before, after)}"
            if other:
                said += f"; launches, grids or data differ in {', '.join(sorted(other))}"
            yield f"{said}."


def _not_run(base: StaticCensus, head: StaticCensus) -> Iterator[str]:
    """Report the cases that a variant runs in neither census, since it lacks a needed feature."""
    shared = {case.name for case in base.cases} & {case.name for case in head.cases}
    for name in _names(base, head):
        sides = base.variant(name), head.variant(name)
        if None not in sides:
            run = {of.case for side in sides if side is not None for of in side.operations}
            lacking = [case.name for case in head.cases if case.name in shared - run]
            if lacking:
                named = ", ".join(lacking)
                yield f"{name} runs {named} on neither side: it lacks a feature that is needed."


def _changed_binaries(before: VariantCensus, after: VariantCensus) -> str:
    shared = _places(before).keys() & _places(after).keys()
    old, new = _binaries(before, shared), _binaries(after, shared)
    targets: dict[str, list[str]] = {}
    for name, target in sorted(old.keys() | new.keys()):
        if old.get((name, target)) != new.get((name, target)):
            targets.setdefault(name, []).append(target)
    if not targets:
        return "the binaries are equal"
    changed = [f"{name} ({', '.join(of)})" for name, of in targets.items()]
    return f"the binaries differ for {', '.join(changed)}"


def _binaries(
    variant: VariantCensus, places: Collection[_Place]
) -> dict[tuple[str, str], set[str]]:
    """Return digests of the binaries launched for the given places, by kernel and target."""
    ids = {
        kernel
        for operation in variant.operations
        if (operation.operation, operation.case) in places
        for kernel in operation.kernels
    }
    found: dict[tuple[str, str], set[str]] = {}
    for kernel in variant.kernels:
        if kernel.id in ids:
            found.setdefault((kernel.name, kernel.target), set()).add(kernel.binary)
    return found


def _compiled_by(toolchain: Toolchain) -> str:
    tools = ", ".join(f"{version} for {target}" for target, version in toolchain.ptxas.items())
    return f"Compiled by Triton {toolchain.triton} and ptxas {tools}."


def _content(census: StaticCensus) -> str:
    variants = ", ".join(variant.name for variant in census.variants) or "no variant"
    cases = ", ".join(case.name for case in census.cases) or "no case"
    return f"{variants} on {cases}"
