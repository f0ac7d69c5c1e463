"""The first part of a run's report: its machine and software, its checks, and its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bt_bench.analysis import Agreement, agreement, device_name, limit_facts
from bt_bench.base.errors import counted, listed
from bt_bench.base.names import DEFAULT_SUITE
from bt_bench.report.run.arranged import Arms, CaseId
from bt_bench.report.run.cells import range_text
from bt_bench.results import (
    DiscardCode,
    Environment,
    Quantity,
    Status,
    Stopping,
    StopReason,
    VariantResult,
    condition_texts,
    fallback_texts,
    helpers_text,
    suite_name,
)

_NO_GPU = (
    "results and launch counts come from Triton's interpreter; staging is timed on pageable "
    "memory, which no GPU run compares with."
)
_STOPPED = {
    StopReason.PRECISE: "target precision reached",
    StopReason.STABLE: "noise stable",
    StopReason.TIME: "time limit",
    StopReason.ROUNDS: "maximum of rounds",
}
_DISCARDED = {
    DiscardCode.THROTTLED: "throttled",
    DiscardCode.QUOTA: "stopped by the CPU quota",
    DiscardCode.CLOCK: "clock too low",
    DiscardCode.COMPILED: "something was compiled",
    DiscardCode.SHARED: "another process came to the GPU",
}


def measured_on(results: Sequence[VariantResult]) -> list[str]:
    """Return a text per environment; several only if results of several runs are combined."""
    measured: dict[tuple[str, ...], dict[str, None]] = {}
    for result in results:
        for part in result.part_numbers:
            texts = tuple(describe_environment(result.environment_of(part)))
            name = result.part_name(part) or result.variant.name
            measured.setdefault(texts, {})[name] = None
    if len(measured) == 1:
        return list(next(iter(measured)))
    return [f"{', '.join(names)}: {' '.join(texts)}" for texts, names in measured.items()]


def run_facts(arms: Arms) -> Iterator[str]:
    """Yield facts on the run, its rounds, and the baseline of the changes."""
    yield from measuring_facts(arms)
    if arms.others:
        others = ", ".join(arm.name for arm in arms.others)
        yield f"Changes: {others} against {arms.baseline.name}."
    else:
        yield f"Only {arms.baseline.name} was measured, so there are no changes to show."


def measuring_facts(arms: Arms) -> Iterator[str]:
    """Yield facts on the run, its checks, its rounds, its binaries, and opponents."""
    yield _run_fact(arms)
    yield from _check_facts(arms)
    yield from _round_facts(arms)
    yield from _binary_facts(arms)
    yield from _opponent_facts(arms)


def brief_facts(arms: Arms) -> Iterator[str]:
    """Yield facts on the run, its checks, its measurements, and missing ones with the reason."""
    yield _run_fact(arms)
    yield from _check_facts(arms)
    yield from _opponent_facts(arms)
    yield from _measured_facts(arms)


def _run_fact(arms: Arms) -> str:
    result = arms.baseline.result
    environment = result.environment
    commit = f", commit {environment.commit[:12]}" if environment.commit else ""
    dirty = " with uncommitted changes" if environment.commit and environment.dirty else ""
    tool = f"bt-bench {result.tool.version}{commit}{dirty}"
    suite = suite_name(result.suite)
    of_suite = "" if suite == DEFAULT_SUITE else f" of suite {suite}"
    told = f"Run {result.run_id}{of_suite} of {result.created} by {tool}."
    if result.shards:
        told += f" It is merged of {counted(len(result.shards), 'shard')}."
    elif result.parts is not None:
        names = (result.part_name(part) for part in result.part_numbers)
        told += f" Its cases were measured on {listed([name or '' for name in names])}."
    if result.shard is not None:
        told += f" It is shard {result.shard.text} of {counted(result.shard.cases, 'case')}."
    return told


def progress_text(arms: Arms, planned_cases: int | None) -> str:
    """Return the progress of an interrupted run."""
    done_ids = [i for i in arms.case_ids if all(i in arm.cases for arm in arms.all)]
    shards = arms.baseline.result.shards
    if shards:
        there = len({case_id.case for case_id in done_ids})
        return (
            f"PARTIAL: merged of {len(shards)} of {counted(shards[0].count, 'shard')}; "
            f"{there} of {counted(shards[0].cases, 'workload')} are done for every variant. "
            "Measure the missing ones, and merge again."
        )
    done = len(done_ids)
    planned = "" if planned_cases is None else f" of {planned_cases}"
    return (
        f"PARTIAL: the run was interrupted; {done}{planned} "
        f"{'case is' if done == 1 and not planned else 'cases are'} done for every variant. "
        "Continue it with --resume."
    )


def describe_environment(environment: Environment) -> Iterator[str]:
    """Yield sentences on a machine, its software, and its limits and warnings."""
    name = device_name(environment) or "an unknown device"
    software = f"torch {environment.torch or '?'}, Triton {environment.triton or '?'}"
    helpers = "" if environment.helpers is None else f" {helpers_text(environment.helpers)}"
    if environment.device == "cuda":
        cuda = f"CUDA {environment.cuda or '?'}, driver {environment.driver or '?'}"
        yield f"Measured on {name}, {software}, {cuda}.{helpers}"
    else:
        yield f"{'No GPU was used' if environment.gpus else 'No GPU'}: {_NO_GPU}"
        yield f"Measured on {name} ({environment.cpu_count or '?'} CPUs), {software}.{helpers}"
    yield from limit_facts(environment)
    if environment.commit_unknown:
        reason = " ".join(environment.commit_unknown.split())
        yield f"Warning: the commit of the sources is not recorded: {reason}"
    yield from (f"Warning: {text}." for text in condition_texts(environment.conditions))
    yield from (f"Warning: {text}." for text in fallback_texts(environment.helpers))


def _check_facts(arms: Arms) -> Iterator[str]:
    """Yield a fact on the comparison with the reference before timing, and on its outcome."""
    cases = [case for arm in arms.all for case in arm.cases.values()]
    checks = [case.check for case in cases if case.check]
    others = Counter(case.status.value for case in cases if not case.check)
    if not checks and not others[Status.FAILED.value]:
        return  # an earlier version did not record it, or nothing was reached
    workloads = {case_id.case for case_id in arms.case_ids}
    operations = {case_id.operation for case_id in arms.case_ids}
    numbers = ((arms.all, "variant"), (workloads, "workload"), (operations, "operation"))
    of = " × ".join(counted(len(found), name) for found, name in numbers)
    buffers = max((len(check.buffers) for check in checks), default=0)
    steps = sum(check.steps for check in checks)
    depth = (
        f" of up to {counted(buffers, 'buffer')} after each of {counted(steps, 'step')}"
        if checks
        else ""
    )
    tolerant = sorted({name for check in checks for name in check.within_tolerance})
    exactly = (
        f"{listed(tolerant)} {Agreement.TOLERANT} and all else {Agreement.EXACT}"
        if tolerant
        else f"{Agreement.EXACT}"
    )
    count = counted(len(cases), "comparison")
    yield (
        f"Checked before timing: the conformance workloads, then {of}, {count}{depth}. "
        + (
            f"{len(checks)} equal the reference, {exactly}; "
            f"{', '.join(f'{count} {status}' for status, count in others.items())}."
            if others
            else f"All equal the reference, {exactly}."
        )
    )


def check_text(arms: Arms) -> str:
    """Return a clause on whether the results of all cases are right; empty if unknown."""
    how = agreement(case for arm in arms.all for case in arm.cases.values())
    if how is None:
        return ""
    who = arms.baseline.name if len(arms.all) == 1 else f"{len(arms.all)} variants"
    comma = "," if how is Agreement.EXACT else ""
    return f"{who} {'equals' if len(arms.all) == 1 else 'equal'} the reference{comma} {how}"


def _measured_facts(arms: Arms) -> Iterator[str]:
    """Yield facts on the measured quantities, the number of rounds, and missing quantities."""
    cases = [case for arm in arms.all for case in arm.cases.values()]
    taken = {measurement.quantity for case in cases for measurement in case.measurements}
    whole = [quantity for quantity in Quantity if not quantity.traits.is_part]
    times = [quantity.traits.heading for quantity in whole if quantity in taken]
    what = ["launches"] if any(case.launches for case in cases) else []
    what += [f"{listed(times)} times"] if times else []
    rounds = [stopping.rounds for stopping in stoppings(arms)]
    many = f", in {range_text(rounds)} rounds per case" if any(rounds) else ""
    if what:
        yield f"Measured: {', and '.join(what)}{many}."
    absent = [quantity.traits.heading for quantity in whole if quantity not in taken]
    if arms.on_cpu and Quantity.STAGE_US not in taken:
        absent.remove(Quantity.STAGE_US.traits.heading)
        yield "Not measured: stage times, since no case got that far."
    if arms.on_cpu:
        yield f"Not measured: {listed(absent)} times, which need a GPU."
    elif absent and times:
        reasons = {
            case.reason.message for case in cases if case.status is Status.OK and case.reason
        }
        why = f": {'; '.join(sorted(reasons))}" if reasons else ""
        yield f"Not measured: {listed(absent)} times{why}."


def _round_facts(arms: Arms) -> Iterator[str]:
    """Yield a fact on the rounds of the cases: how many, why they ended, and how many discarded."""
    plan = arms.baseline.result.plan
    plural = "" if plan.warmup_rounds == 1 else "s"
    warm_up = f"after {plan.warmup_rounds} warm-up round{plural}"
    stops = stoppings(arms)
    if not stops:
        yield f"Up to {plan.rounds} rounds per case {warm_up}."
        return
    if not any(stop.rounds for stop in stops):
        yield "No round was taken: nothing is staged, and nothing else is timed without a GPU."
        return
    reasons = Counter(stop.reason for stop in stops)
    why = ", ".join(f"{_STOPPED[code]} ({reasons[code]})" for code in StopReason if reasons[code])
    discarded: Counter[DiscardCode] = Counter()
    for stop in stops:
        discarded.update(stop.discarded)
    what = ", ".join(
        f"{discarded[code]} {_DISCARDED[code]}" for code in DiscardCode if discarded[code]
    )
    yield (
        f"{range_text([stop.rounds for stop in stops])} rounds per case {warm_up}; cases by why "
        f"they stopped: {why}. Discarded rounds: {what or 'none'}."
    )


def stoppings(arms: Arms) -> list[Stopping]:
    """Return how the rounds of the cases ended, where known."""
    return [stop for case_id in arms.case_ids if (stop := _stopping(arms, case_id)) is not None]


def _stopping(arms: Arms, case_id: CaseId) -> Stopping | None:
    """Return how the rounds of a case ended, which is the same for all its arms."""
    found = (arm.cases[case_id].stopping for arm in arms.all if case_id in arm.cases)
    return next((stopping for stopping in found if stopping is not None), None)


def _opponent_facts(arms: Arms) -> Iterator[str]:
    """Yield facts on opponents that were checked by their own definitions."""
    for arm in arms.all:
        checks = (case.check for case in arm.result.cases if case.check is not None)
        names = sorted({name for check in checks for name in check.differences})
        if names:
            yield (
                f"{arm.name} is {arm.result.variant.summary}. It was checked by its own "
                f"definitions in {', '.join(names)}; see docs/vllm.md."
            )


def _binary_facts(arms: Arms) -> Iterator[str]:
    """Yield a fact on kernels that ran as several binaries."""
    hashes: dict[str, dict[str, set[str]]] = {}
    for arm in arms.all:
        for case in arm.cases.values():
            for kernel in case.compiled or ():
                of_arm = hashes.setdefault(kernel.name, {}).setdefault(arm.name, set())
                of_arm.update(kernel.hashes)
    several = [
        f"{kernel} ({', '.join(f'{arm} {len(found)}' for arm, found in by_arm.items())})"
        for kernel, by_arm in hashes.items()
        if max(map(len, by_arm.values())) > 1
    ]
    if several:
        yield (
            f"More than one binary ran of some kernels, with their number: {', '.join(several)}. "
            "Cases may differ because of that, and not only by their size."
        )
