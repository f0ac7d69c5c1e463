"""Choices and checks before a sweep starts: variants, memory, a run to resume, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bt_bench.base import format_bytes
from bt_bench.base.errors import UsageError
from bt_bench.config import SweepSpec
from bt_bench.protocol import flat_parameters, info_of, load_suite
from bt_bench.results import (
    CONFIG_NAME,
    DIVISION_NAME,
    Division,
    Environment,
    Harm,
    RunFolder,
    VariantResult,
    helper_differences,
    read_run,
    result_name,
)
from bt_bench.variants import VariantEntry, choose, find_variants

# An instance of a variant holds its tensors and a copy of them from before the first step.
COPIES_PER_INSTANCE = 2
# A check also holds the reference and the expected buffers, both in int64.
COPIES_OF_REFERENCE = 4


def choose_variants(
    spec: SweepSpec,
    folders: Sequence[Path],
    vllm_sources: Sequence[Path] = (),
    *,
    by_name: bool,
    say: Callable[[str], None],
) -> list[VariantEntry]:
    """Return the variant files of a config, without running any.

    Args:
        spec: the config, with names from it or from options.
        folders: folders of variant files.
        vllm_sources: unpacked wheels for variants that wrap vLLM.
        by_name: the names come from options. Otherwise unavailable opponents are left out.
        say: receives a line for each of these.
    """
    suite = load_suite(spec.suite)
    opponents = suite.opponents(vllm_sources)
    chosen, absent = opponents.expand(spec.variants, by_name=by_name)
    for name, reason in absent.items():
        say(f"{name} is left out: {reason}")
    return choose(chosen, find_variants(folders, opponents=opponents, suite=suite))


def settle_sweep(
    spec: SweepSpec, entries: Sequence[VariantEntry], folders: Sequence[Path]
) -> SweepSpec:
    """Check names and files of a sweep, and return its config as it is run.

    Args:
        spec: the config as loaded.
        entries: the variants that are run.
        folders: the folders of variant files.

    Raises:
        UsageError: for a variant whose name cannot name a file, and as `check_files` does.
    """
    for entry in entries:
        result_name(entry.name)  # or it would fail only when files are written
    settled = spec.model_copy(
        update={
            "variants": [entry.name for entry in entries],
            "kernels": [str(folder.absolute()) for folder in folders],
        }
    )
    check_files(settled)
    return settled


def check_memory(spec: SweepSpec, num_arms: int, available: int | None) -> None:
    """Refuse cases that would not fit.

    Raises:
        UsageError: naming the first such case, the memory that it needs, and the available memory.
    """
    timed_arms = num_arms + spec.plan.control  # the first one twice
    for case in spec.cases:
        measuring = timed_arms * spec.plan.instances * COPIES_PER_INSTANCE
        paths = len({operation.path for operation in spec.operations})
        copies = max(measuring, num_arms * paths) + COPIES_OF_REFERENCE
        needed = case.parameters.num_bytes() * copies
        if available is not None and needed > available:
            advice = load_suite(spec.suite).memory_advice
            raise UsageError(
                f"case {case.name!r} would need {format_bytes(needed)} of memory for "
                f"{spec.plan.instances} instances of {num_arms} variants"
                f"{' and the control' * spec.plan.control}; "
                f"{format_bytes(available)} are available. {advice[:1].upper()}{advice[1:]}, use "
                "fewer variants or plan.instances, or leave it out with -k"
            )


def check_conditions(environment: Environment, *, profiles: bool = True) -> None:
    """Refuse to time where a setting or an attached tool makes figures false.

    Args:
        environment: of the process that measures.
        profiles: whether anything is profiled, which a second profiler would make impossible.

    Raises:
        UsageError: naming all such conditions, each with a remedy.
    """
    harms = [Harm.FALSE, *([Harm.PROFILER] if profiles else [])]
    found = [each for each in environment.conditions or () if each.harm in harms]
    if not found:
        return
    texts = "\n".join(each.text for each in found)
    hint = ""
    if {each.harm for each in found} == {Harm.PROFILER}:
        hint = ", or with --set plan.profile_rounds=0, so that bt-bench profiles nothing itself"
    raise UsageError(
        f"times would be false:\n{texts}\n`bt-bench check`, which times nothing, runs all the "
        f"same{hint}"
    )


def check_resumable(
    folder: RunFolder,
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    environment: Environment,
    division: Division | None = None,
) -> None:
    """Refuse to continue a run if anything but its device has changed since it was started.

    GPUs, drivers and hosts may differ, as of shards that are merged: each case keeps its own.

    Args:
        folder: the run.
        spec: the config in its folder.
        entries: the variants as they are now.
        environment: of the process that is to measure.
        division: the division in its folder, if the run is a shard.

    Raises:
        UsageError: naming the difference.
    """
    folder.refuse_packed()
    earlier = read_run(folder)
    suite = info_of(load_suite(spec.suite))
    sources = {entry.name: entry.source_sha256() for entry in entries}
    shard = None if division is None else division.shard
    for result in earlier:
        name = result.variant.name
        if result.shards:
            raise UsageError(
                f"{folder.path} is merged of {len(result.shards)} shards and measures nothing; "
                "continue the run of a shard, and merge again"
            )
        if result.shard != shard:
            raise UsageError(
                f"{folder.result_path(name)} is of shard "
                f"{result.shard.text if result.shard else 'none'}, but {DIVISION_NAME} beside it "
                f"of {shard.text if shard else 'none'}, or of another sweep; put the file back"
            )
        if name not in sources:
            raise UsageError(f"{folder.result_path(name)}: variant {name!r} is not in the config")
        if result.variant.source_sha256 != sources[name]:
            raise UsageError(
                f"{folder.path}: the source of variant {name!r} (or of "
                f"{load_suite(spec.suite).package}) has changed since; start a new run"
            )
        if result.suite is None:
            raise UsageError(
                f"{folder.path} was started by an earlier version of bt-bench; start a new run"
            )
        if result.suite != suite:
            raise UsageError(
                f"{folder.path}: the source of suite {suite.name!r} has changed since; start a new "
                "run"
            )
        if result.plan != spec.plan:
            raise UsageError(f"{folder.result_path(name)}: has another plan; start a new run")
        _refuse_changed_cases(folder.result_path(name), result, spec)
        for difference in helper_differences(result.environment.helpers, environment.helpers):
            raise UsageError(
                f"{folder.path} was started with other helpers, then against now: {difference}; "
                "put that back, or start a new run"
            )
        for what in ("device", "bt_bench", "torch", "triton", "cuda"):
            then, now = getattr(result.environment, what), getattr(environment, what)
            if then != now:
                raise UsageError(
                    f"{folder.path} was started with {what} {then}, but this is {now}; start a new "
                    "run"
                )


def _refuse_changed_cases(path: Path, result: VariantResult, spec: SweepSpec) -> None:
    """Refuse a result with finished cases that differ from the config's."""
    wanted = {case.name: flat_parameters(case.parameters) for case in spec.cases}
    for case in result.cases:
        if case.workload.parameters != wanted.get(case.case):
            raise UsageError(
                f"{path}: case {case.case!r} was measured with other parameters than {CONFIG_NAME} "
                "has now; put the config back, or start a new run"
            )


def check_files(spec: SweepSpec) -> None:
    """Refuse workloads that do not fit their files' contents, such as a window beyond a trace.

    Raises:
        UsageError: naming each such case, or the first case of those with the same error.
    """
    found: dict[str, str] = {}
    for case in spec.cases:
        try:
            case.parameters.check_by_reading()
        except UsageError as error:
            found.setdefault(str(error), case.name)
    if found:
        raise UsageError("\n".join(f"case {case!r}: {error}" for error, case in found.items()))
