"""How many processes of a gate there are at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.factories import make_environment
from support.scripted_rounds import request_of
from support.tiny_gates import Quiet

from bt_bench.base.errors import UsageError
from bt_bench.results import GateArm
from bt_bench.results.run.plan import Plan
from bt_bench.runs.gate import capacity
from bt_bench.runs.gate.processes import ProcessRounds
from bt_bench.worker.tasks.messages import Hello

GIB = 2**30
SIZES = (GIB, 2 * GIB)


def test_workers_are_as_many_as_cores_and_memory_allow(tmp_path, monkeypatch):
    def workers(cores, free_gib, asked=None):
        request = request_of(tmp_path / f"{cores}-{free_gib}-{asked}", workers=asked)
        monkeypatch.setattr(
            "bt_bench.runs.gate.capacity.available_bytes", lambda _: int(free_gib * 2**30)
        )
        hello = Hello("cpu", make_environment("cpu", cpu_affinity=cores), None)
        return ProcessRounds(request, request.subjects, hello, Quiet()).workers

    assert workers(1, 100) == 2
    assert workers(16, 100) == 24
    assert 2 <= workers(16, 2) <= 4
    assert workers(16, 2, asked=7) == 7
    said = r"need 609\.5 MiB of memory, .* and 102\.4 MiB are available; .* leave cases out with -k"
    with pytest.raises(UsageError, match=said):
        workers(16, 0.1)


@pytest.mark.parametrize(
    ("quota", "free_gib", "workers"), [(None, 400, 24), (4.0, 400, 6), (4.0, 16, 5), (0.5, 400, 2)]
)
def test_a_pod_on_a_host_of_192_cores_has_as_many_as_its_limits_allow(
    tmp_path, monkeypatch, quota, free_gib, workers
):
    monkeypatch.setattr(capacity, "available_bytes", lambda _: free_gib * GIB)
    request = request_of(tmp_path, workers=None)
    environment = make_environment(cpu_count=192, cpu_affinity=192, cpu_quota=quota)
    hello = Hello("cuda", environment, 70 * GIB)
    assert capacity.num_workers(request, hello, shared=True) == workers


@pytest.mark.parametrize(("shared", "workers"), [(False, 10), (True, 3)])
def test_a_worker_holds_the_variants_and_their_snapshots_of_each_side_that_it_has(
    monkeypatch, shared, workers
):
    """Of 1 GiB and 2 GiB: twice that for 2 variants, for the 3 arms of a gate if it has them all.

    Beside them, a process takes 0.5 GiB on the CPU.
    """
    cases = [SimpleNamespace(parameters=SimpleNamespace(num_bytes=lambda n=n: n)) for n in SIZES]
    request = SimpleNamespace(
        devices=("cuda",),
        spec=SimpleNamespace(cases=cases),
        plan=lambda: Plan(instances=1),
        variants=["one", "two"],
        sides=dict.fromkeys(GateArm),
        workers=None,
    )
    monkeypatch.setattr(capacity, "available_bytes", lambda _: 10 * (12 * GIB + GIB // 2))
    hello = Hello("cpu", make_environment("cpu", cpu_affinity=64), None)
    assert capacity.num_workers(request, hello, shared=shared) == workers
