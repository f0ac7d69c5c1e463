"""`bt-bench check`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.cli import completion
from bt_bench.cli.exits import visible
from bt_bench.cli.options import (
    DeviceOption,
    JsonOption,
    KernelsOption,
    OperationsOption,
    SelectOption,
    SetOption,
    SuiteOption,
    TracebackOption,
    VariantsOption,
    VllmSourceOption,
    choose_variants,
    kernel_folders,
    load_spec,
    print_json,
    say_begin,
    worker_for,
)
from bt_bench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bt_bench.results import Crash, ReasonCode
    from bt_bench.runs import Explored, Outcome
    from bt_bench.worker import Unreached

    Failure = tuple[str, ReasonCode, str]  # variant, code, and what it says

MOST_PLACES = 5  # of those not reached, in the terminal
_NAMED = 3  # of those that failed alike


def check(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A YAML file, the name of a stock config, or - for stdin.",
            autocompletion=completion.configs,
        ),
    ] = "quick",
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    device: DeviceOption = None,
    kernels: KernelsOption = None,
    vllm_source: VllmSourceOption = None,
    suite: SuiteOption = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Explore for minutes, with scenarios that take seconds."),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--explore",
            metavar="SECONDS",
            min=0,
            help="Explore each variant for about this long; 0: not at all.",
            envvar="BT_BENCH_EXPLORE",
            show_default="15, 180 with --deep",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="N[-M]", help="Play only this scenario, or these, and skip all workloads."
        ),
    ] = None,
    paths: Annotated[
        bool,
        typer.Option(
            "--paths",
            help="Also list the lines of each variant's own code that no scenario ran, kernels "
            "under the interpreter included; that takes about twice as long.",
        ),
    ] = False,
    require_paths: Annotated[
        bool,
        typer.Option(
            "--require-paths",
            help="As --paths, and end with 5 if there are any that no comment "
            "'# unreached: REASON' excuses.",
        ),
    ] = False,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Print a line for each check, rather than one for those that passed."
        ),
    ] = False,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Compare variants with the reference, and time nothing.

    Every variant runs through small random workloads that reach the corners, then through the
    workloads of the config. Then it is explored: scenarios, which are made-up sequences of calls,
    are played until one differs, and that one is made smaller. Whole buffers are compared. Variants
    run in a process of their own, so that one that crashes fails alone. Exit code 5 means that one
    differs, raised, crashed or hung. Workloads that need a feature that a variant lacks are skipped
    for it; that is not a failure. -k and --set choose among the workloads of the config alone.

    Examples:
    - `bt-bench check`
    - `bt-bench check origin --variants fused`
    - `bt-bench check quick --kernels ./my_kernels --variants mine`
    - `bt-bench check --variants fused --deep`
    - `bt-bench check --variants fused --scenario 17`
    """
    numbers = _numbers(scenario)
    if (paths or require_paths) and seconds == 0 and numbers is None:
        raise UsageError(
            "--paths lists what no scenario ran, and --explore 0 plays none; leave one of them out"
        )
    spec = load_spec(
        config,
        suite=suite,
        variants=variants,
        operations=operations,
        select=select,
        overrides=overrides,
    )
    entries = choose_variants(
        spec, kernel_folders(kernels, spec), vllm_source, by_name=variants is not None
    )
    say_begin(spec, entries)

    from bt_bench.analysis import crash_text
    from bt_bench.cli.progress import told_on_stderr
    from bt_bench.protocol import load_suite
    from bt_bench.runs import EXPLORE_SECONDS, FEWEST, Exploring, check_memory, check_spec
    from bt_bench.worker import Noticing

    outcomes: list[Outcome] = []
    warnings: list[str] = []

    def warn(arms: Sequence[str], crash: Crash) -> None:
        whose = f"{arms[0]}, " if crash.known else ""
        warnings.append(f"{whose}{crash_text(crash)}")
        print(f"bt-bench: warning: {visible(warnings[-1])}", file=sys.stderr, flush=True)

    explored: list[Explored] = []
    fewest = 0
    if seconds is None:
        seconds, fewest = EXPLORE_SECONDS[deep], FEWEST
    known = load_suite(spec.suite)
    references = worker_for(spec, [], "cpu")
    with ExitStack() as at_end, worker_for(spec, entries, device, traceback=traceback) as worker:
        at_end.callback(references.close)
        if seconds or numbers is not None:
            references.start()  # it takes as long to start as some checks
        kind = worker.hello.device
        check_memory(spec, len(entries), worker.hello.available_bytes)
        noticing = Noticing(worker, warn)
        names = [entry.name for entry in entries]
        alike: dict[Failure, list[str]] = {}
        try:
            began = time.monotonic()
            with told_on_stderr() as tell:
                for outcome in check_spec(noticing, spec, names) if numbers is None else ():
                    outcomes.append(outcome)
                    what = f"checked {outcome.workload} · {outcome.operation}"
                    tell(f"{what}: {len(outcomes)} checks", time.monotonic() - began)
                    told = _is_told(outcome, alike) or not (show_all or outcome.failure is not None)
                    if not as_json and not told:
                        print(_line(outcome), flush=True)
        finally:  # also when it is interrupted
            for line in () if as_json else _told_together(alike):
                print(line)
            for line in () if as_json or show_all else _summed_up(outcomes):
                print(line, flush=True)
        failed = {outcome.variant for outcome in outcomes if outcome.failure is not None}
        right = [name for name in names if name not in failed]
        repeating = " ".join(
            [
                config,
                *([] if suite is None else [f"--suite {suite}"]),
                *(f"--kernels {folder}" for folder in kernels or ()),
                *["--deep"] * deep,
            ]
        )
        if right and (seconds or numbers is not None):
            with references, told_on_stderr() as tell:
                exploring = Exploring(
                    *(known, noticing, references, spec.plan.seed),
                    deep=deep,
                    lines=paths or require_paths,
                    on_batch=lambda arm, played, seconds: tell(
                        f"exploring {arm}: {played} scenarios", seconds
                    ),
                )
                for one in exploring.explore(right, seconds, numbers, fewest):
                    explored.append(one)
                    if not as_json:
                        print(_explored_text(one, repeating), flush=True)
    counts = Counter(map(_status, outcomes)) + Counter(map(_explored_status, explored))
    if as_json:
        print_json(_document(kind, outcomes, explored, warnings))
    else:
        for entry in entries:
            if entry.opponent is not None and entry.opponent.note:
                print(f"{entry.name} {entry.opponent.note}")
        skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
        print(f"{counts['ok']} passed, {counts['failed']} failed{skipped}, on {kind}")
    lacking = require_paths and any(map(_unexcused, explored))
    return ExitCode.CHECK_FAILED if counts["failed"] or lacking else ExitCode.OK


def _status(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return "failed"
    return "ok" if outcome.reason is None else "skipped"


def _line(outcome: Outcome) -> str:
    what = f"{outcome.variant} · {outcome.workload} · {outcome.operation}"
    if outcome.reason is None:
        return f"ok      {what}"
    if outcome.failure is None:
        return f"skipped {what} · {outcome.reason.message}"
    return f"FAILED  {what}\n        {outcome.reason.code}: {outcome.reason.message}"


def _is_told(outcome: Outcome, alike: dict[Failure, list[str]]) -> bool:
    """Whether the same has been said of the variant before; notes where it failed."""
    if outcome.failure is None or outcome.reason is None:
        return False
    # The message begins with where: the workload, the round, the step.
    where, _, what = outcome.reason.message.removeprefix(outcome.workload).partition(": ")
    failure = (outcome.variant, outcome.reason.code, what or where)
    alike.setdefault(failure, []).append(f"{outcome.workload} · {outcome.operation}")
    return len(alike[failure]) > 1


def _told_together(alike: Mapping[Failure, Sequence[str]]) -> Iterator[str]:
    """A line for each failure that came more than once."""
    for (variant, _, _), (first, *others) in alike.items():
        if others:
            more = f" and {len(others) - _NAMED} more" * (len(others) > _NAMED)
            names = f"{', '.join(others[:_NAMED])}{more}"
            yield f"FAILED  {variant} · {len(others)} more just as {first}: {names}"


def _summed_up(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Per variant, a line for the checks that passed, and one for each reason to skip some."""
    for variant in dict.fromkeys(outcome.variant for outcome in outcomes):
        its = [each for each in outcomes if each.variant == variant]
        passed = [each for each in its if each.reason is None]
        if passed:
            yield f"ok      {variant} · {_number_of(passed)}"
        skipped: dict[str, list[Outcome]] = {}
        for each in its:
            if each.reason is not None and each.failure is None:
                skipped.setdefault(each.reason.message, []).append(each)
        for reason, of_reason in skipped.items():
            yield f"skipped {variant} · {_number_of(of_reason)} · {reason}"


def _number_of(outcomes: Sequence[Outcome]) -> str:
    """`24 checks of 12 workloads`."""
    workloads = len({outcome.workload for outcome in outcomes})
    checks = f"{len(outcomes)} check{'s' * (len(outcomes) != 1)}"
    return f"{checks} of {workloads} workload{'s' * (workloads != 1)}"


def _numbers(scenario: str | None) -> range | None:
    """The scenarios that `--scenario` names."""
    if scenario is None:
        return None
    first, dash, last = scenario.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UsageError(
            f"--scenario {scenario}: expected the number of a scenario, or a range as in 0-17"
        )
    numbers = range(int(first), int(last or first) + 1)
    if not numbers:
        raise UsageError(f"--scenario {scenario}: expected the lower number first")
    return numbers


def _explored_status(one: Explored) -> str:
    if one.skipped:
        return "skipped"
    return "ok" if one.found is None else "failed"


def _explored_text(one: Explored, repeating: str) -> str:
    """One variant's lines; `repeating` is what a command needs besides variant and scenario."""
    if one.skipped:
        return f"skipped {one.variant} · explored · {one.skipped}"
    took = f"{_scenarios(one.scenarios)} in {one.seconds:.0f} s"
    found = one.found
    if found is None:
        return "\n".join([f"ok      {one.variant} · explored · {took}", *_coverage_lines(one)])
    return "\n".join(
        [
            f"FAILED  {one.variant} · scenario {found.number}, {found.title} · {took}",
            f"        {found.reason.code}: {found.reason.message}",
            *(f"          {line}" for line in found.lines),
            f"        again: bt-bench check {repeating} --variants {one.variant} "
            f"--scenario {found.needs}",
        ]
    )


def _unexcused(one: Explored) -> list[Unreached]:
    """Lines of its own code that were not reached, and that nothing excuses."""
    unreached = one.coverage.unreached if one.coverage is not None else ()
    return [each for each in unreached if not each.excuse]


def _coverage_lines(one: Explored) -> list[str]:
    if one.coverage is None or not one.coverage.total:
        return []
    lines = [
        f"        {one.coverage.reached} of {one.coverage.total} lines of its own code were reached"
    ]
    missing = _unexcused(one)
    for each in missing[:MOST_PLACES]:
        until = f"-{each.last}" if each.last > each.first else ""
        lines.append(f"          not reached: {each.file}:{each.first}{until}, {each.function}")
    if len(missing) > MOST_PLACES:
        lines.append(f"          and {len(missing) - MOST_PLACES} more places (--json has all)")
    return lines


def _scenarios(number: int) -> str:
    return f"{number} scenario{'s' * (number != 1)}"


def _document(
    device: str, outcomes: list[Outcome], explored: list[Explored], warnings: list[str]
) -> dict[str, object]:
    return {
        "schema_version": 1,
        "device": device,
        "warnings": warnings,
        "checks": [
            {
                "variant": outcome.variant,
                "workload": outcome.workload,
                "operation": outcome.operation,
                "status": _status(outcome),
                "reason": outcome.reason.model_dump() if outcome.reason else None,
                "steps": outcome.steps,
            }
            for outcome in outcomes
        ],
        "explored": [
            {
                "variant": one.variant,
                "status": _explored_status(one),
                "scenarios": one.scenarios,
                "seconds": round(one.seconds, 3),
                "skipped": one.skipped or None,
                "lines": None
                if one.coverage is None
                else {
                    "reached": one.coverage.reached,
                    "total": one.coverage.total,
                    "unreached": [asdict(each) for each in one.coverage.unreached],
                },
                "found": None
                if one.found is None
                else {
                    "scenario": one.found.number,
                    "title": one.found.title,
                    "reason": one.found.reason.model_dump(),
                    "lines": list(one.found.lines),
                    "again": one.found.needs,
                },
            }
            for one in explored
        ],
    }
