"""`bt-bench gate --against FILE`: comparison of the working tree with a stored result."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.analysis import Cause, Judgement, Verdict
from bt_bench.base.errors import ExitCode, NotComparableError, UsageError
from bt_bench.base.names import kind_of
from bt_bench.cli.exits import say
from bt_bench.cli.gate.common import Options, entries_here, finish, make_folder
from bt_bench.cli.options import command_line, say_begin, worker_for

if TYPE_CHECKING:
    from bt_bench.analysis import Judged
    from bt_bench.base.names import DeviceChoice, Operation
    from bt_bench.config import SweepSpec
    from bt_bench.results import VariantResult


def gate_against(
    options: Options,
    patterns: tuple[str, ...],
    device: DeviceChoice,
    out: Path | None,
    dry_run: bool = False,
) -> ExitCode:
    """Sweep the variant of a stored result by that result's plan, and compare both; advisory.

    Device, versions and plan are compared as by `compare`. A case that only the config or only the
    result has is missing, unless flags leave it out.
    """
    stored = _stored(options)
    _refuse_too_few(options, stored, patterns)
    keys = {case.key for case in stored.cases}
    operations = [
        op for op in options.spec.operations if any(c.operation == op for c in stored.cases)
    ]
    cases = [c for c in options.spec.cases if any(f"{op}/{c.name}" in keys for op in operations)]
    if not cases:
        raise NotComparableError(
            f"{options.against} has no case in common with the config {options.spec.name}; it has "
            f"{', '.join(sorted(keys)[:5])}{' …' * (len(keys) > 5)}"
        )
    changes = {"variants": [stored.variant.name], "plan": stored.plan}
    changes |= {"operations": operations, "cases": cases}
    spec = options.spec.model_copy(update=changes)
    if dry_run:
        print(
            f"working tree on {device} against {options.against}: a sweep by the plan in that file"
        )
        print(f"  variant: {stored.variant.name}")
        print(f"  cases: {', '.join(case.name for case in cases)}")
        print(f"  operations: {', '.join(operations)}")
        print(f"  time: {_expected(spec, device)}")
        return ExitCode.OK
    from bt_bench.results import changed_meanwhile

    folder = make_folder(spec.name, out)
    say(f"this gate takes {_expected(spec, device)}")
    swept = _sweep(replace(options, spec=spec), device, folder)
    new = folder / f"{stored.variant.name}.json"
    if _read(str(new)) != swept:  # only now that the worker is gone, which could have written there
        raise changed_meanwhile(new)
    judged = _judged(options, stored, patterns, new)
    return finish(judged, options, folder)


def _expected(spec: SweepSpec, device: DeviceChoice) -> str:
    """Return the expected duration of the working tree's sweep, which has one variant."""
    from bt_bench.runs import duration_text, estimate_seconds

    seconds = estimate_seconds(spec, 1, kind_of(device))
    return f"about {duration_text(seconds)}, an estimate from the plan and the sizes of the cases"


def _stored(options: Options) -> VariantResult:
    """Read the stored result; refuse one that the working tree cannot be compared with."""
    path = options.against or ""
    stored = _read(path)
    name = stored.variant.name
    if "variants" in options.chosen and name not in options.spec.variants:
        raise UsageError(
            f"--variants names {', '.join(options.spec.variants)}, but {path} holds variant "
            f"{name!r}, the only one that --against compares; leave --variants out"
        )
    if not stored.complete and not options.allow_partial:
        from bt_bench.analysis import how_to_finish

        raise NotComparableError(how_to_finish([path], None if path == "-" else Path(path).parent))
    return stored


def _refuse_too_few(options: Options, stored: VariantResult, patterns: tuple[str, ...]) -> None:
    """Refuse a plan with too few instances for any time, unless only counts are requested.

    The working tree is measured by the same plan, so this is known before anything is measured.
    """
    from bt_bench.analysis import MIN_CLUSTERS
    from bt_bench.results import is_sum, metric_of

    count, device = stored.plan.instances, stored.environment.device
    if count >= MIN_CLUSTERS:
        return
    for case in stored.cases:
        for metric in (metric_of(each.series) for each in case.measurements):
            asked = any(is_sum(each) or fnmatchcase(metric.name, each) for each in patterns)
            if asked or (not patterns and metric.is_primary(case.operation, device)):
                raise NotComparableError(
                    f"{options.against} was measured with {count} of plan.instances, too few to "
                    f"compare its times, such as {metric.name} of {case.key}; expected "
                    f"{MIN_CLUSTERS} or more: sweep it again with --set plan.instances=8, or "
                    "compare counts alone with --metric launches"
                )


def _read(path: str) -> VariantResult:
    from bt_bench.base.errors import OtherSchemaError
    from bt_bench.results import read_result

    try:
        return read_result(path)
    except OtherSchemaError as error:
        raise NotComparableError(str(error)) from None


def _sweep(options: Options, device: DeviceChoice, folder: Path) -> VariantResult:
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.results import RunFolder
    from bt_bench.runs import (
        SweepRequest,
        check_conditions,
        check_files,
        check_memory,
        run_sweep,
    )
    from bt_bench.worker import leased

    spec = options.spec
    entries = entries_here(options)
    if not entries:
        raise UsageError(
            f"the working tree has no variant {spec.variants[0]!r}, which the stored result holds"
        )
    say_begin(spec, entries)
    check_files(spec)
    traceback = options.on_traceback is not None
    with worker_for(spec, entries, device, traceback=traceback) as worker:
        check_memory(spec, len(entries), worker.hello.available_bytes)
        hello = worker.hello
        with leased([hello.environment], say):
            check_conditions(hello.environment, profiles=bool(spec.plan.profile_rounds))
            request = SweepRequest(
                spec, entries, hello.environment, RunFolder(folder), command_line(), hello.native
            )
            with request.folder.locked(), progress_on_stderr("sweep") as progress:
                (result,) = run_sweep(request, worker, progress)
    return result


def _judged(
    options: Options, stored: VariantResult, patterns: tuple[str, ...], new: Path
) -> Judged:
    """Return the comparison of both files, with the cases that only one side has as missing.

    Compared are the config's cases, and the stored ones that flags do not leave out. Stored cases
    that the config no longer has are included: else renaming a case would pass it.
    """
    from bt_bench.analysis import Criteria, Given, judge, match_sides
    from bt_bench.config import planned_variants

    given = [Given(Path(options.against or "").name, options.against or "")]
    given.append(Given("working tree", str(new)))
    criteria = Criteria(
        rules=options.rules,
        metrics=patterns,
        margins=options.spec.margins,
        allow_partial=options.allow_partial,
    )
    matched = match_sides(given, planned_variants)
    judged = judge(matched.matchups, criteria, base=matched.base, others=matched.others)
    spec, chosen = options.spec, options.chosen
    names = {case.name for case in spec.cases}
    of_config = {
        f"{operation}/{case.name}": (operation, case.name)
        for operation in spec.operations
        for case in spec.cases
    }
    left_out = {
        case.key
        for case in stored.cases
        if ("cases" in chosen and case.case not in names)
        or ("operations" in chosen and case.operation not in spec.operations)
    }
    # The config explains it: a case that the config lacks was not swept.
    kept = [
        replace(each, detail=f"the config {spec.name} has no such case, so it was not measured")
        if each.key not in of_config and each.cause is Cause.NO_CASE
        else each
        for each in judged.judgements
        if each.key not in left_out
    ]
    seen = {each.key for each in judged.judgements} | {case.key for case in stored.cases}
    base, other = matched.matchups[0].base.label, matched.matchups[0].other.label
    kept += [
        _blank(operation, case, base, other, f"{base} has no such case; sweep again to store it")
        for key, (operation, case) in of_config.items()
        if key not in seen
    ]
    scope = judged.scope
    if left_out:
        scope = (*scope, f"Left out by flags: {', '.join(sorted(left_out))}.")
    return replace(judged, judgements=tuple(kept), scope=scope)


def _blank(operation: Operation, case: str, base: str, other: str, detail: str) -> Judgement:
    """Return the judgement on a case that was not swept because it is not stored."""
    from bt_bench.analysis import WHOLE_CASE, Entry, Settled, settled

    outcome = Settled(Verdict.MISSING, Cause.NO_CASE, detail)
    return settled(Entry(operation, case, WHOLE_CASE, base, other, outcome=outcome))
