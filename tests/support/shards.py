"""Run folders of the shards of a sweep, with made-up results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bt_bench.config import divide
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.results import Timing, VariantResult
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.writing import write_result
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.runs.sweep import write_plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from support.factories import make_calibration, make_case, make_environment, make_gpu, make_result

VARIANTS = ("baseline", "fused")
OPERATIONS = [ops.GATHER_SLOTS, ops.STEP]
PLAN = Plan(rounds=3)

Changed = Callable[[VariantResult], VariantResult]


def spec_of(names: Sequence[str], **changes: object) -> SweepSpec:
    """A config of cases of these names, each with parameters of its own."""
    cases = [
        CaseSpec(name=name, parameters=_parameters(number)) for number, name in enumerate(names)
    ]
    spec = SweepSpec(
        name="made", variants=list(VARIANTS), operations=OPERATIONS, plan=PLAN, cases=cases
    )
    return spec.model_copy(update=changes)


def _parameters(number: int) -> UniformParameters:
    return UniformParameters(workload="uniform", requests=1, tokens=1 + number % 500, seed=number)


def results_of(names: Sequence[str], **fields: object) -> list[VariantResult]:
    """The results of all variants of a run over these cases; times follow from the names."""
    return [
        make_result(
            variant,
            [
                make_case(name, operation, {Quantity.HOST_US: [[_time(name, place)]] * 3})
                for name in names
                for operation in OPERATIONS
            ],
            config="made",
            plan=PLAN,
            **fields,
        )
        for place, variant in enumerate(VARIANTS)
    ]


def _time(name: str, place: int) -> float:
    return 1.0 + place + sum(map(ord, name)) / 100


def write_shard(
    folder: Path,
    spec: SweepSpec,
    index: int,
    count: int,
    timing: Timing | None = None,
    *,
    gpu: str = "NVIDIA H200",
    leave_out: Sequence[str] = (),
    changed: Changed = lambda result: result,
    complete: bool = True,
) -> Path:
    """Write the run of a shard, as a sweep would leave it; return its folder.

    Args:
        folder: the folder to make.
        spec: the config of the whole sweep.
        index: the shard.
        count: number of shards.
        timing: divides the cases, if given.
        gpu: name of its GPU.
        leave_out: cases without results.
        changed: returns each result as it is to be written.
        complete: whether the run came to its end.
    """
    own, division = divide(spec, index, count, timing)
    folder.mkdir()
    run = RunFolder(folder)
    write_plan(run, own, division)
    names = [name for name in division.own if name not in leave_out]
    for result in results_of(
        names if division.own else [],
        run_id=f"made-{index}",
        environment=make_environment(gpus=[make_gpu(gpu)]),
        calibration=make_calibration({"empty_call": [0.05 + index / 1000]}),
        complete=complete,
    ):
        shard = result.model_copy(update={"shard": division.shard})
        if division.own:
            write_result(run, changed(shard))
    return folder


def write_shards(
    folder: Path, spec: SweepSpec, count: int, timing: Timing | None = None, **fields: object
) -> list[Path]:
    """Write the runs of all shards into a folder; see `write_shard`."""
    return [
        write_shard(folder / f"shard-{index}", spec, index, count, timing, **fields)
        for index in range(1, count + 1)
    ]


def seconds_of(names: Sequence[str]) -> Mapping[str, float]:
    """Made-up seconds of cases, of which some are equal."""
    return {name: 1.0 + sum(map(ord, name)) % 7 for name in names}
