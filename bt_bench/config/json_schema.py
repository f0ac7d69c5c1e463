"""The JSON Schema of a config, for editors: names, descriptions, defaults, and the form of values.

It refuses nothing that `load_config` accepts: limits that depend on several values, such as equally
long axes of a `zip`, are left to the loader. Only keywords that draft 7 has, too, are used, since
editors know those best.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from bt_bench.config.sections import MAX_NAME, NAME_RULE
from bt_bench.config.spec import GateSpec
from bt_bench.config.validation import Vocabulary, leaves
from bt_bench.protocol import SuiteRef, UserFile, at_suite, load_suite, shipped_suites
from bt_bench.results import Plan
from bt_bench.variants import default_variants

Schema = dict[str, Any]

SCHEMA_NAME = "config.schema.json"
"""Name of the file beside the stock configs of a suite that has their schema."""

_LETTERS = "[A-Za-z0-9_.=-]"
_NUMBER = r"[-+]?\d{1,18}"
_RANGE: Schema = {
    "type": "string",
    "pattern": rf"^\s*{_NUMBER}\s*\.\.\s*{_NUMBER}(\s+by\s+(\*\s*)?{_NUMBER})?\s*$",
    "description": "a range: 1..8, 8..64 by 8 or 1..1024 by *2",
}
_TEXT: Schema = {"type": "string"}
_NOT_EMPTY: Schema = {"type": "string", "minLength": 1}


def config_schema(ref: SuiteRef) -> Schema:
    """Return the JSON Schema (draft 2020-12) of configs for a suite.

    Parameters and operations are open in a config that names another suite.

    Raises:
        UsageError: if the suite does not load.
    """
    text: str = at_suite(ref, _schema_text, ref)
    found: Schema = json.loads(text)
    return found


def _schema_text(ref: SuiteRef) -> str:
    """Return the schema as JSON, in the process where the suite's code may run."""
    suite = load_suite(ref)
    names = Vocabulary(suite)
    others = [name for name in shipped_suites() if name != suite.name]
    is_own = {"not": {"enum": others}} if ref.folder else {"const": suite.name}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Sweep config of bt-bench, for the suite {suite.name}",
        "type": "object",
        "required": ["cases"],
        "additionalProperties": False,
        "properties": _general(default_variants(suite)),
        "if": {"properties": {"suite": is_own}},
        "then": {
            "properties": {
                "operations": {
                    "items": {"enum": [*suite.by_name]},
                    "default": [*map(str, suite.defaults)],
                },
                "defaults": {"$ref": "#/$defs/parameters"},
                "cases": {"items": {"$ref": "#/$defs/case"}},
            },
            "allOf": [_by_default(kind, names.default_kind) for kind in names.kinds],
        },
        "else": {"properties": {"cases": {"items": {"$ref": "#/$defs/open_case"}}}},
        "$defs": _definitions(names),
    }
    return json.dumps(schema, ensure_ascii=False)


def _general(variants: Iterable[str]) -> Schema:
    """Return the keys of a config that do not depend on its suite, or only by their values."""
    return {
        "name": {
            "type": "string",
            "pattern": rf"^{_LETTERS}{{1,{MAX_NAME}}}$",
            "patternErrorMessage": f"expected {NAME_RULE}",
            "description": "name of the sweep, in results; default: the file's name",
        },
        "description": _TEXT | {"description": "one line for people"},
        "suite": {
            "anyOf": [{"enum": shipped_suites()}, _NOT_EMPTY],
            "description": "a suite: its name, its folder, or a file of functions",
        },
        "kernels": {
            "anyOf": [_NOT_EMPTY, {"type": "array", "items": _NOT_EMPTY}],
            "description": "folder with variants of your own, or a list of folders; relative to "
            "the folder that the config is in",
        },
        "variants": _list_of(
            {"anyOf": [{"enum": [*variants]}, _TEXT]},
            "kernels to measure; default: all shipped ones but reference",
        ),
        "operations": _list_of(_TEXT, "operations to measure"),
        "plan": _section(Plan, "the measurements, and how often they are taken"),
        "gate": _section(GateSpec, "how revisions and results are compared"),
        "defaults": {
            "type": "object",
            "description": "parameters for all cases; a case's own take precedence",
        },
        "cases": {"type": "array", "minItems": 1, "description": "one or more workloads"},
    }


def _list_of(items: Schema, description: str) -> Schema:
    return {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": items,
        "description": description,
    }


def _section(model: type[BaseModel], description: str) -> Schema:
    values = _values(model)
    for value in values.values():
        if value.get("type") == "array":
            value["uniqueItems"] = True
    return _object(values) | {"description": description}


def _definitions(names: Vocabulary) -> Schema:
    of_kinds = {kind: _values(model) for kind, model in names.kinds.items()}
    merged = {
        name: _merged([own[name] for own in of_kinds.values() if name in own])
        for name in names.names
    }
    references = {name: _reference(name) for name in merged}
    placeholders = "|".join(map(re.escape, names.names))
    return {
        "parameters": _object(references),
        "axes": _object({name: _axis(name, merged[name]) for name in merged}),
        "case": _case(
            rf"({_LETTERS}|\{{({placeholders})\}})",
            {"$ref": "#/$defs/axes"},
            references,
        )
        | {
            "additionalProperties": False,
            "allOf": [_named(kind) for kind in of_kinds],
        },
        "open_case": _case(rf"({_LETTERS}|\{{[^{{}}]*\}})", {"type": "object"}, {}),
        **{f"rule_of.{kind}": _rule_of(own, merged) for kind, own in of_kinds.items()},
        **{f"value.{name}": value for name, value in merged.items()},
    }


def _case(letter: str, axes: Schema, parameters: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {
                "type": "string",
                "pattern": f"^{letter}+$",
                "patternErrorMessage": f"expected {NAME_RULE}, or parameters in braces",
                "description": "unique name; {parameter} stands for the value of a parameter",
            },
            "product": axes
            | {"description": "axes: parameters with lists of values, which are all combined"},
            "zip": axes | {"description": "axes of equal length, whose values are taken together"},
            "margin_percent": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 100,
                "description": "a change of this case up to this counts as none",
            },
            **parameters,
        },
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/value.{name}"}


def _axis(name: str, value: Schema) -> Schema:
    """Return the schema of a parameter with several values; of numbers, as ranges, too."""
    own = _reference(name)
    has_ranges = '"integer"' in json.dumps(value) or '"number"' in json.dumps(value)
    item = {"anyOf": [own, _RANGE]} if has_ranges else own
    several = {"type": "array", "minItems": 1, "items": item}
    return {"anyOf": [several, _RANGE]} if has_ranges else several


def _rule_of(own: Mapping[str, Schema], merged: Mapping[str, Schema]) -> Schema:
    """Return the rule for cases of one kind of workload: which parameters, and their limits."""
    others = {"properties": {name: False for name in merged if name not in own}}
    narrower = {
        name: value for name, value in own.items() if value != merged[name] and name != "workload"
    }
    return {"allOf": [others, {"properties": {"product": others, "zip": others, **narrower}}]}


def _named(kind: str) -> Schema:
    """Return the rule for a case that names its kind of workload."""
    return {"if": _with("workload", {"const": kind}), "then": {"$ref": f"#/$defs/rule_of.{kind}"}}


def _by_default(kind: str, default_kind: str) -> Schema:
    """Return the rule for the cases that name no kind of workload, where this one is the default.

    Args:
        kind: the kind of workload.
        default_kind: the kind without any default.
    """
    given = _with("defaults", _with("workload", {}))
    found = _with("defaults", _with("workload", {"const": kind}))
    if kind == default_kind:
        found = {"anyOf": [{"not": given}, found]}
    axes = [_with(axes, _with("workload", {})) for axes in ("product", "zip")]
    nameless = {"not": {"anyOf": [_with("workload", {}), *axes]}}
    rule = {"if": nameless, "then": {"$ref": f"#/$defs/rule_of.{kind}"}}
    return {"if": found, "then": {"properties": {"cases": {"items": rule}}}}


def _with(key: str, value: Schema) -> Schema:
    """Return the schema of a mapping that has a key with such a value."""
    return {"required": [key], "properties": {key: value}}


def _merged(several: list[Schema]) -> Schema:
    """Return the schema of a parameter with which any kind of workload takes its value."""
    different = [each for index, each in enumerate(several) if each not in several[:index]]
    if len(different) == 1:
        return different[0]
    if all("enum" in each for each in different):
        values = dict.fromkeys(value for each in different for value in each["enum"])
        return different[0] | {"enum": [*values]}
    told = {key: value for key, value in different[0].items() if key in ("description", "default")}
    return {"anyOf": different, **told}


def _values(model: type[BaseModel]) -> dict[str, Schema]:
    """Return the schema of each parameter of a model, nested ones also by their dotted parts."""
    whole = model.model_json_schema(mode="validation")
    fields = {
        name: _plain(value, whole.get("$defs", {})) for name, value in whole["properties"].items()
    }
    parts = {
        f"{name}.{part}": value
        for name, field in fields.items()
        for part, value in field.get("properties", {}).items()
    }
    for name, field in leaves(model).items():
        for mark in field.metadata:
            if isinstance(mark, UserFile) and mark.names:
                (fields | parts)[name]["examples"] = [*mark.names]
    return {
        name: {} if _converts(model, name) else value for name, value in (fields | parts).items()
    }


def _plain(value: Any, definitions: Mapping[str, Schema]) -> Any:
    """Return a schema of pydantic without references, titles, and defaults of `None`.

    Defaults and case may share the parts of a parameter, so no part is required. Docstrings of
    classes are left out: they are for readers of code.
    """
    if isinstance(value, list):
        return [_plain(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        named = {**definitions[value["$ref"].rpartition("/")[2]], "description": "", **value}
        del named["$ref"]
        return _plain(named, definitions)
    kept: Schema = {}
    for key, each in value.items():
        if key == "properties":
            kept[key] = {name: _plain(part, definitions) for name, part in each.items()}
        elif key == "const":
            kept["enum"] = [each]
        elif key in ("enum", "default"):
            if each is not None:
                kept[key] = each
        elif key not in ("title", "required") and each != "":
            kept[key] = _plain(each, definitions)
    return kept


def _converts(model: type[BaseModel], name: str) -> bool:
    """Return whether a validator of a user's own may take other values than the type has."""
    found = model.__pydantic_decorators__.field_validators.values()
    return any(each.info.mode != "after" and name in each.info.fields for each in found)


def _object(values: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(values), "additionalProperties": False}
