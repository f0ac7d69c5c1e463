"""Loading of a config file and command-line options as a validated `SweepSpec`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bt_bench.base import expanded
from bt_bench.base.errors import UsageError, names_hint, shown
from bt_bench.config.expand import ExpandedCase, expand
from bt_bench.config.naming import axes_to_append, case_name, check_name_template
from bt_bench.config.overrides import override_parameters, override_plan, read_overrides
from bt_bench.config.problems import Place, Problems
from bt_bench.config.sections import (
    Axis,
    Entries,
    General,
    read_document,
    read_general,
    validate_gate,
    validate_plan,
)
from bt_bench.config.select import select_cases
from bt_bench.config.sources import Source, read_config
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.config.told import ToldCase, as_written
from bt_bench.config.validation import Vocabulary, validate
from bt_bench.config.yaml import Located, parse_yaml, refuse
from bt_bench.protocol import (
    Operation,
    Suite,
    SuiteRef,
    WorkloadParameters,
    at_suite,
    find_suite,
    load_suite,
    num_bytes_of,
    ref_of,
    running,
    runs_here,
)

ItemT = TypeVar("ItemT")

MAX_BYTES_OF_VARIANT = 256 * 2**30
"""A case that needs more memory than this for one variant is taken for a mistake."""


def load_config(
    source: Source,
    *,
    overrides: Sequence[str] = (),
    variants: Sequence[str] | None = None,
    operations: Sequence[str] | None = None,
    suite: str | None = None,
    select: str | None = None,
    trusted: Collection[SuiteRef] | None = None,
) -> SweepSpec:
    """Read, override, expand and validate a sweep config.

    Args:
        source: a path, the bare name of a stock config, `-` for stdin, or a mapping.
        overrides: `axis=value` or `axis=value,value,…`, as given to `--set`.
        variants: names that replace the config's. Their existence is not checked here.
        operations: names that replace the config's.
        suite: name or folder that replaces the config's.
        select: patterns of case names to keep, as given to `-k`; see `select_cases`.
        trusted: the suites of users whose code may run; `None`: any that is named.

    Raises:
        UsageError: with a line per error, each naming file, line and column or the option.
    """
    given = None if suite is None else find_suite(suite, Path.cwd())
    config = read_config(source, given)
    problems = Problems()
    root = parse_yaml(config.text, config.label, problems)
    if root is None:
        raise UsageError(
            f"{Place(config.label, 1, 1)}: the config is empty; expected at least 'cases', a list "
            "of named workloads"
        )
    ref = given or _suite_in(root, config.folder, problems) or SuiteRef()
    if trusted is not None and ref.folder is not None and ref not in trusted:
        raise UsageError(
            f"{config.label} names the suite {ref.folder}, whose code would run; give --suite "
            f"{ref.folder} too if it is yours to run"
        )
    known = load_suite(ref)
    general = read_general(root, config.default_name, known, problems)
    values = read_overrides(overrides, problems)
    expanded = _cases if runs_here(ref) else _told_cases
    told, found = at_suite(ref, expanded, ref, root, config.folder, values)
    for place, message in found:
        problems.add(place, message)
    if found or runs_here(ref):
        cases = [case for _, case in told]
    else:
        cases = as_written(root, told, values, problems)
    spec = _spec(general, ref, config.folder, values, cases, problems)
    changes = {
        "variants": _replacement("--variants", variants),
        "operations": _replacement("--operations", _operations(operations, known)),
        "cases": None if select is None else select_cases(spec.cases, select),
    }
    return spec.model_copy(update={key: new for key, new in changes.items() if new is not None})


def _suite_in(root: Located, folder: Path, problems: Problems) -> SuiteRef | None:
    """Return the suite that a config names; a path is relative to the config."""
    entry = root.value.get("suite") if isinstance(root.value, dict) else None
    if entry is None:
        return None
    located = entry.located
    if not isinstance(located.value, str) or not located.value:
        refuse(located, "suite", "a name, or the folder of a suite", problems)
        problems.raise_if_any()  # no parameter can be checked without it
    try:
        return find_suite(str(located.value), folder, where="suite")
    except UsageError as error:
        raise UsageError(f"{located.place}: {error}") from None


def _operations(names: Sequence[str] | None, suite: Suite) -> list[Operation] | None:
    """Return the operations that `--operations` names; `None` if it is not given."""
    known = suite.by_name
    for name in names or ():
        if name not in known:
            raise UsageError(
                f"--operations: unknown operation {str(name)!r}; {names_hint(str(name), known)}"
            )
    return None if names is None else [known[name] for name in names]


def _replacement(option: str, given: Sequence[ItemT] | None) -> list[ItemT] | None:
    if given is None:
        return None
    if not given:
        raise UsageError(f"{option}: no names; expected one or more")
    return list(dict.fromkeys(given))


def _spec(
    general: General,
    ref: SuiteRef,
    folder: Path,
    overrides: Mapping[str, Axis],
    cases: list[CaseSpec],
    problems: Problems,
) -> SweepSpec:
    """Build the config; only its cases are computed where the suite's code runs."""
    entries = override_plan(general.plan, overrides, problems)
    plan = validate_plan(entries, general.place, problems)
    gate = validate_gate(general.gate, general.place, problems)
    kernels = _kernels(general, folder, problems)
    problems.raise_if_any()
    return SweepSpec(
        name=general.name,
        description=general.description,
        suite=ref,
        kernels=kernels,
        variants=general.variants,
        operations=general.operations,
        plan=plan,
        gate=gate,
        cases=cases,
    )


Found = tuple[list[ToldCase], list[tuple[Place, str]]]


def _cases(ref: SuiteRef, root: Located, folder: Path, overrides: Mapping[str, Axis]) -> Found:
    """Expand and validate the cases of a config; return them with all problems."""
    problems = Problems()
    document = read_document(root, Vocabulary(load_suite(ref)), problems)
    override_parameters(document, overrides, problems)
    for template in document.cases:
        check_name_template(template, document.vocabulary, problems)
    named: dict[str, Place] = {}
    of_template = {
        id(case): (index, axes_to_append(case, document.vocabulary))
        for index, case in enumerate(document.cases)
    }
    cases = []
    for each in expand(document, problems):
        index, appended = of_template[id(each.template)]
        case = _case(each, appended, document.vocabulary, folder, named, problems)
        if case is not None:
            cases.append((index, case))
    return cases, problems.found


def _told_cases(ref: SuiteRef, root: Located, folder: Path, overrides: Mapping[str, Axis]) -> Found:
    """Run `_cases`, with `HostedParameters` for a process that runs no code of the suite."""
    from bt_bench.protocol.hosted import HostedParameters

    cases, problems = _cases(ref, root, folder, overrides)
    told = [
        (index, case.model_copy(update={"parameters": HostedParameters.of(case.parameters)}))
        for index, case in cases
        if not problems
    ]
    return told, problems


def _kernels(general: General, folder: Path, problems: Problems) -> list[str]:
    """Return the absolute paths of the folders of variants that a config names."""
    found = []
    for located in general.kernels:
        text = str(located.value)
        try:
            path = (folder / expanded(text)).absolute()
            is_folder = path.is_dir()
        except (RuntimeError, OSError, ValueError):  # an unknown user's home; not a path
            is_folder = False
        if is_folder:
            found.append(str(path))
        else:
            problems.add(
                located.place,
                f"kernels has {shown(text)}, which is not a folder; expected a folder of variant "
                "files, by its path from the config's own folder",
            )
    return list(dict.fromkeys(found))


def _case(
    expanded: ExpandedCase,
    appended: Sequence[str],
    vocabulary: Vocabulary,
    folder: Path,
    named: dict[str, Place],
    problems: Problems,
) -> CaseSpec | None:
    template = expanded.template
    parameters = validate(
        vocabulary.kinds[expanded.kind], expanded.entries, template.place, problems
    )
    if parameters is None:
        return None
    written = parameters
    try:
        parameters = _with_absolute_files(parameters, expanded.entries, folder)
    except UsageError as error:
        problems.add(template.place, str(error))
        return None
    name = case_name(template, written, parameters, appended, vocabulary, problems)
    if name is None:
        return None
    _check_unique(name, template.name.place, named, problems)
    _check_buildable(name, parameters, template.place, problems)
    return CaseSpec(name=name, parameters=parameters, margin_percent=template.margin_percent)


def _with_absolute_files(
    parameters: WorkloadParameters, entries: Entries, folder: Path
) -> WorkloadParameters:
    """Make the parameters' file paths absolute.

    Paths in a config are relative to its folder, and paths in `--set` to the working directory.
    """

    def place(name: str, path: Path) -> Path:
        if name not in entries:
            return path
        start = folder if entries[name].located.place.line else Path.cwd()
        return (start / path).absolute()

    try:
        return parameters.with_files(place)
    except RuntimeError:  # the home of an unknown user, which `check` reports
        return parameters


def _check_unique(name: str, place: Place, named: dict[str, Place], problems: Problems) -> None:
    if name not in named:
        named[name] = place
    elif named[name] == place:
        problems.add(
            place, f"the axes give the case name {name!r} twice; remove the repeated value"
        )
    else:
        problems.add(
            place, f"case name {name!r} is given twice; the first is at {named[name]}; rename one"
        )


def _check_buildable(
    name: str, parameters: WorkloadParameters, place: Place, problems: Problems
) -> None:
    """Run the suite's own check of the parameters, and limit the memory of a variant."""
    suite = load_suite(ref_of(type(parameters)))
    try:
        with running(suite, "check of the parameters"):
            parameters.check()
        needed = num_bytes_of(parameters)
    except UsageError as error:
        problems.add(place, f"case {name!r}: {error}")
        return
    if needed > MAX_BYTES_OF_VARIANT:
        problems.add(
            place,
            f"case {name!r}: a variant needs {_binary_size(needed)} of memory; expected at most "
            f"{_binary_size(MAX_BYTES_OF_VARIANT)}; {suite.memory_advice}",
        )


def _binary_size(num_bytes: int) -> str:
    gib = num_bytes / 2**30
    return f"{gib:.0f} GiB" if gib < 1024 else f"{gib / 1024:.1f} TiB"
