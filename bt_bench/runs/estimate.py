"""Estimated duration of a sweep or a gate, from its plan and its cases before it runs."""

from __future__ import annotations

import math

from bt_bench.base.names import DeviceKind
from bt_bench.config import CaseSpec, SweepSpec
from bt_bench.results import Plan

# Seconds on a fairly quick machine. For rounds, which may end early, it is an upper bound; noise or
# a slow machine may double the rest.
START_S = 8.0  # imports and calibration
CONFORMANCE_S = 3.0  # per variant
ROUND_S = {"cpu": 0.0004, "cuda": 0.002}  # per arm, without its kernels
WRITING_S = {"cpu": 0.0001, "cuda": 0.0}  # per program of a step; without a GPU rounds only write
CHECKING_S = {"cpu": 0.004, "cuda": 0.0}  # per program of a step that is checked
COMPILING_S = {"cpu": 0.1, "cuda": 1.0}  # per arm, operation and case
SPOT_CHECKS = 2  # replays of each arm that check timed calls, beside one per instance
SETTING_UP_S = 4.0  # a process of a gate, where it has a core
TIMED_S = 6.0  # the most that the rounds of a gate's process take
AROUND_S = 0.5  # of a gate's process: it warms up, and profiles
# Of each revision of a gate, whose caches begin empty: an H100 host took 49 to 58 s to check it.
COMPILING_ANEW_S = {"cpu": 0.0, "cuda": 50.0}
REVISIONS, ARMS = 2, 3  # of a gate, which checks both, and times base, head and control


def estimate_seconds(spec: SweepSpec, num_arms: int, device: DeviceKind, devices: int = 1) -> float:
    """Estimate how many seconds a sweep takes.

    Args:
        spec: the config.
        num_arms: number of measured variants.
        device: the device to measure on.
        devices: number of devices, which share the work but for the rounds that time the host;
            those beyond the number of cases have none.

    Returns:
        An estimate, more often too long than too short.
    """
    cases = [_case_seconds(case, spec, num_arms, device) for case in spec.cases]
    in_turn_s = sum(rounds_s for rounds_s, _ in cases)
    shared_s = num_arms * CONFORMANCE_S + in_turn_s + sum(others_s for _, others_s in cases)
    at_once = max(1, min(devices, len(cases)))  # a shard may have no case
    return START_S + max(shared_s / at_once, in_turn_s)


def estimate_gate_seconds(
    spec: SweepSpec,
    plan: Plan,
    num_variants: int,
    device: DeviceKind,
    rounds: int,
    workers: int,
    cores: int,
    devices: int = 1,
    *,
    times_host: bool = True,
) -> float:
    """Estimate how many seconds a gate takes, with the checks of both revisions.

    Args:
        spec: the cases and the operations that are timed.
        plan: the plan of a process.
        num_variants: number of variants that both revisions have.
        device: the device to measure on.
        rounds: number of processes that are timed, one at a time on each device.
        workers: number of processes that are set up at once.
        cores: number of cores of the host.
        devices: number of devices; two or more check both revisions at once.
        times_host: whether the host is timed, at which devices take turns.

    Returns:
        An estimate, more often too long than too short.
    """
    arms, checked = ARMS * num_variants, REVISIONS * num_variants
    checks_s = checked * CONFORMANCE_S + REVISIONS * COMPILING_ANEW_S[device]
    timed_s = 0.0
    for case in spec.cases:
        programs = case.parameters.num_programs()
        replays = plan.check_rounds * programs * CHECKING_S[device] + COMPILING_S[device]
        checks_s += len(spec.operations) * checked * replays
        round_s = arms * (ROUND_S[device] + programs * WRITING_S[device])
        timed_s += len(spec.operations) * plan.rounds * round_s
    set_up_s = math.ceil(rounds / workers) * SETTING_UP_S * max(1.0, min(rounds, workers) / cores)
    in_turn = math.ceil(rounds / devices)
    rounds_s = (rounds if times_host else in_turn) * min(TIMED_S, timed_s) + in_turn * AROUND_S
    return START_S + checks_s / min(devices, REVISIONS) + set_up_s + rounds_s


def _case_seconds(
    case: CaseSpec, spec: SweepSpec, num_arms: int, device: DeviceKind
) -> tuple[float, float]:
    """Estimate the rounds of all operations, and their checks and everything else."""
    plan = spec.plan
    timed = num_arms + plan.control
    programs = case.parameters.num_programs()
    round_s = timed * (ROUND_S[device] + programs * WRITING_S[device])
    instances = min(plan.instances, max(1, plan.rounds // 2))
    rounds_s = min(plan.case_seconds, plan.rounds * round_s)
    warming_s = instances * plan.warmup_rounds * round_s
    replays = num_arms * plan.check_rounds + timed * (instances + SPOT_CHECKS)
    checks_s = replays * programs * CHECKING_S[device] + num_arms * COMPILING_S[device]
    return len(spec.operations) * rounds_s, len(spec.operations) * (warming_s + checks_s)


def duration_text(seconds: float) -> str:
    """Format a duration with no more digits than an estimate has: `12 minutes` or `3.5 hours`."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
