"""How many processes of a gate there are at once."""

from __future__ import annotations

import pytest
from support.factories import make_environment
from support.scripted_rounds import request_of
from support.tiny_gates import Quiet

from bt_bench.errors import UsageError
from bt_bench.runs.gate.processes import ProcessRounds
from bt_bench.worker.messages import Hello


def test_workers_are_as_many_as_cores_and_memory_allow(tmp_path, monkeypatch):
    def workers(cores, free_gib, asked=None):
        request = request_of(tmp_path / f"{cores}-{free_gib}-{asked}", workers=asked)
        monkeypatch.setattr(
            "bt_bench.runs.gate.capacity.available_bytes", lambda _: int(free_gib * 2**30)
        )
        hello = Hello("cpu", make_environment("cpu", cpu_affinity=cores), None)
        return ProcessRounds(request, request.subjects, hello, Quiet()).workers

    for name in ("1-100-None", "16-100-None", "16-2-None", "16-2-7", "16-0.1-None"):
        (tmp_path / name).mkdir()
    assert workers(1, 100) == 2
    assert workers(16, 100) == 24
    assert 2 <= workers(16, 2) <= 4
    assert workers(16, 2, asked=7) == 7
    with pytest.raises(UsageError, match="leave cases out with -k"):
        workers(16, 0.1)
