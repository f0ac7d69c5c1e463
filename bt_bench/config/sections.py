"""The parts of a config file, with checked form but not yet expanded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from bt_bench.base.errors import names_hint, shown
from bt_bench.config.problems import Place, Problems
from bt_bench.config.ranges import with_ranges
from bt_bench.config.spec import GateSpec
from bt_bench.config.validation import ModelT, Vocabulary, known_entries, leaves, validate
from bt_bench.config.yaml import Located, YamlEntry, refuse
from bt_bench.protocol import Operation, Suite
from bt_bench.results import Plan
from bt_bench.variants import default_variants

TOP_KEYS = (
    "name",
    "description",
    "suite",
    "kernels",
    "variants",
    "operations",
    "plan",
    "gate",
    "defaults",
    "cases",
)
CASE_KEYS = ("name", "product", "zip", "margin_percent")

MAX_NAME = 200
NAME_PATTERN = re.compile(rf"[A-Za-z0-9_.=-]{{1,{MAX_NAME}}}")
NAME_RULE = f"letters, digits and _ . = - (1 to {MAX_NAME} of them)"

Entries = dict[str, YamlEntry]


@dataclass(frozen=True)
class Axis:
    """The values that one parameter takes in turn."""

    values: list[Located]
    key_place: Place


@dataclass
class CaseTemplate:
    """A case as written: a name that may have placeholders, fixed parameters, and axes."""

    name: Located
    place: Place
    fixed: Entries = field(default_factory=dict)
    margin_percent: float | None = None
    product: dict[str, Axis] = field(default_factory=dict)
    zipped: dict[str, Axis] = field(default_factory=dict)


@dataclass
class General:
    """The sections of a config other than its cases; of the suite it only holds names."""

    place: Place
    name: str
    description: str
    variants: list[str]
    operations: list[Operation]
    plan: Entries
    gate: Entries
    kernels: list[Located]


@dataclass
class ConfigDocument:
    """The cases of a config file, in the vocabulary of its suite."""

    place: Place
    vocabulary: Vocabulary
    defaults: Entries
    cases: list[CaseTemplate]
    all_cases: bool = True  # false if some were too invalid to be in `cases`
    overrides: Entries = field(
        default_factory=dict
    )  # single values of `--set`, which override all else


def read_general(root: Located, default_name: str, suite: Suite, problems: Problems) -> General:
    """Read everything but the cases; invalid parts are reported and left out."""
    place = root.place
    if not isinstance(root.value, dict):
        refuse(root, "the config", f"a mapping with the keys {', '.join(TOP_KEYS)}", problems)
        return General(place, default_name, "", [], [], {}, {}, [])
    top = root.value
    for key, entry in top.items():
        if key not in TOP_KEYS:
            problems.add(entry.key_place, f"unknown key {shown(key)}; {names_hint(key, TOP_KEYS)}")
    return General(
        place=place,
        name=_name(top, default_name, problems),
        description=_text(top, "description", "", problems),
        variants=_names(top, "variants", default_variants(suite), problems),
        operations=_operations(top, suite, problems),
        plan=_mapping(top, "plan", ", ".join(leaves(Plan)), problems),
        gate=_mapping(top, "gate", ", ".join(leaves(GateSpec)), problems),
        kernels=_paths(top, "kernels", problems),
    )


def read_document(root: Located, vocabulary: Vocabulary, problems: Problems) -> ConfigDocument:
    """Read the cases and their defaults; invalid parts are reported and left out."""
    if not isinstance(root.value, dict):
        return ConfigDocument(root.place, vocabulary, {}, [])  # which `read_general` refuses
    top = root.value
    cases = _cases(top, root.place, vocabulary, problems)
    defaults = _mapping(top, "defaults", "parameters", problems)
    return ConfigDocument(
        place=root.place,
        vocabulary=vocabulary,
        defaults=_parameters(defaults, (), vocabulary, problems),
        cases=[case for case in cases if case is not None],
        all_cases=None not in cases,
    )


def validate_plan(entries: Entries, place: Place, problems: Problems) -> Plan:
    """Return the measurement plan; if it is invalid, report that and return the default plan."""
    return _validate_section("plan", Plan, entries, place, problems) or Plan()


def validate_gate(entries: Entries, place: Place, problems: Problems) -> GateSpec:
    """Return the `gate` section; if it is invalid, report that and return an empty one."""
    gate = _validate_section("gate", GateSpec, entries, place, problems) or GateSpec()
    if gate.looks != sorted(gate.looks):
        problems.add(
            entries["looks"].located.place, f"looks is {shown(gate.looks)}; expected rising numbers"
        )
    return gate


def _validate_section(
    section: str, model: type[ModelT], entries: Entries, place: Place, problems: Problems
) -> ModelT | None:
    known = known_entries(model, entries, problems, f" in {section}")
    for key, entry in known.items():
        _refuse_repetition(key, entry.located, problems)
    return validate(model, known, place, problems)


def _refuse_repetition(key: str, located: Located, problems: Problems) -> None:
    seen: set[object] = set()
    for item in located.value if isinstance(located.value, list) else ():
        value = repr(item.plain()) if isinstance(item.value, list | dict) else item.value
        if value in seen:
            problems.add(item.place, f"{key} has {shown(item.plain())} twice; remove one")
        seen.add(value)


def _text(top: Entries, key: str, default: str, problems: Problems) -> str:
    if key not in top:
        return default
    located = top[key].located
    if isinstance(located.value, str):
        return located.value
    advice = "; put it in quotes" if isinstance(located.value, int | float) else ""
    refuse(located, key, f"text{advice}", problems)
    return default


def _name(top: Entries, default: str, problems: Problems) -> str:
    default = re.sub(r"[^A-Za-z0-9_.=-]+", "_", default)[:MAX_NAME] or "sweep"
    if "name" not in top:
        return default
    name = _text(top, "name", default, problems)
    if not NAME_PATTERN.fullmatch(name):
        problems.add(top["name"].located.place, f"name is {shown(name)}; expected {NAME_RULE}")
    return name


def _names(top: Entries, key: str, default: Iterable[str], problems: Problems) -> list[str]:
    if key not in top:
        return list(default)
    located = top[key].located
    if not isinstance(located.value, list) or not located.value:
        instead = f"or leave {key!r} out for {', '.join(default)}"
        refuse(located, key, f"a list of one or more names, {instead}", problems)
        return []
    names: dict[str, None] = {}
    for item in located.value:
        if not isinstance(item.value, str):
            problems.add(item.place, f"{key} has {shown(item.plain())}; expected a name")
        elif item.value in names:
            problems.add(item.place, f"{key} has {shown(item.value)} twice; remove one")
        else:
            names[item.value] = None
    return list(names)


def _paths(top: Entries, key: str, problems: Problems) -> list[Located]:
    """Return a path, or a list of paths, as a list."""
    if key not in top:
        return []
    located = top[key].located
    items = located.value if isinstance(located.value, list) else [located]
    for item in items:
        if not isinstance(item.value, str) or not item.value:
            problems.add(
                item.place,
                f"{key} is {shown(located.plain())}; expected the path of a folder, or a list of "
                "paths",
            )
    return [item for item in items if isinstance(item.value, str) and item.value]


def _operations(top: Entries, suite: Suite, problems: Problems) -> list[Operation]:
    names = _names(top, "operations", map(str, suite.defaults), problems)
    if all(name in suite.by_name for name in names):
        return [suite.by_name[name] for name in names]
    items = top["operations"].located.value
    for item in items if isinstance(items, list) else []:
        if isinstance(item.value, str) and item.value not in suite.by_name:
            hint = names_hint(item.value, suite.by_name)
            problems.add(item.place, f"unknown operation {shown(item.value)}; {hint}")
    return []


def _mapping(top: Entries, key: str, of_what: str, problems: Problems) -> Entries:
    if key not in top:
        return {}
    located = top[key].located
    if isinstance(located.value, dict):
        return located.value
    refuse(located, key, f"a mapping of {of_what}", problems)
    return {}


def _parameters(
    mapping: Entries, other_keys: tuple[str, ...], vocabulary: Vocabulary, problems: Problems
) -> Entries:
    """Return the leaves that a mapping gives; `other_keys` may stand beside parameters."""
    found: Entries = {}
    for key, entry in mapping.items():
        if key in other_keys:
            continue
        if not vocabulary.is_parameter(key):
            problems.add(entry.key_place, unknown_parameter(key, vocabulary, other_keys))
            continue
        for leaf, leaf_entry in vocabulary.flatten(key, entry, problems):
            if leaf in found:
                problems.add(
                    leaf_entry.key_place,
                    f"{leaf!r} is given twice; the first is at {found[leaf].key_place}; remove one",
                )
            found.setdefault(leaf, leaf_entry)
    return found


def unknown_parameter(key: str, vocabulary: Vocabulary, other_keys: tuple[str, ...] = ()) -> str:
    """Return the message for a key that is not a parameter of any workload."""
    what = "key" if other_keys else "parameter"
    return f"unknown {what} {shown(key)}; {names_hint(key, (*other_keys, *vocabulary.names))}"


def _cases(
    top: Entries, place: Place, vocabulary: Vocabulary, problems: Problems
) -> list[CaseTemplate | None]:
    if "cases" not in top:
        problems.add(place, "'cases' is missing; expected a list of one or more cases")
        return []
    located = top["cases"].located
    if not isinstance(located.value, list) or not located.value:
        refuse(located, "cases", "a list of one or more cases", problems)
        return []
    return [_case(item, vocabulary, problems) for item in located.value]


def _case(item: Located, vocabulary: Vocabulary, problems: Problems) -> CaseTemplate | None:
    if not isinstance(item.value, dict):
        refuse(item, "case", "a mapping with a name and parameters", problems)
        return None
    mapping = item.value
    fixed = _parameters(mapping, CASE_KEYS, vocabulary, problems)
    name = _case_name(mapping, item.place, problems)
    margin_percent = margin_of(mapping, problems)
    before = len(problems)
    product = _axes(mapping, "product", vocabulary, problems)
    zipped = _axes(mapping, "zip", vocabulary, problems)
    _check_axes(fixed, product, zipped, problems)
    if name is None or len(problems) > before:
        return None  # a case without an axis would only lead to more errors
    return CaseTemplate(name, item.place, fixed, margin_percent, product, zipped)


def _case_name(mapping: Entries, place: Place, problems: Problems) -> Located | None:
    if "name" not in mapping:
        problems.add(place, "case has no 'name'; give it one")
        return None
    _text(mapping, "name", "", problems)
    located = mapping["name"].located
    return located if isinstance(located.value, str) else None


def margin_of(mapping: Entries, problems: Problems) -> float | None:
    """Return a case's margin; `None` if it has none, or an invalid one, which is reported."""
    if "margin_percent" not in mapping:
        return None
    located = mapping["margin_percent"].located
    value = located.value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100:
        return float(value)
    refuse(located, "margin_percent", "a number above 0 and up to 100", problems)
    return None


def _axes(
    mapping: Entries, kind: str, vocabulary: Vocabulary, problems: Problems
) -> dict[str, Axis]:
    axes: dict[str, Axis] = {}
    given = _mapping(mapping, kind, "parameters, each with a list or a range of values", problems)
    for key, entry in given.items():
        located = entry.located
        if not vocabulary.is_parameter(key):
            problems.add(entry.key_place, unknown_parameter(key, vocabulary))
        elif located.value == []:
            problems.add(
                located.place,
                f"axis {key!r} is empty; expected one or more values, or remove the axis",
            )
        elif (values := axis_values(key, located, problems)) is None:
            refuse(located, f"axis {key!r}", "a list of values, or a range such as 1..8", problems)
        elif values:
            axes[key] = Axis(values, entry.key_place)
    if kind == "zip":
        _check_equal_lengths(axes, problems)
    return axes


def axis_values(key: str, located: Located, problems: Problems) -> list[Located] | None:
    """Return the values of an axis, ranges expanded; `None` if it is no list or range."""
    if isinstance(located.value, list):
        return with_ranges(key, located.value, problems)
    values = with_ranges(key, [located], problems)
    return None if values == [located] else values


def _check_equal_lengths(axes: dict[str, Axis], problems: Problems) -> None:
    first_key = next(iter(axes), None)
    for key, axis in axes.items():
        first = axes[first_key or key]
        if len(axis.values) != len(first.values):
            problems.add(
                axis.key_place,
                f"zipped axis {key!r} has {len(axis.values)} values and {first_key!r} has "
                f"{len(first.values)}; expected equally many, or put one under 'product'",
            )


def _check_axes(
    fixed: Entries, product: dict[str, Axis], zipped: dict[str, Axis], problems: Problems
) -> None:
    for key, axis in (product | zipped).items():
        if key in fixed:
            problems.add(
                axis.key_place,
                f"axis {key!r} is also given as a fixed parameter at {fixed[key].key_place}; "
                "remove one",
            )
        if key in product and key in zipped:
            problems.add(
                zipped[key].key_place,
                f"axis {key!r} is under 'product' as well as 'zip'; remove one",
            )
