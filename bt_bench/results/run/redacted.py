"""Results without host names, user names and absolute paths, for readers elsewhere."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from bt_bench.base.redacting import Redactor
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.result import Environment, Tool, VariantInfo, VariantResult

ValueT = TypeVar("ValueT")

_DIGEST = re.compile(r"[0-9a-f]{12,64}")
_PATTERN_OF_DIGESTS = re.compile(r".*_sha256|digest|hashes|uuid")


def redacted(value: ValueT, known: Redactor | None = None) -> ValueT:
    """Return a result, or any value that has texts of results in it, without secrets.

    Models, dataclasses, lists, tuples and mappings are rebuilt where a text in them changes; names
    of operations stay. Names of users and hosts are learned from all texts of the value first.

    Args:
        value: a `VariantResult`, a `Recording`, a `Timeline`, or an object that holds some.
        known: secrets that are known beforehand.
    """
    known = known or Redactor()
    texts, origins = _survey(value)
    hosts = [*known.hosts, *_hosts_in(origins)]
    redactor = replace(known, hosts=hosts, keep={*known.keep, *_needed_names(origins)})
    found: ValueT = _rebuilt(value, redactor.learned_from(sorted(texts)))
    return found


def _rebuilt(value: Any, redactor: Redactor) -> Any:
    if type(value) is str:
        return redactor.text(value)
    if isinstance(value, BaseModel):
        return _rebuilt_model(value, redactor)
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        found = [_rebuilt(each, redactor) for each in value]
        same = all(new is old for new, old in zip(found, value, strict=True))
        return value if same else type(value)(found)
    if isinstance(value, dict):
        pairs = [(_rebuilt(key, redactor), _rebuilt(each, redactor)) for key, each in value.items()]
        return dict(pairs) if _differs(value, dict(pairs)) else value
    if is_dataclass(value) and not isinstance(value, type):
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        changed = _changed(own, redactor)
        return replace(value, **changed) if changed else value
    if isinstance(value, PurePath):
        return type(value)(redactor.argument(str(value)))
    return value


def _differs(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> bool:
    pairs = zip(old.items(), new.items(), strict=False)
    return len(old) != len(new) or any(a is not c or b is not d for (a, b), (c, d) in pairs)


def _changed(values: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    found = {name: _rebuilt(value, redactor) for name, value in values.items()}
    return {name: new for name, new in found.items() if new is not values[name]}


def _rebuilt_model(model: BaseModel, redactor: Redactor) -> BaseModel:
    own = {name: getattr(model, name) for name in _fields_with_text(type(model))}
    changed = _changed(own, redactor)
    if isinstance(model, Tool):
        changed["command"] = [redactor.argument(each) for each in model.command]
    if isinstance(model, Environment) and model.host and not _DIGEST.fullmatch(model.host):
        changed["host"] = hashlib.sha256(model.host.encode()).hexdigest()[:12]
    if isinstance(parameters := own.get("parameters"), dict):
        for name, each in parameters.items():
            if isinstance(each, str) and (new := redactor.argument(each)) != each:
                changed["parameters"] = changed.get("parameters", parameters) | {name: new}
    return model.model_copy(update=changed) if changed else model


@cache
def _fields_with_text(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields that may hold a text: most of a result are numbers."""
    return tuple(
        name
        for name, field in model.model_fields.items()
        if _may_hold_text(field.annotation) and not _PATTERN_OF_DIGESTS.fullmatch(name)
    )


def _may_hold_text(annotation: Any, inside: tuple[Any, ...] = ()) -> bool:
    """Return whether values of a type may hold texts; `inside` are the models around it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation not in inside and any(
            _may_hold_text(field.annotation, (*inside, annotation))
            for field in annotation.model_fields.values()
        )
    if annotation in (str, Any, object):
        return True
    parts = get_args(annotation)
    return any(_may_hold_text(part, inside) for part in parts if not isinstance(part, str | int))


def _survey(value: Any) -> tuple[set[str], list[Noun]]:
    """Return the texts in a value, and the nouns in it that name machines and variants."""
    texts: set[str] = set()
    origins: list[Noun] = []
    rest = [value]
    while rest:
        each = rest.pop()
        if type(each) is str:
            texts.add(each)
        elif isinstance(each, BaseModel):
            rest += [getattr(each, name) for name in _fields_with_text(type(each))]
            if isinstance(each, Environment | VariantInfo | VariantResult):
                origins.append(each)
        elif isinstance(each, list | tuple | set | frozenset):
            rest += each
        elif isinstance(each, dict):
            rest += [*each.keys(), *each.values()]
        elif isinstance(each, PurePath):
            texts.add(str(each))
        elif is_dataclass(each) and not isinstance(each, type):
            rest += [getattr(each, field.name) for field in fields(each)]
    return texts, origins


def _needed_names(origins: Iterable[Noun]) -> Iterator[str]:
    """Yield names that a reader needs: variants, operations, configs, suites."""
    for noun in origins:
        if isinstance(noun, VariantInfo):
            yield noun.name
        elif isinstance(noun, VariantResult):
            yield noun.config
            yield from (str(case.operation) for case in noun.cases)
            if noun.suite is not None:
                yield noun.suite.name


def _hosts_in(origins: Iterable[Noun]) -> Iterator[str]:
    for noun in origins:
        if isinstance(noun, Environment) and noun.host and not _DIGEST.fullmatch(noun.host):
            yield noun.host
