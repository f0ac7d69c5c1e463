"""What figures are of: the GPU that was used, not those that a machine has."""

from __future__ import annotations

from pathlib import Path

from measured import Measured

from bt_bench.results import VariantResult, read_compact_run

ROOT = Path(__file__).parents[2]


def header(*uuids: str | None) -> VariantResult:
    found = read_compact_run(ROOT / "reports" / "h100" / "origin")[0].header
    gpus = [found.environment.gpus[0].model_copy(update={"uuid": uuid}) for uuid in uuids]
    environment = found.environment.model_copy(update={"gpus": gpus})
    return found.model_copy(update={"environment": environment})


def test_a_run_used_the_first_gpu_of_those_that_it_saw():
    assert Measured.of([header("a", "b"), header("a", "b")]).num_gpus == 1
    assert Measured.of([header("a", "b"), header("b")]).num_gpus == 2
    assert "on one NVIDIA H100" in Measured.of([header("a", "b")]).sentence()


def test_gpus_that_cannot_be_told_apart_are_one():
    assert Measured.of([header("a"), header(None)]).num_gpus == 1


def test_without_a_gpu_it_is_of_a_cpu():
    measured = Measured.of([header()])
    assert (measured.device, measured.num_gpus) == ("a CPU", 1)
    assert ", on a CPU (Intel" in measured.sentence()
