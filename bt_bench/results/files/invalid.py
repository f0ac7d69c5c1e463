"""Messages that explain why a text is not a valid file of bt-bench."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from bt_bench.base.errors import UsageError
from bt_bench.results.files.kinds import RESULT, DocumentKind, kind_of_document
from bt_bench.results.run.nouns import Noun
from bt_bench.results.run.result import VariantResult

_LISTS = re.compile(r"\[P*+(?:\[P*+\]P*+)*+\]".replace("P", r'[^]["]'))
"""Lists and nested lists without strings: most of a result's text, and free of keys."""

_SHOWN_VALUE_LENGTH = 60

NounT = TypeVar("NounT", bound=Noun)


def describe_invalid(
    text: str,
    error: ValidationError,
    model: type[BaseModel] = VariantResult,
    kind: DocumentKind = RESULT,
) -> str:
    """Return the predicate of a sentence about the file: `is not JSON: …`.

    Args:
        text: content of the file.
        error: the error of parsing it as `model`.
        model: the expected type.
        kind: the expected kind of document.
    """
    what = kind.name
    details = error.errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        return _describe_syntax(str(details[0]["ctx"]["error"]))
    data = from_json(text)
    if not isinstance(data, dict):
        return f"is JSON, but not a {what} of bt-bench: expected an object, got {_shown(data)}"
    found_kind = kind_of_document(data)
    if found_kind is not None and found_kind is not kind:
        return f"is a {found_kind.name}, not a {what}; {found_kind.use}"
    if "schema_version" not in data:
        return f"is JSON, but not a {what} of bt-bench: it has no schema_version"
    found = data["schema_version"]
    if found not in _versions(model):
        current = model.model_fields["schema_version"].default
        return (
            f"has schema version {_shown(found)}; expected {current}. "
            "Read it with the version of bt-bench that wrote it, or measure again"
        )
    missing = [key for key in model.model_fields if _is_missing(key, details)]
    if missing:
        return f"is not a complete {what} of bt-bench: missing {', '.join(missing)}"
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"is not a valid {what}: {_describe_detail(details[0], data)}{more}"


def parsed(
    text: str,
    name: str,
    model: type[NounT],
    kind: DocumentKind,
    context: Mapping[str, object] | None,
    problems: Callable[[NounT], Iterable[str]],
) -> NounT:
    """Parse a document, and refuse one that is damaged in any way.

    Args:
        text: content of the file.
        name: name of the file, for messages.
        model: the expected type.
        kind: the expected kind of document.
        context: context for validating it.
        problems: returns problems that types do not catch, as predicates.

    Raises:
        UsageError: with the file, the problem and its place.
    """
    if not text.strip():
        raise UsageError(f"{name} is empty; expected a {kind.name} of bt-bench")
    try:
        # Strict, or else "1" would be read as a number.
        document = model.model_validate_json(text, strict=True, context=context)
    except ValidationError as error:
        raise UsageError(f"{name} {describe_invalid(text, error, model, kind)}") from None
    if (repeated := repeated_key(text)) is not None:
        raise UsageError(f"{name} is damaged: it {repeated}")
    for problem in problems(document):
        raise UsageError(f"{name} is damaged: {problem}")
    return document


def has_other_version(text: str, error: ValidationError) -> bool:
    """Return whether a result was refused for its schema version."""
    if error.errors(include_url=False)[0]["type"] == "json_invalid":
        return False
    data = from_json(text)
    # Other kinds of files have versions of their own.
    if not isinstance(data, dict) or kind_of_document(data) not in (None, RESULT):
        return False
    return data.get("schema_version") not in (None, *_versions(VariantResult))


def _versions(model: type[BaseModel]) -> tuple[object, ...]:
    """Return the schema versions that a model accepts: the current one, and earlier ones if any."""
    return get_args(model.model_fields["schema_version"].annotation)


def repeated_key(text: str) -> str | None:
    """Return a message about a key that occurs twice in one object; `None` if there is none.

    JSON allows duplicate keys, and parsers take the last one: a person could see a value that does
    not count.

    Args:
        text: content of the file, valid JSON.
    """
    # Without its lists of numbers, a text parses in a fraction of the time. Equal keys stay equal,
    # but keys that contain a list may become equal, so a finding is checked in the whole text.
    if _first_repeated(_LISTS.sub("0", text)) is None:
        return None
    repeated = _first_repeated(text)
    if repeated is None:
        return None
    return f"has key {_shown(repeated)} more than once in one object; expected it once"


def _first_repeated(text: str) -> str | None:
    repeated: list[str] = []

    def checked(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)

    # Numbers stay as they are: they may have more digits than Python reads.
    json.loads(text, object_pairs_hook=checked, parse_int=str, parse_float=str, strict=False)
    return repeated[0] if repeated else None


def _describe_syntax(problem: str) -> str:
    if problem.startswith("EOF"):
        return f"is not JSON: it seems truncated, {problem}"
    return f"is not JSON: {problem}"


def _is_missing(key: str, details: Sequence[ErrorDetails]) -> bool:
    return any(detail["type"] == "missing" and detail["loc"] == (key,) for detail in details)


def _describe_detail(detail: ErrorDetails, data: object) -> str:
    if detail["type"] == "missing":
        *parent, key = detail["loc"]
        return f"{_json_path(parent, data)}.{key} is missing{_of_case(parent, data)}"
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    place = _json_path(detail["loc"], data)
    return f"{place}: {message}, got {_shown(detail['input'])}{_of_case(detail['loc'], data)}"


def _of_case(location: Sequence[int | str], data: Any) -> str:
    """Return ` (case step/small)` for a place in a case that has a key, else an empty text."""
    match location:
        case ("cases", int(index), *_):
            case = data["cases"][index]
            key = case.get("key") if isinstance(case, dict) else None
            return f" (case {key})" if isinstance(key, str) else ""
    return ""


def _json_path(location: Sequence[int | str], data: Any) -> str:
    """Return `$.cases[3].status`, without the names that pydantic adds for members of a union."""
    path = "$"
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif isinstance(data, dict) and part in data:
            path += f".{part}"
        else:
            break
        data = data[part]
    return path


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _SHOWN_VALUE_LENGTH:
        return text[:_SHOWN_VALUE_LENGTH] + "…"
    return text
