"""`bt-bench gate --against FILE`: the working tree, measured now, beside a stored result."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.cli.gate import Options, entries_here, finish, make_folder
from bt_bench.cli.options import worker_for
from bt_bench.errors import ExitCode, NotComparableError, UsageError

if TYPE_CHECKING:
    from bt_bench.config.schema import SweepSpec
    from bt_bench.device import DeviceKind
    from bt_bench.model import VariantResult
    from bt_bench.verdicts import Judged


def gate_against(
    options: Options,
    patterns: tuple[str, ...],
    device: DeviceKind,
    out: Path | None,
    dry_run: bool = False,
) -> ExitCode:
    """Sweeps the variant of a stored result, by the plan of that, and compares both; advisory.

    What happened to the machine between the runs counts as well, so the margin is wider. Device,
    versions and plan are compared as by `compare`.
    """
    stored = _stored(options.against or "")
    keys = {case.key for case in stored.cases}
    operations = [
        op for op in options.spec.operations if any(c.operation is op for c in stored.cases)
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
        print(f"working tree on {device} against {options.against}, by the plan of that: a sweep")
        print(f"  variant: {stored.variant.name}")
        print(f"  cases: {', '.join(case.name for case in cases)}")
        print(f"  operations: {', '.join(operations)}")
        return ExitCode.OK
    folder = make_folder(spec.name, out)
    _sweep(replace(options, spec=spec), device, folder)
    judged = _judged(options, spec, patterns, folder / f"{stored.variant.name}.json")
    return finish(judged, options, folder)


def _stored(path: str) -> VariantResult:
    from bt_bench.errors import OtherSchemaError
    from bt_bench.gating.recording import read_recording
    from bt_bench.store import read_result

    try:
        return read_result(path)
    except OtherSchemaError as error:
        with suppress(UsageError):
            read_recording(path)
            raise NotComparableError(
                f"{path} is a recording of process-rounds; --against takes a result of a variant, "
                "as sweep writes it"
            ) from None
        raise NotComparableError(str(error)) from None


def _sweep(options: Options, device: DeviceKind, folder: Path) -> None:
    from bt_bench.cli.progress import progress_on_stderr
    from bt_bench.store import RunFolder
    from bt_bench.sweep import SweepRequest, check_memory, check_windows, run_sweep

    spec = options.spec
    entries = entries_here(options)
    if not entries:
        raise UsageError(f"the working tree has no variant {spec.variants[0]!r}, which is stored")
    check_windows(spec)
    with worker_for(spec, entries, device) as worker:
        check_memory(spec, len(entries), worker.hello.available_bytes)
        request = SweepRequest(
            spec, entries, worker.hello.environment, RunFolder(folder), ["bt-bench", *sys.argv[1:]]
        )
        with request.folder.locked(), progress_on_stderr() as progress:
            run_sweep(request, worker, progress)


def _judged(options: Options, spec: SweepSpec, patterns: tuple[str, ...], new: Path) -> Judged:
    """The comparison of both files, without the stored cases that were not measured again."""
    from bt_bench.judging.judge import Criteria, judge
    from bt_bench.judging.sides import Given, match_sides

    given = [Given(Path(options.against or "").name, options.against or "")]
    given.append(Given("working tree", str(new)))
    criteria = Criteria(rules=options.rules, metrics=patterns, margins=spec.margins)
    matched = match_sides(given)
    judged = judge(matched.matchups, criteria, base=matched.base, others=matched.others)
    wanted = {f"{op}/{case.name}" for op in spec.operations for case in spec.cases}
    kept = tuple(judgement for judgement in judged.judgements if judgement.key in wanted)
    if not kept:
        raise UsageError(f"{options.against}: nothing is left to compare")
    left_out = {judgement.key for judgement in judged.judgements} - wanted
    fact = f"{len(left_out)} stored cases are not in the config, and were not measured again."
    facts = (*judged.facts, fact) if left_out else judged.facts
    of_config = {
        f"{op}/{case.name}" for op in options.spec.operations for case in options.spec.cases
    }
    if new_ones := sorted(of_config - wanted):
        fact = f"Not in {given[0].label}, and not measured: {', '.join(new_ones)}."
        facts = (*facts, fact)
    return replace(judged, judgements=kept, facts=facts)
