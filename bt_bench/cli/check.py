"""`bt-bench check`."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.cli import completion
from bt_bench.cli.exits import visible
from bt_bench.cli.failures import Failures
from bt_bench.cli.loading import kernel_folders, load_spec
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
    print_json,
    say_begin,
    worker_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bt_bench.protocol import Recipe, Suite
    from bt_bench.results import Crash
    from bt_bench.runs import Explored, Found, Outcome
    from bt_bench.worker import Unreached

MOST_PLACES = 5  # unreached places listed in the terminal


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
    explore: Annotated[
        str | None,
        typer.Option(
            "--explore",
            metavar="N",
            help="Play this many scenarios on each variant; 0: none.",
            envvar="BT_BENCH_EXPLORE",
            show_default="98, 400 with --deep",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=2**32 - 1,
            help="Draw scenarios and workloads from this seed.",
            show_default="plan.seed; with --deep the date, as in 20261126",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="N[-M]|FILE",
            help="Play only this scenario, these, or the calls that check has stored in FILE, and "
            "skip all workloads.",
        ),
    ] = None,
    paths: Annotated[
        bool,
        typer.Option(
            "--paths",
            help="Also list the lines of each variant's own code that no scenario ran, and the "
            "branches that went one way only, kernels under the interpreter included; that takes "
            "about twice as long. --deep counts them, too.",
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
            "--all",
            help="Print a line for each check, rather than one for those that passed and the first "
            "few failures of each variant.",
        ),
    ] = False,
    traceback: TracebackOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Compare variants with the reference, and time nothing.

    Every variant runs through small random workloads that reach the corners, then through the
    workloads of the config. Then it is explored: scenarios, which are made-up sequences of calls,
    are played until one differs, and that one is made smaller. Whole buffers are compared. Variants
    run in a process of their own, and one that crashes fails alone. Exit code 5 means that one
    differs, raised, crashed or hung. Workloads that need a feature that a variant lacks are skipped
    for it; that is not a failure. -k and --set choose among the workloads of the config alone.

    Examples:
    - `bt-bench check`
    - `bt-bench check origin --variants fused`
    - `bt-bench check quick --kernels ./my_kernels --variants mine`
    - `bt-bench check --variants fused --deep`
    - `bt-bench check --variants fused --scenario 17`
    - `bt-bench check --kernels ./my_kernels --scenario reports/check/mine-17.json`
    """
    wanted = _wanted(scenario, explore, seed, deep=deep)
    paths = paths or require_paths
    if paths and wanted == range(0):
        raise UsageError(
            "--paths lists code that no scenario ran, and --explore 0 plays none; leave one of "
            "them out"
        )
    spec = load_spec(
        config,
        suite=suite,
        variants=variants,
        operations=operations,
        select=select,
        overrides=overrides,
    )
    if seed is None and deep:
        seed = int(f"{date.today():%Y%m%d}")
    if seed is not None:
        spec = spec.model_copy(update={"plan": spec.plan.model_copy(update={"seed": seed})})
    entries = choose_variants(
        spec, kernel_folders(kernels, spec), vllm_source, by_name=variants is not None
    )
    say_begin(spec, entries)

    from bt_bench.analysis import crash_text
    from bt_bench.cli.progress import told_on_stderr
    from bt_bench.protocol import load_suite
    from bt_bench.runs import (
        BATCH,
        PROCESSES,
        Exploring,
        check_memory,
        check_spec,
        limit_seconds,
        read_found,
    )
    from bt_bench.worker import Noticing

    outcomes: list[Outcome] = []
    warnings: list[str] = []

    def warn(arms: Sequence[str], crash: Crash) -> None:
        whose = f"{arms[0]}, " if crash.known else ""
        warnings.append(f"{whose}{crash_text(crash)}")
        print(f"bt-bench: warning: {visible(warnings[-1])}", file=sys.stderr, flush=True)

    explored: list[Explored] = []
    again: dict[str, str] = {}  # by variant: words after `--scenario` that reproduce its fault
    known = load_suite(spec.suite)
    recipes: Sequence[Recipe] = ()
    numbers = range(0)
    of = f"seed {spec.plan.seed}"
    if isinstance(wanted, Path):
        of = str(wanted)
        recipes, doubt = read_found(wanted, known)
        if doubt:
            print(f"bt-bench: warning: {visible(doubt)}", file=sys.stderr, flush=True)
    else:
        numbers = wanted
    references = worker_for(spec, [], "cpu")
    with ExitStack() as at_end, worker_for(spec, entries, device, traceback=traceback) as worker:
        at_end.callback(references.close)
        if recipes or numbers:
            references.start()  # its start takes as long as some checks
        kind = worker.hello.device
        workers = [worker]
        # A stored scenario may depend on scenarios played before it in the same process.
        for _ in range(1, 1 if recipes else min(PROCESSES[kind], -(-len(numbers) // BATCH))):
            workers.append(worker_for(spec, entries, kind, traceback=traceback))
            at_end.callback(workers[-1].close)
            workers[-1].start()
        check_memory(spec, len(entries), worker.hello.available_bytes)
        noticing = Noticing(worker, warn)
        names = [entry.name for entry in entries]
        failures = Failures(show_all=show_all)
        try:
            began = time.monotonic()
            with told_on_stderr() as tell:
                for outcome in check_spec(noticing, spec, names) if scenario is None else ():
                    outcomes.append(outcome)
                    what = f"checked {outcome.workload} · {outcome.operation}"
                    tell(f"{what}: {len(outcomes)} checks", time.monotonic() - began)
                    is_failure = outcome.failure is not None
                    is_shown = failures.is_shown(outcome) if is_failure else show_all
                    if not as_json and is_shown:
                        print(_line(outcome), flush=True)
        finally:  # also when it is interrupted
            for line in () if as_json else failures.lines():
                print(line)
            for line in () if as_json or show_all else _summed_up(outcomes):
                print(line, flush=True)
        limit = limit_seconds(len(numbers) + len(recipes), deep=deep)
        failed = {outcome.variant for outcome in outcomes if outcome.failure is not None}
        right = [name for name in names if name not in failed]
        repeating = _words(
            *([] if config == "-" else [(config,)]),
            *([("--suite", suite)] if suite is not None else []),
            *(("--kernels", folder) for folder in kernels or ()),
            *(("--vllm-source", folder) for folder in vllm_source or ()),
            *([("--device", device)] if device not in (None, "auto") else []),
        )
        if right and (recipes or numbers):
            with references, ExitStack() as beside, told_on_stderr() as tell:
                for other in workers[1:]:
                    beside.enter_context(other)
                exploring = Exploring(
                    known,
                    [Noticing(each, warn) for each in workers],
                    references,
                    spec.plan.seed,
                    deep=deep,
                    lines=paths or deep,
                    on_batch=lambda arm, played, of, seconds: tell(
                        f"exploring {arm}: {played} of {of} scenarios", seconds
                    ),
                )
                for one in exploring.explore(right, numbers, recipes, limit):
                    explored.append(one)
                    if one.found is not None and one.found.needs:
                        file = str(wanted) if recipes else _stored(known, one)
                        words = [file] if file else _by_numbers(one.found)
                        again[one.variant] = shlex.join(words)
                    if not as_json:
                        command = _again(one, repeating, again.get(one.variant, ""))
                        text = _explored_text(one, of, command, paths=paths)
                        print(text, flush=True)
    counts = Counter(map(_status, outcomes)) + Counter(map(_explored_status, explored))
    if as_json:
        print_json(_document(kind, spec.plan.seed, outcomes, explored, again, warnings))
    else:
        for entry in entries:
            if entry.opponent is not None and entry.opponent.note:
                print(f"{entry.name} {entry.opponent.note}")
        skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
        both = _branches_text(explored)
        print(f"{counts['ok']} passed, {counts['failed']} failed{skipped}, on {kind}{both}")
    lacking = list(filter(None, map(_unreached, explored))) if require_paths else []
    for line in lacking:
        print(f"bt-bench: --require-paths: {line}", file=sys.stderr, flush=True)
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


def _summed_up(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield per variant a line for the checks that passed, and a line per reason for skipping."""
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
    """Return a count such as `24 checks of 12 workloads`."""
    workloads = len({outcome.workload for outcome in outcomes})
    checks = f"{len(outcomes)} check{'s' * (len(outcomes) != 1)}"
    return f"{checks} of {workloads} workload{'s' * (workloads != 1)}"


def _wanted(
    scenario: str | None, explore: str | None, seed: int | None, *, deep: bool
) -> range | Path:
    """Return the scenarios to play: their numbers, or the file that holds them."""
    from bt_bench.runs import SCENARIOS

    if scenario is None:
        count = str(SCENARIOS[deep]) if explore is None else explore
        if not count.isdecimal():
            raise UsageError(
                f"--explore {count}: expected a number of scenarios, such as {SCENARIOS[deep]}, or "
                "0 for none; seconds are no longer taken, since the result depended on how busy a "
                "machine was"
            )
        return range(int(count))
    path = Path(scenario)
    first, dash, last = scenario.partition("-")
    if path.suffix == ".json" or path.is_file():
        if deep or seed is not None:
            raise UsageError(
                f"--scenario {scenario}: the scenarios of a file have a seed of their own, and are "
                "deep or not; leave out --seed and --deep"
            )
        return path
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UsageError(
            f"--scenario {scenario}: expected the number of a scenario, a range as in 0-17, or a "
            "file that check has stored"
        )
    numbers = range(int(first), int(last or first) + 1)
    if not numbers:
        raise UsageError(f"--scenario {scenario}: expected the lower number first")
    return numbers


def _words(*options: tuple[object, ...]) -> list[str]:
    """Return the words of a command line."""
    return [str(part) for option in options for part in option]


def _again(one: Explored, repeating: list[str], scenario: str) -> str:
    """Return the command that reproduces a fault; empty without one.

    Args:
        one: the variant's result.
        repeating: words of the command besides variant and scenario.
        scenario: the command's words after `--scenario`, as typed.
    """
    words = ["bt-bench", "check", *repeating, "--variants", one.variant, "--scenario"]
    return f"{shlex.join(words)} {scenario}" if scenario else ""


def _by_numbers(found: Found) -> list[str]:
    """Return words that name scenarios by numbers, seed and depth, where they are not stored."""
    source = found.needs[-1].source
    return [_numbers_of(found), "--seed", str(source.seed), *["--deep"] * source.deep]


def _stored(suite: Suite, one: Explored) -> str:
    """Store a fault, and return the name of its file; empty if it cannot be written."""
    from bt_bench.config import read_settings
    from bt_bench.runs import store_found

    assert one.found is not None
    folder = (read_settings(Path.cwd()).reports or Path("reports")) / "check"
    try:
        path = store_found(folder, suite, one.variant, one.found)
        return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    except OSError as error:
        print(
            f"bt-bench: warning: the scenario is not stored: {visible(str(error))}",
            file=sys.stderr,
            flush=True,
        )
    return ""


def _numbers_of(found: Found) -> str:
    """Return the numbers of the scenarios that reproduce a fault, such as `17` or `0-17`."""
    numbers = [recipe.source.number for recipe in found.needs] or [found.number]
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def _explored_status(one: Explored) -> str:
    if one.skipped:
        return "skipped"
    return "ok" if one.found is None and not one.stopped else "failed"


def _explored_text(one: Explored, of: str, again: str, *, paths: bool) -> str:
    """Return one variant's lines.

    Args:
        one: the variant's result.
        of: the source of its scenarios.
        again: the command that reproduces its fault; empty without one.
        paths: whether to list code that no scenario reached.
    """
    if one.skipped:
        return f"skipped {one.variant} · explored · {one.skipped}"
    took = f"{_scenarios(one.scenarios)} of {of} in {one.seconds:.0f} s"
    found = one.found
    if one.stopped:
        return (
            f"FAILED  {one.variant} · explored · {took}\n"
            f"        given up: {one.wanted - one.scenarios} of {one.wanted} scenarios were not "
            "played in many times the time that they should take; nothing is known of them"
        )
    if found is None:
        return "\n".join(
            [
                f"ok      {one.variant} · explored · {took}",
                *(f"        not tried: {text}" for text in one.not_tried),
                *_coverage_lines(one, listed=paths),
            ]
        )
    lines = [
        f"FAILED  {one.variant} · scenario {found.number}, {found.title} · {took}",
        f"        {found.reason.code}: {found.reason.message}",
        *(f"          {line}" for line in found.lines),
    ]
    if again:
        lines.append(f"        again: {again}")
    return "\n".join(lines)


def _unreached(one: Explored) -> str:
    """Describe the code that makes `--require-paths` fail for a variant; empty if none does."""
    if one.skipped or one.found is not None:
        return ""
    if one.coverage is None:
        return f"{one.variant}: the lines that ran in one of its processes are unknown"
    lines = sum(each.last - each.first + 1 for each in _unexcused(one))
    ways = sum(not each.excuse for each in one.coverage.one_sided)
    if not lines and not ways:
        return ""
    return (
        f"{one.variant}: {lines} lines of its own code were not reached, and {ways} branches went "
        "one way only; --paths lists them, and a comment '# unreached: REASON' excuses one"
    )


def _unexcused(one: Explored) -> list[Unreached]:
    """Return the unreached lines of a variant's own code that no comment excuses."""
    unreached = one.coverage.unreached if one.coverage is not None else ()
    return [each for each in unreached if not each.excuse]


def _coverage_lines(one: Explored, *, listed: bool) -> list[str]:
    """Return lines about the coverage of a variant's own code; none unless `listed`.

    Args:
        one: the variant's result.
        listed: whether to list coverage and unreached code.
    """
    if one.coverage is None or not one.coverage.total or not listed:
        return []
    lines = [
        f"        {one.coverage.reached} of {one.coverage.total} lines of its own code were reached"
    ]
    missing = [
        f"not reached: {each.file}:{each.first}"
        f"{f'-{each.last}' if each.last > each.first else ''}, {each.function}"
        for each in _unexcused(one)
    ]
    missing += [
        f"one way only: {each.file}:{each.line}, {each.function}: never {each.missing}"
        for each in one.coverage.one_sided
    ]
    lines += [f"          {each}" for each in missing[:MOST_PLACES]]
    if len(missing) > MOST_PLACES:
        lines.append(f"          and {len(missing) - MOST_PLACES} more places (--json has all)")
    return lines


def _branches_text(explored: Sequence[Explored]) -> str:
    """Count the branches of the variants' own code, and the ones that went both ways."""
    known = [one.coverage for one in explored if one.coverage is not None]
    branches, both = (sum(getattr(one, name) for one in known) for name in ("branches", "both"))
    if not branches:
        return ""
    return f"; {both} of {branches} branches of their own code went both ways"


def _scenarios(number: int) -> str:
    return f"{number} scenario{'s' * (number != 1)}"


def _document(
    device: str,
    seed: int,
    outcomes: list[Outcome],
    explored: list[Explored],
    again: Mapping[str, str],
    warnings: list[str],
) -> dict[str, object]:
    return {
        "schema_version": 1,
        "device": device,
        "seed": seed,
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
                "wanted": one.wanted,
                "seconds": round(one.seconds, 3),
                "skipped": one.skipped or None,
                "not_tried": list(one.not_tried),
                "lines": None
                if one.coverage is None
                else {
                    "reached": one.coverage.reached,
                    "total": one.coverage.total,
                    "unreached": [asdict(each) for each in one.coverage.unreached],
                },
                "branches": None
                if one.coverage is None
                else {
                    "both": one.coverage.both,
                    "total": one.coverage.branches,
                    "one_sided": [asdict(each) for each in one.coverage.one_sided],
                },
                "found": None
                if one.found is None
                else {
                    "scenario": one.found.number,
                    "title": one.found.title,
                    "reason": one.found.reason.model_dump(),
                    "lines": list(one.found.lines),
                    "numbers": _numbers_of(one.found),
                    "again": again.get(one.variant),
                },
            }
            for one in explored
        ],
    }
