"""Expansion of a case with axes into cases with fixed parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from bt_bench.base.errors import names_hint, shown
from bt_bench.config.problems import Problems
from bt_bench.config.ranges import MAX_VALUES
from bt_bench.config.sections import Axis, CaseTemplate, ConfigDocument, Entries
from bt_bench.config.validation import Vocabulary, check_alone, leaves
from bt_bench.config.yaml import YamlEntry


@dataclass(frozen=True)
class ExpandedCase:
    """One combination of the axes of a case."""

    template: CaseTemplate
    kind: str
    entries: Entries


def kinds_of(case: CaseTemplate, document: ConfigDocument) -> set[str]:
    """Return the kinds of workload of a case: more than one if `workload` is an axis."""
    axis = case.product.get("workload") or case.zipped.get("workload")
    if "workload" in document.overrides:
        values = [document.overrides["workload"].located]
    elif axis is not None:
        values = axis.values
    elif "workload" in case.fixed or "workload" in document.defaults:
        values = [(document.defaults | case.fixed)["workload"].located]
    else:
        return {document.vocabulary.default_kind}
    return {value.value for value in values if isinstance(value.value, str)}


def count_cases(case: CaseTemplate) -> int:
    """Return the number of cases that a case expands to."""
    lengths = [len(axis.values) for axis in case.product.values()]
    lengths += [len(axis.values) for axis in list(case.zipped.values())[:1]]
    return math.prod(lengths)


def expand(document: ConfigDocument, problems: Problems) -> Iterator[ExpandedCase]:
    """Yield all cases of a document; zipped rows vary fastest, then the last axis of `product`.

    Values that no case uses are checked at the end: others take their place, or `--set` does.
    """
    total = 0
    for case in document.cases:
        total += count_cases(case)
        if total > MAX_VALUES:
            problems.add(
                case.place,
                f"the config has {total:,} cases up to here; expected at most {MAX_VALUES:,} in "
                "all; shorten the axes",
            )
            return
    _check_defaults(document, problems)
    used: set[int] = set()
    for case in document.cases:
        for combination in _combinations(case):
            expanded = _with_layers(document, case, combination, problems)
            if expanded is not None:
                used.update(id(entry.located) for entry in expanded.entries.values())
                yield expanded
    if not problems:
        for leaf, entry in _written(document):
            if id(entry.located) not in used:
                _check_unused(leaf, entry, document.vocabulary, problems)


def _written(document: ConfigDocument) -> Iterator[tuple[str, YamlEntry]]:
    """Yield all values of parameters in defaults and cases."""
    yield from document.defaults.items()
    for case in document.cases:
        yield from case.fixed.items()
        for key, axis in (case.product | case.zipped).items():
            for value in axis.values:
                entry = YamlEntry(value, axis.key_place)
                yield from document.vocabulary.flatten(key, entry, Problems())


def _check_unused(leaf: str, entry: YamlEntry, vocabulary: Vocabulary, problems: Problems) -> None:
    if leaf == "workload":
        _kind({leaf: entry}, vocabulary, problems)
    else:
        check_alone(vocabulary, leaf, entry, problems)


def _check_defaults(document: ConfigDocument, problems: Problems) -> None:
    """Refuse defaults that apply to no case; they need not apply to all."""
    kinds = set().union(*(kinds_of(case, document) for case in document.cases))
    if not document.all_cases or not kinds <= set(document.vocabulary.kinds):
        return
    for key, entry in document.defaults.items():
        having = document.vocabulary.kinds_with(key)
        if kinds and kinds.isdisjoint(having):
            problems.add(
                entry.key_place,
                f"{key!r} is a parameter of {document.vocabulary.having_text(key)} workloads, and "
                "no case is one; remove it",
            )


def _combinations(case: CaseTemplate) -> Iterator[list[tuple[str, YamlEntry]]]:
    product = [_values(key, axis) for key, axis in case.product.items()]
    zipped = [_values(key, axis) for key, axis in case.zipped.items()]
    rows = list(zip(*zipped, strict=True)) or [()]
    for chosen in itertools.product(*product):
        for row in rows:
            yield [*chosen, *row]


def _values(key: str, axis: Axis) -> list[tuple[str, YamlEntry]]:
    return [(key, YamlEntry(value, axis.key_place)) for value in axis.values]


def _with_layers(
    document: ConfigDocument,
    case: CaseTemplate,
    combination: list[tuple[str, YamlEntry]],
    problems: Problems,
) -> ExpandedCase | None:
    vocabulary = document.vocabulary
    entries = dict(document.defaults)
    _lay(entries, case.fixed | _flat(combination, vocabulary, problems), vocabulary)
    _lay(entries, document.overrides, vocabulary)
    kind = _kind(entries, vocabulary, problems)
    if kind is None:
        return None
    optional = document.defaults | document.overrides
    for key in [key for key in entries if key not in leaves(vocabulary.kinds[kind])]:
        # Defaults and overrides apply only to kinds that have the parameter.
        if entries[key] is not optional.get(key):
            having = vocabulary.having_text(key)
            problems.add(
                entries[key].key_place,
                f"{key!r} is a parameter of {having} workloads, and this case is {kind}; remove it",
            )
        del entries[key]
    return ExpandedCase(case, kind, entries)


def _flat(
    combination: list[tuple[str, YamlEntry]], vocabulary: Vocabulary, problems: Problems
) -> Entries:
    """Return the leaves of the axes' values; an axis over a part overrides one over the whole."""
    flat: Entries = {}
    for key, entry in sorted(combination, key=lambda pair: not vocabulary.parts_of(pair[0])):
        flat |= dict(vocabulary.flatten(key, entry, problems))
    return flat


def _lay(entries: Entries, nearer: Entries, vocabulary: Vocabulary) -> None:
    """Override entries with the entries of a higher layer."""
    for key, entry in nearer.items():
        for replaced in vocabulary.replaced_by(key, entry.located):
            entries.pop(replaced, None)
    entries |= nearer


def _kind(entries: Entries, vocabulary: Vocabulary, problems: Problems) -> str | None:
    if "workload" not in entries:
        return vocabulary.default_kind
    located = entries["workload"].located
    if isinstance(located.value, str) and located.value in vocabulary.kinds:
        return located.value
    value = located.plain()
    hint = names_hint(value if isinstance(value, str) else "", vocabulary.kinds)
    problems.add(located.place, f"workload is {shown(value)}; {hint}")
    return None
