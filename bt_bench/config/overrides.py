"""`--set axis=value`: values from the command line that replace the config's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bt_bench.base.errors import UsageError, names_hint, shown
from bt_bench.config.expand import kinds_of
from bt_bench.config.problems import Place, Problems
from bt_bench.config.ranges import with_ranges
from bt_bench.config.sections import Axis, CaseTemplate, ConfigDocument, Entries
from bt_bench.config.validation import Vocabulary, is_list, leaves
from bt_bench.config.yaml import Located, YamlEntry, parse_yaml
from bt_bench.results import Plan

_PLAN = "plan."


def read_overrides(overrides: Sequence[str], problems: Problems) -> dict[str, Axis]:
    """Read the values of `--set`; the last one counts if a parameter is set twice."""
    parsed = (_parse(text, problems) for text in overrides)
    return dict(found for found in parsed if found is not None)


def override_plan(plan: Entries, overrides: Mapping[str, Axis], problems: Problems) -> Entries:
    """Return a plan's entries, overridden by `--set plan.KEY=VALUE`."""
    for key, axis in overrides.items():
        if key.startswith(_PLAN) and (value := _value_of_plan(key, axis, problems)) is not None:
            plan = plan | {key.removeprefix(_PLAN): YamlEntry(value, axis.key_place)}
    return plan


def override_parameters(
    document: ConfigDocument, overrides: Mapping[str, Axis], problems: Problems
) -> None:
    """Put the values of `--set` into the cases of a document."""
    vocabulary = document.vocabulary
    values = {key: axis for key, axis in overrides.items() if not key.startswith(_PLAN)}
    _drop_conflicts(values, vocabulary, problems)
    # The kind of workload comes first: it decides which cases the others apply to.
    for key in sorted(values, key=lambda key: key != "workload"):
        axis = values[key]
        if vocabulary.is_parameter(key):
            _set_parameter(document, key, axis, problems)
        else:
            plan_keys = [_PLAN + name for name in leaves(Plan)]
            hint = names_hint(key, (*vocabulary.names, *plan_keys))
            problems.add(axis.key_place, f"unknown axis {shown(key)}; {hint}")


def _drop_conflicts(values: dict[str, Axis], vocabulary: Vocabulary, problems: Problems) -> None:
    """Refuse options that would silently undo each other."""
    for key, axis in list(values.items()):
        included = vocabulary.suite.includes.get(key, ())
        for other in (*included, *_parts(key, vocabulary)):
            if other in values:
                del values[other]
                problems.add(
                    axis.key_place, f"{key!r} is set beside {other!r}, which it includes; give one"
                )


def _parse(text: str, problems: Problems) -> tuple[str, Axis] | None:
    place = Place(f"--set {text}")
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key or not value.strip():
        problems.add(place, "expected axis=value or axis=value,value,…")
        return None
    values = _values(value)
    if not values:
        problems.add(
            place,
            f"{shown(value)} is not a YAML value; check quotes, brackets, tags and repeated keys",
        )
        return None
    expanded = with_ranges(key, [_at(item, place) for item in values], problems)
    return (key, Axis(expanded, place)) if expanded else None


def _values(text: str) -> list[Located]:
    """Return the values of a comma-separated text; an empty list if it is not YAML."""
    problems = Problems()
    try:
        located = parse_yaml(f"[{text}\n]", "", problems)
    except UsageError:
        return []
    if located is None or not isinstance(located.value, list) or problems:
        return []
    return located.value


def _at(located: Located, place: Place) -> Located:
    """Return the same value, with the option as its place instead of a line of a file."""
    value = located.value
    if isinstance(value, list):
        return Located([_at(item, place) for item in value], place)
    if isinstance(value, dict):
        entries = {key: YamlEntry(_at(entry.located, place), place) for key, entry in value.items()}
        return Located(entries, place)
    return Located(value, place)


def _value_of_plan(key: str, axis: Axis, problems: Problems) -> Located | None:
    field = leaves(Plan).get(key.removeprefix(_PLAN))
    if field is not None and is_list(field):
        return _as_list(axis)
    if len(axis.values) == 1:
        return axis.values[0]
    problems.add(
        axis.key_place, f"{key} has {len(axis.values)} values; a sweep has one plan, give one"
    )
    return None


def _as_list(axis: Axis) -> Located:
    """Read `a,b` and `[a, b]` as the same list."""
    if len(axis.values) == 1 and isinstance(axis.values[0].value, list):
        return axis.values[0]
    return Located(axis.values, axis.key_place)


def _set_parameter(document: ConfigDocument, key: str, axis: Axis, problems: Problems) -> None:
    vocabulary = document.vocabulary
    having = vocabulary.kinds_with(key)
    concerned = [case for case in document.cases if not kinds_of(case, document).isdisjoint(having)]
    if document.cases and document.all_cases and not concerned:
        problems.add(
            axis.key_place,
            f"{key!r} is a parameter of {vocabulary.having_text(key)} workloads, and no case is "
            "one",
        )
        return
    several = len(axis.values) > 1
    replaced = [name for value in axis.values for name in vocabulary.replaced_by(key, value)]
    for case in concerned:
        _drop(case, [*_parts(key, vocabulary), *replaced])
        case.fixed.pop(key, None)
        case.zipped.pop(key, None)
        if several:
            case.product[key] = axis  # where the axis was, if it was one
        else:
            case.product.pop(key, None)
    if not several:
        for leaf, entry in vocabulary.flatten(
            key, YamlEntry(axis.values[0], axis.key_place), problems
        ):
            document.overrides[leaf] = entry


def _parts(key: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    return tuple(f"{key}.{part}" for part in vocabulary.parts_of(key))


def _drop(case: CaseTemplate, keys: Sequence[str]) -> None:
    for key in keys:
        case.fixed.pop(key, None)
        case.zipped.pop(key, None)
        case.product.pop(key, None)
