"""`--set axis=value`: values from the command line in place of those of the config."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.config.expand import kinds_of
from bt_bench.config.problems import Place, Problems
from bt_bench.config.sections import Axis, CaseTemplate, Document
from bt_bench.config.validation import Vocabulary, is_list, leaves
from bt_bench.config.yaml import Entry, Located, parse_yaml
from bt_bench.errors import UsageError, names_hint, shown
from bt_bench.results import Plan

_PLAN = "plan."


def apply_overrides(document: Document, overrides: Sequence[str], problems: Problems) -> None:
    """Puts values of `--set` into a document; for the same parameter the last one counts."""
    values: dict[str, Axis] = {}
    for text in overrides:
        parsed = _parse(text, problems)
        if parsed is not None:
            values[parsed[0]] = parsed[1]
    vocabulary = document.vocabulary
    _drop_conflicts(values, vocabulary, problems)
    # The kind of workload decides to which cases the others apply.
    for key in sorted(values, key=lambda key: key != "workload"):
        axis = values[key]
        if key.startswith(_PLAN):
            _set_plan(document, key, axis, problems)
        elif vocabulary.is_parameter(key):
            _set_parameter(document, key, axis, problems)
        else:
            plan_keys = [_PLAN + name for name in leaves(Plan)]
            hint = names_hint(key, (*vocabulary.names, *plan_keys))
            problems.add(axis.key_place, f"unknown axis {shown(key)}; {hint}")


def _drop_conflicts(values: dict[str, Axis], vocabulary: Vocabulary, problems: Problems) -> None:
    """Refuses options that would silently undo each other."""
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
    return key, Axis([_at(item, place) for item in values], place)


def _values(text: str) -> list[Located]:
    """The values of a comma-separated text; an empty list if it is not YAML."""
    problems = Problems()
    try:
        located = parse_yaml(f"[{text}\n]", "", problems)
    except UsageError:
        return []
    if located is None or not isinstance(located.value, list) or problems:
        return []
    return located.value


def _at(located: Located, place: Place) -> Located:
    """The same value, with the option as its place instead of a line of a file."""
    value = located.value
    if isinstance(value, list):
        return Located([_at(item, place) for item in value], place)
    if isinstance(value, dict):
        entries = {key: Entry(_at(entry.located, place), place) for key, entry in value.items()}
        return Located(entries, place)
    return Located(value, place)


def _set_plan(document: Document, key: str, axis: Axis, problems: Problems) -> None:
    name = key.removeprefix(_PLAN)
    field = leaves(Plan).get(name)
    if field is not None and is_list(field):
        value = _as_list(axis)
    elif len(axis.values) == 1:
        value = axis.values[0]
    else:
        problems.add(
            axis.key_place, f"{key} has {len(axis.values)} values; a sweep has one plan, give one"
        )
        return
    document.plan = document.plan | {name: Entry(value, axis.key_place)}


def _as_list(axis: Axis) -> Located:
    """Reads `a,b` and `[a, b]` as the same list."""
    if len(axis.values) == 1 and isinstance(axis.values[0].value, list):
        return axis.values[0]
    return Located(axis.values, axis.key_place)


def _set_parameter(document: Document, key: str, axis: Axis, problems: Problems) -> None:
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
        for leaf, entry in vocabulary.flatten(key, Entry(axis.values[0], axis.key_place), problems):
            document.overrides[leaf] = entry


def _parts(key: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    return tuple(f"{key}.{part}" for part in vocabulary.parts_of(key))


def _drop(case: CaseTemplate, keys: Sequence[str]) -> None:
    for key in keys:
        case.fixed.pop(key, None)
        case.zipped.pop(key, None)
        case.product.pop(key, None)
