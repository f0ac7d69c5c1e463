"""`bt-bench check`."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import ExitStack
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import resolved
from bt_bench.cli.check_report import (
    branches_text,
    check_json,
    explored_status,
    explored_text,
    line_of,
    numbers_of,
    status,
    summed_up,
    unreached_text,
)
from bt_bench.cli.exits import say
from bt_bench.cli.failures import Failures
from bt_bench.cli.gpus import GpusOption, chosen_gpus, workers_for
from bt_bench.cli.loading import kernel_folders, load_spec, reports_folder
from bt_bench.cli.next_steps import PROGRAM, command, near, repeated
from bt_bench.cli.options import (
    ConfigArgument,
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
from bt_bench.cli.sharding import ShardOption, sharded, share_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bt_bench.protocol import Recipe, Suite
    from bt_bench.results import Crash
    from bt_bench.runs import Explored, Found, Outcome


def check(
    config: ConfigArgument = "quick",
    variants: VariantsOption = None,
    operations: OperationsOption = None,
    select: SelectOption = None,
    overrides: SetOption = None,
    shard: ShardOption = None,
    gpus: GpusOption = None,
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
    --shard takes a share of these and of the scenarios; every shard runs the small workloads.

    Examples:
    - `bt-bench check`
    - `bt-bench check origin --variants fused`
    - `bt-bench check quick --kernels ./my_kernels --variants mine`
    - `bt-bench check --variants fused --deep`
    - `bt-bench check production --shard 2/8`
    - `bt-bench check production --gpus all`
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
    if shard is not None and (scenario is not None or paths):
        option = "--scenario" if scenario is not None else "--paths"
        why = "names the scenarios itself" if scenario is not None else "needs all scenarios"
        raise UsageError(f"--shard {shard}: {option} {why}; leave one of them out")
    spec = load_spec(
        config,
        suite=suite,
        variants=variants,
        operations=operations,
        select=select,
        overrides=overrides,
    )
    spec, division = sharded(spec, shard)
    if division is not None and isinstance(wanted, range):
        wanted = share_of(wanted, division.index, division.count)
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
        Place,
        check_memory,
        check_spec,
        limit_seconds,
        read_found,
    )
    from bt_bench.worker import Noticing, leased

    outcomes: list[Outcome] = []
    warnings: list[str] = []

    def warn(arms: Sequence[str], crash: Crash) -> None:
        whose = f"{arms[0]}, " if crash.known else ""
        warnings.append(f"{whose}{crash_text(crash)}")
        say(f"warning: {warnings[-1]}")

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
            say(f"warning: {doubt}")
    else:
        numbers = wanted
    names = [entry.name for entry in entries]
    devices = chosen_gpus(gpus, device)
    references = worker_for(spec, [], "cpu")
    with (
        told_on_stderr("loading torch and the variants") as tell,
        ExitStack() as at_end,
        workers_for(spec, entries, devices, traceback=traceback) as of_devices,
        # Nothing is timed, but a run that times a GPU would be disturbed.
        leased([worker.hello.environment for worker in of_devices], say, shared=True),
    ):
        at_end.callback(references.close)
        if recipes or numbers:
            references.start()  # its start takes as long as some checks
        kind = of_devices[0].hello.device
        workers = list(of_devices)
        # A stored scenario may depend on scenarios played before it in the same process.
        most = 1 if recipes else min(PROCESSES[kind], -(-len(numbers) // BATCH))
        for place in range(len(devices), most):
            choice = resolved(devices[place % len(devices)], kind)
            workers.append(worker_for(spec, entries, choice, traceback=traceback))
            at_end.callback(workers[-1].close)
            workers[-1].start()
        for worker in of_devices:
            check_memory(spec, len(entries), worker.hello.available_bytes)
        if scenario is None:
            places = [Place(Noticing(each, warn), each.hello.environment) for each in of_devices]
            with _Shown(outcomes, show_all=show_all, as_json=as_json) as shown:
                left = check_spec(places, spec, names, shown.add, tell, say)
            alive = [place in left for place in places]
            workers = [each for each, there in zip(workers, cycle(alive), strict=False) if there]
        limit = limit_seconds(len(numbers) + len(recipes), deep=deep)
        failed = {outcome.variant for outcome in outcomes if outcome.failure is not None}
        right = [name for name in names if name not in failed]
        repeating = [
            *([] if config == "-" else [config]),
            *([] if suite is None else ["--suite", suite]),
            *repeated("--kernels", kernels or ()),
            *repeated("--vllm-source", vllm_source or ()),
            *([] if device in (None, "auto") else ["--device", device]),
        ]
        if right and (recipes or numbers):
            tell("loading torch and the variants in more processes")
            with references, ExitStack() as beside:
                for other in workers:
                    if other not in of_devices:
                        beside.enter_context(other)
                exploring = Exploring(
                    known,
                    [Noticing(each, warn) for each in workers[: max(1, most)]],
                    references,
                    spec.plan.seed,
                    deep=deep,
                    lines=paths or deep,
                    on_batch=lambda arm, played, of: tell(
                        f"exploring {arm} for at most {limit:.0f} s: {played} of {of} scenarios"
                    ),
                    on_wrong=lambda arm, number: tell(
                        f"exploring {arm}: making scenario {number} smaller"
                    ),
                )
                for one in exploring.explore(right, numbers, recipes, limit):
                    explored.append(one)
                    words = ""
                    if one.found is not None and one.found.needs:
                        file = str(wanted) if recipes else _stored(known, one)
                        words = shlex.join([file] if file else _by_numbers(one.found))
                        again[one.variant] = words
                    if not as_json:
                        beginning = ["check", *repeating, "--variants", one.variant, "--scenario"]
                        line = f"{command(*beginning, called=PROGRAM)} {words}" if words else ""
                        print(explored_text(one, of, line, paths=paths), flush=True)
    counts = Counter(map(status, outcomes)) + Counter(map(explored_status, explored))
    if as_json:
        print_json(check_json(kind, spec.plan.seed, outcomes, explored, again, warnings))
    else:
        for entry in entries:
            if entry.opponent is not None and entry.opponent.note:
                print(f"{entry.name} {entry.opponent.note}")
        skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
        both = branches_text(explored)
        print(f"{counts['ok']} passed, {counts['failed']} failed{skipped}, on {kind}{both}")
    lacking = list(filter(None, map(unreached_text, explored))) if require_paths else []
    for line in lacking:
        say(f"--require-paths: {line}")
    return ExitCode.CHECK_FAILED if counts["failed"] or lacking else ExitCode.OK


class _Shown:
    """The checks of workloads; prints their outcomes, unless there is to be a document.

    What was checked is summed up when its `with` block ends, also if it is interrupted.

    Args:
        outcomes: collects the outcomes.
        show_all: print a line for each.
        as_json: print none.
    """

    def __init__(self, outcomes: list[Outcome], *, show_all: bool, as_json: bool) -> None:
        self._outcomes = outcomes
        self._show_all, self._as_json = show_all, as_json
        self._failures = Failures(show_all=show_all)

    def add(self, outcome: Outcome) -> None:
        """Collect an outcome, and print it if it is among those to be printed one by one."""
        self._outcomes.append(outcome)
        passed = outcome.failure is None
        is_shown = self._show_all if passed else self._failures.is_shown(outcome)
        if not self._as_json and is_shown:
            print(line_of(outcome), flush=True)

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        for line in () if self._as_json else self._failures.lines():
            print(line)
        for line in () if self._as_json or self._show_all else summed_up(self._outcomes):
            print(line, flush=True)


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


def _by_numbers(found: Found) -> list[str]:
    """Return words that name scenarios by numbers, seed and depth, where they are not stored."""
    source = found.needs[-1].source
    return [numbers_of(found), "--seed", str(source.seed), *["--deep"] * source.deep]


def _stored(suite: Suite, one: Explored) -> str:
    """Store a fault, and return the name of its file; empty if it cannot be written."""
    from bt_bench.runs import store_found

    assert one.found is not None
    try:
        return near(store_found(reports_folder() / "check", suite, one.variant, one.found))
    except OSError as error:
        say(f"warning: the scenario is not stored: {error}")
    return ""
