"""Have tasks that time the host wait for their turn, and those that time a device alone not."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.variants import classes
from worker.measuring.test_census import workload

from bt_bench.base.limits import Throttling
from bt_bench.config.spec import CaseSpec
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.worker.measuring import case, process_round
from bt_bench.worker.measuring.bench import CpuBench
from bt_bench.worker.measuring.host_time import host_turn, no_turn
from bt_bench.worker.process.executor import Executor
from bt_bench.worker.process.main import set_up
from bt_bench.worker.tasks.messages import WorkerSetup
from bt_bench.worker.tasks.outcome import untold
from bt_bench.worker.tasks.tasks import Calibrate, RoundUnit


class Bench(CpuBench):
    """Notes its passes, and the turns that it has."""

    def __init__(self, log):
        super().__init__()
        self._log = log
        self._stops = 0
        self.around = replace(
            self.around, host_turn=self._turn, throttling=lambda: Throttling(self._stops)
        )

    @contextmanager
    def _turn(self, _on_round):
        self._stops += 5  # of those who have their turn
        self._log.append("begins")
        yield
        self._log.append("ends")

    def replay_graphs(self, window, plan, records):
        self._stops += 1
        self._log.append("graphs")

    def census(self, window, plan, records):
        self._log.append("profiled")
        return {}

    def calibrate(self, plan):
        self._log.append("calibrated")


def test_rounds_wait_for_their_turn_and_other_passes_do_not(monkeypatch):
    log = []

    class Noted(case.Rounds):
        def run(self, on_round):
            log.append("rounds")
            return super().run(on_round)

    monkeypatch.setattr(case, "Rounds", Noted)
    plan = Plan(rounds=2, warmup_rounds=0, instances=1)
    variants = classes(["fused"])
    case.measure_case("c", variants, workload(1), ops.STEP, plan, Bench(log), untold)
    assert log == ["begins", "rounds", "ends", "graphs", "profiled"]


@pytest.mark.parametrize(
    ("quantity", "turn"), [(Quantity.STAGE_US, ["begins", "ends"]), (Quantity.GPU_US, [])]
)
def test_a_process_round_waits_for_its_turn_if_it_times_the_host(quantity, turn, monkeypatch):
    """Rounds that nobody asked for are a warm-up; device times have passes of their own."""
    monkeypatch.setattr(process_round, "WARM_SECONDS", 0.0)
    log = []
    parameters = UniformParameters(workload="uniform", requests=2, tokens=4)
    tiny = CaseSpec(name="tiny", parameters=parameters)
    units = [RoundUnit(tiny, ops.STAGE, (series_of(quantity),), ("fused",))]
    copies = {name: (variant,) for name, variant in classes(["fused"]).items()}
    plan = Plan(rounds=3, warmup_rounds=0, instances=1, precision_percent=0.0)
    ready = process_round.ProcessRound(units, copies, lambda _: workload(1), plan, Bench(log))
    log.clear()
    ready.measure(untold)
    assert log == [*turn, "graphs"]
    assert ready.stops == 1


def test_a_calibration_waits_for_its_turn():
    log = []
    Executor({}, Bench(log), Plan()).attempt(Calibrate(), (), untold)
    assert log == ["begins", "calibrated", "ends"]


@pytest.mark.parametrize(("several", "turn"), [(True, host_turn), (False, no_turn)])
def test_workers_without_a_gpu_take_turns_if_there_are_several(several, turn):
    _, executor, _ = set_up(WorkerSetup("cpu", (), Plan(), takes_turns=several))
    assert executor._bench.around.host_turn is turn
