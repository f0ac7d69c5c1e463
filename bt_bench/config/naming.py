"""Names of expanded cases: placeholders are filled in, and missing axes appended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bt_bench.base.errors import names_hint, shown
from bt_bench.config.problems import Problems
from bt_bench.config.sections import MAX_NAME, NAME_RULE, Axis, CaseTemplate
from bt_bench.config.validation import Vocabulary
from bt_bench.protocol import WorkloadParameters
from bt_bench.results import Noun

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def placeholders_as(text: str, pattern: str) -> str:
    """Return a regular expression for a template's names, with a pattern for each placeholder."""
    parts = _PLACEHOLDER.split(text)[::2]
    return pattern.join(map(re.escape, parts))


def check_name_template(case: CaseTemplate, vocabulary: Vocabulary, problems: Problems) -> None:
    """Report placeholders that name no parameter, and characters that no name may have."""
    text = str(case.name.value)
    for placeholder in _PLACEHOLDER.findall(text):
        if not vocabulary.is_parameter(placeholder):
            hint = names_hint(placeholder, vocabulary.names)
            problems.add(
                case.name.place,
                f"name {shown(text)} has an unknown placeholder {shown(placeholder)}; {hint}",
            )
    if not text or re.search(r"[^A-Za-z0-9_.=-]", _PLACEHOLDER.sub("", text)):
        problems.add(
            case.name.place,
            f"name is {shown(text)}; expected {NAME_RULE}, or parameters in braces: "
            f"{{{vocabulary.example}}}",
        )


def case_name(
    case: CaseTemplate,
    written: WorkloadParameters,
    parameters: WorkloadParameters,
    appended: Sequence[str],
    vocabulary: Vocabulary,
    problems: Problems,
) -> str | None:
    """Return the name of one combination from its validated parameters; `None` if it has none.

    Args:
        case: the template of the combination.
        written: the combination's parameters, with paths as the config has them.
        parameters: the same with their files in place.
        appended: the axes to append, from `axes_to_append`.
        vocabulary: the suite's vocabulary.
        problems: collects errors.
    """
    text = str(case.name.value)
    for key in _PLACEHOLDER.findall(text):
        having = vocabulary.kinds_with(key)
        if not having:
            return None  # reported by check_name_template
        if parameters.workload not in having:
            problems.add(
                case.name.place,
                f"name {shown(text)} has the placeholder {key!r}, a parameter of "
                f"{vocabulary.having_text(key)} workloads; remove it",
            )
            return None
    name = _PLACEHOLDER.sub(lambda match: _value_text(written, parameters, match[1]), text)
    for key in appended:
        if parameters.workload in vocabulary.kinds_with(key):  # else noted where it was expanded
            name += f"-{key}={_value_text(written, parameters, key)}"
    if len(name) > MAX_NAME:
        problems.add(
            case.name.place,
            f"name {shown(name)} has {len(name)} characters; expected at most {MAX_NAME}",
        )
    return name


def axes_to_append(case: CaseTemplate, vocabulary: Vocabulary) -> list[str]:
    """Return the varying axes that the name lacks; of zipped ones, enough to distinguish rows."""
    named = set(_PLACEHOLDER.findall(str(case.name.value)))
    missing = [
        key
        for key, axis in case.product.items()
        if len(axis.values) > 1 and not _is_told(key, axis, named, vocabulary)
    ]
    telling = [key for key in case.zipped if key in named]
    for key, axis in case.zipped.items():
        if not _rows_differ(case, telling) and key not in telling:
            telling.append(key)
            if not _is_told(key, axis, named, vocabulary):
                missing.append(key)
    return missing


def _is_told(key: str, axis: Axis, named: set[str], vocabulary: Vocabulary) -> bool:
    """Return whether the name distinguishes the values of an axis."""
    values = [value.value for value in axis.values]
    return key in named or vocabulary.suite.tells_apart(named, key, values)


def _rows_differ(case: CaseTemplate, keys: list[str]) -> bool:
    rows = [
        tuple(str(case.zipped[key].values[row].plain()) for key in keys)
        for row in range(min(len(axis.values) for axis in case.zipped.values()))
    ]
    return len(set(rows)) == len(rows)


def _value_text(written: WorkloadParameters, parameters: WorkloadParameters, key: str) -> str:
    text = parameters.text_of(key)
    if text is not None:
        return text
    value: object = written if key in written.file_names() else parameters
    for part in key.split("."):
        value = getattr(value, part)
    # A parameter with parts, such as a window, appears by its name.
    return _text_of(getattr(value, "name", value) if isinstance(value, Noun) else value)


def _text_of(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, list):
        return "x".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("e+", "e")
    # The path of a trace, for one, has characters that a name must not have.
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", str(value))
