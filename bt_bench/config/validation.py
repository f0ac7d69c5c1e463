"""The parameters of each kind of workload, and their validation with places.

A *leaf* is a parameter without parts; the parts of a nested one are named with a dot
(`window.steps`). Defaults, cases, axes and `--set` therefore merge leaf by leaf.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bt_bench.base.errors import UsageError, listed, names_hint, shown
from bt_bench.config.problems import Place, Problems
from bt_bench.config.ranges import advice_on
from bt_bench.config.yaml import Located, YamlEntry, refuse
from bt_bench.protocol import Suite, WorkloadParameters, load_suite, place_of, ref_of

ModelT = TypeVar("ModelT", bound=BaseModel)


@cache
def leaves(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the parameters of a model by their dotted names."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= {f"{name}.{sub}": info for sub, info in leaves(field.annotation).items()}
        else:
            found[name] = field
    return found


def known_entries(
    model: type[BaseModel], given: Mapping[str, YamlEntry], problems: Problems, where: str = ""
) -> dict[str, YamlEntry]:
    """Return the entries that a model has parameters for; each other one is a problem.

    Args:
        model: the model.
        given: the entries of a mapping.
        problems: receives the unknown keys.
        where: ends the message of an unknown key's name, ` in plan`.
    """
    known = {}
    for key, entry in given.items():
        if key in leaves(model):
            known[key] = entry
        else:
            hint = names_hint(key, leaves(model))
            problems.add(entry.key_place, f"unknown key {shown(key)}{where}; {hint}")
    return known


class Vocabulary:
    """The parameters of all kinds of workload of a suite.

    Args:
        suite: the suite.

    Raises:
        UsageError: for a parameter with a type that no config can give, naming its kind.
    """

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.kinds = suite.kinds
        self.default_kind = next(iter(suite.kinds))
        for kind, model in self.kinds.items():
            for name, field in leaves(model).items():
                try:
                    expectation(field)
                except UsageError as error:
                    raise UsageError(
                        f"{place_of(suite)}: workload {kind!r}, parameter {name!r}: {error}"
                    ) from None
        of_kinds = (name for kind in self.kinds.values() for name in leaves(kind))
        self.leaves = tuple(dict.fromkeys(of_kinds))
        self._parts: dict[str, list[str]] = {}
        for leaf in self.leaves:
            outer, dot, part = leaf.partition(".")
            if dot:
                self._parts.setdefault(outer, []).append(part)

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Return the parts of a nested parameter, such as `window`; empty for any other."""
        return tuple(self._parts.get(name, ()))

    def is_parameter(self, name: str) -> bool:
        """Return whether some kind has this parameter, as a leaf or as a nested one."""
        return name in self.leaves or name in self._parts

    @property
    def names(self) -> tuple[str, ...]:
        """Leaves and nested parameters, for hints."""
        return (*self.leaves, *self._parts)

    @property
    def example(self) -> str:
        """A parameter to show in messages: a number, if there is one."""
        numbers = (
            name
            for kind in self.kinds.values()
            for name, field in leaves(kind).items()
            if field.annotation in (int, int | None)
        )
        return next(numbers, self.leaves[0])

    def kinds_with(self, name: str) -> list[str]:
        """Return the kinds of workload that have a parameter."""
        return [
            kind
            for kind, model in self.kinds.items()
            if name in leaves(model) or any(leaf.startswith(f"{name}.") for leaf in leaves(model))
        ]

    def having_text(self, name: str) -> str:
        """Return the kinds that have a parameter, in words: `uniform, batch and spread`."""
        return listed(self.kinds_with(name))

    def replaced_by(self, key: str, value: Located) -> tuple[str, ...]:
        """Return the parameters of lower layers, such as defaults, that a parameter overrides."""
        return self.suite.replaced_by(key, value.value)

    def flatten(
        self, key: str, entry: YamlEntry, problems: Problems
    ) -> Iterator[tuple[str, YamlEntry]]:
        """Yield the leaves of a parameter as a config gives it; report invalid nested ones."""
        parts = self.parts_of(key)
        if not parts:
            yield key, entry
            return
        value = entry.located.value
        if not isinstance(value, dict):
            refuse(entry.located, key, f"a mapping of {', '.join(parts)}", problems)
            return
        for part, sub_entry in value.items():
            if part in parts:
                yield f"{key}.{part}", sub_entry
            else:
                problems.add(
                    sub_entry.key_place,
                    f"unknown key {shown(part)} in {key}; {names_hint(part, parts)}",
                )


def validate(
    model: type[ModelT], entries: Mapping[str, YamlEntry], place: Place, problems: Problems
) -> ModelT | None:
    """Build a model from leaves; report each error at its leaf, or else at `place`."""
    data: dict[str, Any] = {}
    for name, entry in entries.items():
        outer, _, part = name.partition(".")
        if part:
            data.setdefault(outer, {})[part] = entry.located.plain()
        else:
            data[name] = _with_members(leaves(model).get(name), entry.located.plain())
    try:
        return model.model_validate(data, strict=True)
    except ValidationError as error:
        _report(error.errors(include_url=False), model, entries, place, problems)
        return None


def check_alone(vocabulary: Vocabulary, leaf: str, entry: YamlEntry, problems: Problems) -> None:
    """Report a value that no kind of workload takes, whatever other parameters it has.

    Args:
        vocabulary: the parameters of a suite.
        leaf: a parameter that some kind has.
        entry: its value.
        problems: collects errors.
    """
    first: tuple[type[BaseModel], list[ErrorDetails]] | None = None
    outer, _, part = leaf.partition(".")
    for model in (vocabulary.kinds[kind] for kind in vocabulary.kinds_with(leaf)):
        value = entry.located.plain()
        try:
            model.model_validate({outer: {part: value} if part else value}, strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False)
            own = [detail for detail in details if _leaf_of(detail["loc"], model) == leaf]
        else:
            return
        if not own:
            return
        first = first or (model, own)
    if first is not None:
        _report(first[1], first[0], {leaf: entry}, entry.located.place, problems)


def is_list(field: FieldInfo) -> bool:
    """Return whether a parameter is a list, and nothing else."""
    return get_origin(field.annotation) is list


def _with_members(field: FieldInfo | None, value: Any) -> Any:
    """Return the value, with names in a list as enum members; unknown names stay as they are."""
    choices = _choices(field.annotation) if field is not None else None
    if choices is None or not isinstance(value, list):
        return value
    members = {member.value: member for member in choices}
    return [members.get(item, item) if isinstance(item, str) else item for item in value]


def _choices(annotation: Any) -> type[StrEnum] | None:
    """Return the enum of a list's items, if it has named choices."""
    arguments = get_args(annotation) if get_origin(annotation) is list else ()
    if arguments and isinstance(arguments[0], type) and issubclass(arguments[0], StrEnum):
        return arguments[0]
    return None


def _report(
    details: Iterable[ErrorDetails],
    model: type[BaseModel],
    entries: Mapping[str, YamlEntry],
    place: Place,
    problems: Problems,
) -> None:
    items: dict[str, list[int]] = {}  # leaf → positions of wrong items, for lists
    for detail in details:
        field = str(detail.get("ctx", {}).get("field", ""))
        if field in entries:
            problems.add(entries[field].located.place, detail["msg"])
            continue
        leaf = _leaf_of(detail["loc"], model)
        if leaf is None:
            problems.add(place, detail["msg"])
        elif leaf not in entries:
            hint = expectation(leaves(model)[leaf])
            problems.add(place, f"{leaf!r} is missing; expected {hint}")
        else:
            items.setdefault(leaf, []).extend(
                part for part in detail["loc"] if isinstance(part, int)
            )
    for leaf, positions in items.items():
        expected = expectation(leaves(model)[leaf])
        for name, located in _wrong_values(leaf, entries[leaf].located, positions):
            value = located.plain()
            advice = "" if is_list(leaves(model)[leaf]) else _advice(value)
            advice = advice or _memory_for(model, leaf, value, entries)
            refuse(located, name, f"{expected}{advice}", problems)


def _leaf_of(loc: tuple[int | str, ...], model: type[BaseModel]) -> str | None:
    for length in (2, 1):
        name = ".".join(map(str, loc[:length]))
        if name in leaves(model):
            return name
    return None


def _wrong_values(
    leaf: str, located: Located, positions: Iterable[int]
) -> Iterator[tuple[str, Located]]:
    """Yield the wrong items of a list if only some are wrong, else the whole value."""
    wrong = sorted(set(positions))
    if not wrong or not isinstance(located.value, list):
        yield leaf, located
        return
    for position in wrong:
        yield f"{leaf}[{position}]", located.value[position]


def _advice(value: object) -> str:
    if isinstance(value, list):
        return "; several values to sweep over belong under 'product' or 'zip'"
    if isinstance(value, str) and value.strip("+-").isdecimal():
        return "; remove the quotes"
    if isinstance(value, str):
        return advice_on(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"; write {int(value)}"
    return ""


def _memory_for(
    model: type[BaseModel], leaf: str, value: object, entries: Mapping[str, YamlEntry]
) -> str:
    """Return the suite's addition to the refusal of a size, such as the memory it would take."""
    if type(value) is not int or not issubclass(model, WorkloadParameters):
        return ""
    given = {name: entry.located.plain() for name, entry in entries.items()}
    return load_suite(ref_of(model)).memory_note(leaf, value, given)


_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def expectation(field: FieldInfo) -> str:
    """Describe the valid values of a parameter in words."""
    if is_list(field) and _choices(field.annotation) is None:
        return f"a list, each {_expected(get_args(field.annotation)[0], ())}"
    return _expected(field.annotation, field.metadata)


def _expected(annotation: Any, metadata: Iterable[Any]) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        extra_metadata = [item for info in extra for item in getattr(info, "metadata", [info])]
        return _expected(inner, [*metadata, *extra_metadata])
    if origin in (Union, types.UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not type(None)]
        return " or ".join(_expected(choice, metadata) for choice in choices)
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if origin is list:
        names = _choices(annotation)
        if names is not None:
            return f"one or more of {', '.join(names)}, in a list"
        return "a list of these, not empty"
    if annotation is str and any(hasattr(item, "min_length") for item in metadata):
        return "text, not empty"
    limits = {key: value for item in metadata for key, value in _limits(item)}
    if annotation not in _PLAIN:
        raise UsageError(
            f"type {annotation} cannot be given in a config; expected int, float, bool, str, a "
            "Literal, a list of these, or a model of such parameters"
        )
    return _PLAIN[annotation] + _range(limits)


def _limits(item: Any) -> Iterator[tuple[str, Any]]:
    for key in ("ge", "gt", "le", "lt"):
        if hasattr(item, key):
            yield key, getattr(item, key)


def _range(limits: Mapping[str, Any]) -> str:
    low, above, high = limits.get("ge"), limits.get("gt"), limits.get("le")
    if "lt" in limits:
        return f"{'' if low is None else f' of {low} or more and'} below {limits['lt']}"
    if high is None:
        return "" if low is None else f" of {low} or more"
    if above is not None:
        return f" above {above:g} and up to {high:g}"
    return f" from {low} to {high}"
