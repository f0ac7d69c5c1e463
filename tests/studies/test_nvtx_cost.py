"""The benchmark of NVTX ranges, with few calls."""

from __future__ import annotations

import nvtx_cost


def test_every_part_has_a_cost(monkeypatch, capsys):
    monkeypatch.setattr(nvtx_cost, "CALLS", 2_000)
    nvtx_cost.main()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.endswith("no tool")
    costs = [float(row.removesuffix("ns").split()[-1]) for row in rows]
    assert len(costs) == 3
    # All ranges of a sample contain the push and pop of its timed part.
    assert 0 < costs[0] < costs[2] < 100_000
