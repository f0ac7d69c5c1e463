"""The whole path on a CPU: real kernels, scripted clock and device, exact numbers in, table out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.calibrations import HOST_FIGURES, make_calibration, make_figures, make_line
from support.factories import make_environment
from support.goldens import assert_golden
from support.not_run import run_no_kernels
from support.scripted import ScriptedClock, ScriptedDevice
from support.tiny_gates import Quiet
from support.variants import classes

from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.report.run.rendering import render_comparison
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.run.calibration import PlainCopies
from bt_bench.results.run.case import RoundKind
from bt_bench.results.run.nouns import Method, Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.runs.sweep import SweepRequest, run_sweep
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.variants.catalogue import VariantEntry
from bt_bench.worker.measuring import spot_checks
from bt_bench.worker.measuring.bench import CpuBench, CudaBench
from bt_bench.worker.measuring.methods.device_times import IDLE, settings_of
from bt_bench.worker.measuring.timing import Rounds
from bt_bench.worker.measuring.watch import NoTelemetry, Seen, Surroundings
from bt_bench.worker.process.executor import Executor, LocalRunner

GOLDEN = Path(__file__).parent / "golden" / "scripted_sweep.md"
PLAN = Plan(rounds=120, min_rounds=16, warmup_rounds=1, instances=3, profile_rounds=6,
            graph_rounds=6)  # fmt: skip
# Host and device time of an operation, in ns. The twin is 20 ns apart from the baseline: less than
# two ticks of the host's clock.
TIMES = {"baseline": (40_000, 6_000), "twin": (40_020, 6_000), "fused": (25_000, 4_000)}


@contextmanager
def kernels_do_nothing() -> Iterator[None]:
    """While time is taken: it is scripted, and interpreting would take a minute of it.

    What kernels compute is checked before and after.
    """
    with pytest.MonkeyPatch.context() as patch:
        run_no_kernels(patch)
        yield


class ScriptedRounds(Rounds):
    """Rounds whose kernels do nothing."""

    def run(self, on_round):
        with kernels_do_nothing():
            return super().run(on_round)


class ScriptedBench(CudaBench):
    """A CUDA bench whose clock and device are scripted; what a profiler would say is told."""

    def __init__(self):
        clock = ScriptedClock()
        self.device = torch.device("cpu")
        self.around = Surroundings(clock, NoTelemetry(), SimpleNamespace(loads=0))
        self._port = ScriptedDevice(clock)

    def calibrate(self, plan):
        """Methods that add nothing, and a launch and a synchronisation that take no time."""
        methods = (Method.PROFILER, Method.GRAPH_SLOPE, Method.EVENTS)
        figures = {**HOST_FIGURES, "event_floor": 2.5, "event_floor_busy": 0.0}
        figures |= dict.fromkeys(("null_host", "null_step"), 10.0)
        figures |= dict.fromkeys(("null_graph_host", "null_graph_step"), 3.0) | {"null_gpu": 1.0}
        return make_calibration(
            figures=make_figures(figures),
            lines=[make_line(method, 1.0, 0.0) for method in methods],
            copies=PlainCopies(moved_bytes=[100, 10_000], samples=[[2.0, 3.0, 9.0], [30.0]]),
        )

    def compiled(self, window):
        return {}

    def graph_ways(self, operation, plan):
        """None: a scripted graph takes its time, and does nothing."""
        return []

    def profiled_ways(self, operation, plan):
        """None, likewise."""
        return []

    def replay_graphs(self, window, plan, records):
        with kernels_do_nothing():
            super().replay_graphs(window, plan, records)

    def census(self, window, plan, records):
        for setting in settings_of(plan):
            for turn in range(3):
                arms = SimpleNamespace(instance=turn, place=lambda name: 0)
                index = records.log_round(RoundKind.PROFILED, arms, 0.0, Seen(None, None))
                for arm in window.instances[0]:
                    gpu_us = arm.variant.gpu_ns / 1e3
                    for series in setting.series:
                        value = 0.0 if series.quantity is Quantity.GAP_US else gpu_us
                        records.books[arm.name].add_row(index, series, [value])
        assert settings_of(plan)[0] is IDLE
        return CpuBench.census(self, window, plan, records)


def scripted(base, times, device):
    """A variant that does what `base` does, and takes the given times."""

    class Scripted(base):
        host_ns, gpu_ns = times

        def gather_and_compute_slot_mappings(self, *inputs, **options):
            results = super().gather_and_compute_slot_mappings(*inputs, **options)
            device.host(self.host_ns)
            device.enqueue(self.gpu_ns)
            return results

    return Scripted


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # In its rounds kernels do nothing.
        patch.setattr(spot_checks.SpotChecks, "perhaps", lambda *_arguments, **_options: False)
        yield scripted_results(tmp_path_factory)


def scripted_results(tmp_path_factory):
    bench = ScriptedBench()
    bases = classes(["baseline", "fused"]) | {"twin": classes(["baseline"])["baseline"]}
    variants = {name: scripted(bases[name], t, bench._port) for name, t in TIMES.items()}
    parameters = UniformParameters(
        groups=1, requests=2, tokens=4, max_num_reqs=4, max_num_batched_tokens=8, max_model_len=64
    )
    spec = SweepSpec(
        name="scripted",
        description="",
        variants=list(TIMES),
        operations=[ops.GATHER_SLOTS],
        plan=PLAN,
        cases=[CaseSpec(name="tiny", parameters=parameters)],
    )
    entries = [
        VariantEntry(name, name, Path(__file__), shipped=False, package="bt_kernels")
        for name in TIMES
    ]
    folder = RunFolder.create_exact(tmp_path_factory.mktemp("scripted") / "run")
    request = SweepRequest(spec, entries, make_environment(), folder, ["bt-bench", "sweep"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bt_bench.worker.measuring.case.Rounds", ScriptedRounds)
        workloads = conformance_workloads(PLAN.seed)
        only = {"corners": workloads["corners"]}  # the others take half a minute
        patch.setattr("bt_bench.suites.block_tables.suite.conformance_workloads", lambda seed: only)
        executor = Executor({name: [variant] for name, variant in variants.items()}, bench, PLAN)
        return run_sweep(request, LocalRunner(executor), Quiet())


def test_exact_table_out(results):
    text = render_comparison(results)
    text = re.sub(r"Run scripted-\S+ of\s\S+", "Run of some time", text)
    assert_golden(text, GOLDEN)


def test_exact_numbers(results):
    found = {}
    for result in results:
        (case,) = result.cases
        assert case.status == "ok", case.reason
        for measurement in case.measurements:
            key = (result.variant.name, *dict(measurement.series).values())
            values = {value for row in measurement.samples for value in row}
            found[key] = {round(value, 6) for value in values}
    assert found["baseline", "host_us", "host_clock", "jit", "idle", "hot"] == {40.0}
    assert found["baseline", "step_us", "host_clock", "jit", "idle", "hot"] == {46.0}
    assert found["baseline", "event_us", "events", "jit", "idle", "hot"] == {46.0}
    assert found["baseline", "event_us", "events", "jit", "busy", "cold"] == {6.0}
    assert found["fused", "event_us", "events", "jit", "busy", "hot"] == {4.0}
    assert found["fused", "gpu_us", "graph_slope", "graph", "idle", "hot"] == {4.0}
    assert found["fused", "step_us", "host_clock", "graph", "idle", "hot"] == {7.0}
    assert found["fused", "pipelined_us", "host_clock", "jit", "idle", "hot"] == {25.5}
    assert found["twin", "host_us", "host_clock", "jit", "idle", "hot"] == {40.02}


def test_changes_have_verdicts(results):
    text = render_comparison(results)
    (twin,) = [line for line in text.splitlines() if line.startswith("| tiny · twin ")][:1]
    (fused,) = [line for line in text.splitlines() if line.startswith("| tiny · fused ")][:1]
    # A scripted clock always tells the same, which no real clock does.
    assert "INVALID¹" in twin
    assert "no real clock does that" in text
    assert [cell.strip() for cell in twin.split("|")[5:8]] == ["0.0", "-1.5 to +1.5", "SAME"]
    assert [cell.strip() for cell in fused.split("|")[5:8:2]] == ["-33.3", "FASTER"]
