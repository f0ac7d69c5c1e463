"""How long a sweep will take, before it runs: an estimate from its plan and its cases."""

from __future__ import annotations

from bt_bench.config import CaseSpec, SweepSpec
from bt_bench.names import DeviceKind

# What a fairly quick machine takes, in seconds. Rounds may end early, so that it is an upper bound
# of what they take; noise or a slow machine may double the rest.
START_S = 8.0  # imports and calibration
CONFORMANCE_S = 3.0  # per variant
ROUND_S = {"cpu": 0.0004, "cuda": 0.002}  # per arm, without what its kernels take
WRITING_S = {"cpu": 0.0001, "cuda": 0.0}  # per program of a step; without a GPU rounds only write
CHECKING_S = {"cpu": 0.004, "cuda": 0.0}  # per program of a step that is checked
COMPILING_S = {"cpu": 0.1, "cuda": 1.0}  # per arm, operation and case
SPOT_CHECKS = 2  # replays of each arm that check what is timed, beside one per instance


def estimate_seconds(spec: SweepSpec, num_arms: int, device: DeviceKind) -> float:
    """About how many seconds a sweep takes.

    Args:
        spec: the config.
        num_arms: variants that are measured.
        device: where.

    Returns:
        An estimate, more often too long than too short.
    """
    cases = sum(_case_seconds(case, spec, num_arms, device) for case in spec.cases)
    return START_S + num_arms * CONFORMANCE_S + cases


def _case_seconds(case: CaseSpec, spec: SweepSpec, num_arms: int, device: DeviceKind) -> float:
    """Checks, warm-up, rounds, and checks of what was timed, of all operations."""
    plan = spec.plan
    timed = num_arms + plan.control
    programs = case.parameters.num_programs()
    round_s = timed * (ROUND_S[device] + programs * WRITING_S[device])
    instances = min(plan.instances, max(1, plan.rounds // 2))
    rounds_s = min(plan.case_seconds, plan.rounds * round_s)
    warming_s = instances * plan.warmup_rounds * round_s
    replays = num_arms * plan.check_rounds + timed * (instances + SPOT_CHECKS)
    each = rounds_s + warming_s + replays * programs * CHECKING_S[device]
    return len(spec.operations) * (each + num_arms * COMPILING_S[device])


def duration_text(seconds: float) -> str:
    """Such as `40 seconds`, `12 minutes` or `3.5 hours`: no more digits than an estimate has."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
