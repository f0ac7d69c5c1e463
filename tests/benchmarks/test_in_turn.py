"""`benchmarks/in_turn.py` finds what moved between two trees, and says nothing of what did not."""

from __future__ import annotations

import json
import sys

import in_turn
import numpy as np
import pytest


def turns(count=8, host=1.0, empty_call=1.0, seconds=1.0):
    """Made-up figures; those of this tree by factors of the base's, and noise of 1 %."""
    rng = np.random.default_rng(1)

    def noisy(value):
        return float(value * rng.lognormal(0, 0.01))

    found = []
    for _ in range(count):
        sides = {}
        for side in in_turn.SIDES:
            factors = (host, empty_call, seconds) if side == "this" else (1.0, 1.0, 1.0)
            sides[side] = {
                "one fused host_us": noisy(20 * factors[0]),
                "one fused gpu_us": noisy(5),
                "one fused gap_us": 0.0,
                "empty_call": noisy(0.09 * factors[1]),
                in_turn.SECONDS: noisy(20 * factors[2]),
            }
        found.append({"origin": sides})
    return found


def moved(**factors):
    judged = in_turn.judge_all(turns(**factors))
    assert [each.case for each in judged["origin"]] == [
        *("one fused host_us", "one fused gpu_us", "empty_call", in_turn.SECONDS)
    ]
    return [each.case for each in in_turn.different(judged)]


def test_equal_trees_are_not_told_apart():
    assert moved() == []


@pytest.mark.parametrize(
    ("factors", "found"),
    [
        ({"host": 1.1}, ["one fused host_us"]),
        ({"host": 0.9}, ["one fused host_us"]),
        ({"host": 1.008}, []),  # 0.16 µs, below the floor of 0.2 µs
        ({"empty_call": 1.1}, ["empty_call"]),
        ({"seconds": 1.1}, [in_turn.SECONDS]),
        ({"seconds": 0.9}, []),  # shorter is no harm
    ],
)
def test_what_moved_is_found(factors, found):
    assert moved(**factors) == found


def test_the_same_factor_in_every_turn_is_found():
    found = turns(6)
    for turn in found:
        for side, us in (("base", 3.136), ("this", 6.272)):
            turn["origin"][side]["one fused gpu_us"] = us
    different = in_turn.different(in_turn.judge_all(found))
    assert [each.case for each in different] == ["one fused gpu_us"]


def test_the_mean_is_over_all_figures_but_the_duration():
    mean = in_turn.overall(turns(host=1.3, seconds=9.0), "origin")
    assert mean.location == pytest.approx(np.log(1.3) / 3, abs=0.01)
    assert mean.observations == 8


def test_page(tmp_path, monkeypatch, capsys):
    environment = {"gpus": [{"name": "NVIDIA H200"}], "torch": "2.11", "triton": "3.6"}
    for factor, code in ((1.0, 0), (1.2, 1)):
        found = {"base": "abc", "environment": environment, "turns": turns(host=factor)}
        (tmp_path / "in-turn.json").write_text(json.dumps(found))
        monkeypatch.setattr(sys, "argv", ["in_turn.py", "--render", "--out", str(tmp_path)])
        assert in_turn.main() == code
        page = (tmp_path / "in-turn.md").read_text()
        assert "8 turns on one NVIDIA H200, torch 2.11, Triton 3.6; base: abc." in page
        assert ("SLOWER |" in page) is bool(code)
    (tmp_path / "in-turn.json").write_text(json.dumps(found | {"turns": turns(4)}))
    with pytest.raises(SystemExit, match="has 4 turns; expected 5 or more"):
        in_turn.main()
    monkeypatch.setattr(sys, "argv", ["in_turn.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        in_turn.main()


def test_a_calibration_is_read():
    said = {
        "figures": [{"name": "empty_call", "samples": [3.0, 1.0, 2.0]}],
        "lines": [{"method": "events", "set_us": [2.0], "reported_us": [[4.0, 6.0]]}],
    }
    assert in_turn._of_calibration(said) == {"empty_call": 2.0, "events_2": 5.0}
