"""One case's measurement: rounds, captured graphs, profiled passes, launches; arms side by side."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bt_bench.analysis import control_difference, median, relative_half_width
from bt_bench.base import no_collection
from bt_bench.protocol import Operation, Workload
from bt_bench.results import (
    ControlSpread,
    DiscardCode,
    LaunchCensus,
    Measurement,
    Plan,
    Reason,
    ReasonCode,
    Stopping,
)
from bt_bench.worker.measuring.ports import Call
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.regions import NOTHING
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.measuring.spot_checks import SpotChecks, way_of
from bt_bench.worker.measuring.timing import Rounds, Stopped, deciding_series
from bt_bench.worker.tasks.arm import Arm, inputs_on
from bt_bench.worker.tasks.outcome import Measured, OnRound, RoundProgress

if TYPE_CHECKING:
    from bt_bench.worker.measuring.bench import Bench

# No variant file can have this name.
CONTROL = "(control)"
# Fewer rounds show nothing: the median has a confidence interval from 6 on.
FEWEST_ROUNDS = 6


def measure_case(
    case: str,
    variants: Mapping[str, type[Any]],
    workload: Workload,
    operation: Operation,
    plan: Plan,
    bench: Bench,
    on_round: OnRound,
    control: type[Any] | None = None,
    refuse_tampering: Call = NOTHING,
) -> dict[str, Measured]:
    """Measure one operation on one workload for all variants.

    With `control`, a copy of the first variant's class, an arm of that copy takes part as well. A
    variant that fails a spot check gets a reason instead of measurements.

    Raises:
        ArmFailedError: when a variant raises. The others must then be measured again without it,
            because all their samples have to come from rounds with the same arms.
    """
    arms = dict(variants)
    original = next(iter(arms))
    if control is not None:
        arms[CONTROL] = control
    copies = {name: (variant,) for name, variant in arms.items()}
    instances = build_instances(copies, workload, plan, bench.device)
    window = ReplayWindow(case, instances, inputs_on(bench.device, workload), operation)
    records = Records(window.names, bench.around, alone=True)
    probes = bench.probes(operation, plan)
    clock = bench.around.clock
    checks = SpotChecks(window, workload, bench.device, clock, on_round)
    rounds = Rounds(window, probes, plan, clock, records, spot_checks=checks)
    with bench.around.host_turn(on_round):
        stopped = rounds.run(on_round)
    refuse_tampering()  # after each part: a variant may undo its changes before the next one
    graph_ways = bench.graph_ways(operation, plan)
    if graph_ways:
        on_round(RoundProgress(0, 1, "replaying captured graphs"))
    bench.replay_graphs(window, plan, records)
    refuse_tampering()
    on_round(RoundProgress(0, 1, "counting launches"))
    censuses = bench.census(window, plan, records)
    refuse_tampering()
    compiled = bench.compiled(window)
    records.discard_slow_rounds()
    measured = {}
    for name in variants:
        census = censuses.get(name)
        found = Measured(
            measurements=records.books[name].measurements(),
            notes=records.notes[name],
            launches=None if isinstance(census, str) else census,
            compiled=compiled.get(name),
            rounds=records.recorder.log_for(name),
        )
        deciding = [m for m in found.measurements if m.series in deciding_series(probes)]
        found.stopping = _stopping(stopped, records.recorder.num_discarded(), deciding)
        found.reason = _disturbed(found.stopping, deciding, plan) or _incomplete(census)
        measured[name] = found
    if control is not None:
        _add_control(measured, original, records.books[CONTROL].measurements())
    ways = [way_of(probe, operation) for probe in probes]
    with no_collection():  # as during the timed rounds
        checks.all([*ways, *graph_ways], bench.profiled_ways(operation, plan))
    for name, reason in checks.failed.items():
        measured[original if name == CONTROL else name] = Measured(reason=reason)
    return measured


def build_instances(
    copies: Mapping[str, Sequence[type[Any]]], workload: Workload, plan: Plan, device: torch.device
) -> list[list[Arm]]:
    """Build the instances of all arms, in random order: memory allocated first differs.

    Args:
        copies: per arm, classes that are copies of one another; instances take them in turn.
        workload: the workload that each instance is set up for.
        plan: the number of instances, and the seed.
        device: where they live.
    """
    rng = random.Random(plan.seed)
    instances: list[list[Arm]] = []
    first: dict[str, Arm] = {}
    # Each instance takes pairs of rounds; instances that would get none are not built.
    for number in range(min(plan.instances, max(1, plan.rounds // 2))):
        built = {}
        for name in rng.sample(list(copies), len(copies)):
            variant = copies[name][number % len(copies[name])]
            built[name] = Arm(name, variant, workload, device, first.get(name))
            first.setdefault(name, built[name])
        instances.append([built[name] for name in copies])
    return instances


def _stopping(
    stopped: Stopped, discarded: Mapping[DiscardCode, int], deciding: Sequence[Measurement]
) -> Stopping:
    """Describe when and why the rounds ended, with the intervals of the deciding series."""
    return Stopping(
        reason=stopped.reason,
        rounds=stopped.rounds,
        discarded=dict(discarded),
        seconds=round(stopped.seconds, 3),
        half_widths={
            measurement.quantity: relative_half_width([median(row) for row in measurement.samples])
            for measurement in deciding
        },
    )


def _incomplete(census: LaunchCensus | str | None) -> Reason | None:
    if not isinstance(census, str):
        return None
    return Reason(code=ReasonCode.PROFILER_INCOMPLETE, message=census)


def _disturbed(stopping: Stopping, deciding: Sequence[Measurement], plan: Plan) -> Reason | None:
    """Return a reason if disturbances left too few rounds that count."""
    fewest = min(FEWEST_ROUNDS, plan.rounds)
    kept = min((len(measurement.rounds) for measurement in deciding), default=0)
    if not stopping.discarded or kept >= fewest:
        return None
    codes = ", ".join(f"{count} {code}" for code, count in stopping.discarded.items())
    return Reason(
        code=ReasonCode.DISTURBED,
        message=f"{kept} of {stopping.rounds} rounds count, expected {fewest} or more "
        f"(discarded: {codes}); {_remedy(stopping.discarded)}",
    )


def _remedy(discarded: Mapping[DiscardCode, int]) -> str:
    """Return what to do about the disturbance that most rounds were discarded for."""
    if max(discarded, key=lambda code: discarded[code]) is DiscardCode.QUOTA:
        return (
            "give the container a larger CPU quota (such as docker's --cpus, or limits.cpu of a "
            "pod) or none"
        )
    return "measure again when the GPU is cool and nobody else uses it"


def _add_control(
    measured: Mapping[str, Measured], original: str, control: list[Measurement]
) -> None:
    """Store the copy's samples with its original, and their difference with every arm."""
    measured[original].control = control
    copies = {measurement.series: measurement for measurement in control}
    spreads = []
    for measurement in measured[original].measurements:
        copy = copies.get(measurement.series)
        difference = None if copy is None else control_difference(measurement, copy)
        if difference is not None:
            spreads.append(
                ControlSpread(
                    series=measurement.series,
                    arm=original,
                    difference_us=round(difference.us, 4),
                    share=round(difference.share, 6),
                )
            )
    for found in measured.values():
        found.control_spreads = spreads
