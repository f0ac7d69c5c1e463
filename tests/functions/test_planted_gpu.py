"""Wrong functions that only a device shows: each is rejected, and a right one is timed."""

from __future__ import annotations

import json

import pytest
from support.commands import run_apart

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

FILE = """\
import threading
import torch
import bt_bench

SIZE = 1 << 22


@bt_bench.benchmark(inputs={"n": [SIZE]})
def double(n):
    return {"x": torch.rand(n), "out": torch.empty(n)}


@double.reference
def right(x, out):
    torch.mul(x, 2, out=out)


@double.variant(graph=True)
def good(x, out):
    torch.add(x, x, out=out)


SIDE = []


@double.variant
def side_stream(x, out):
    if not SIDE:
        SIDE.append(torch.cuda.Stream())
    with torch.cuda.stream(SIDE[0]):
        torch.cuda._sleep(1_000_000)
        torch.mul(x, 2, out=out)


LATER = []


@double.variant
def next_call(x, out):
    for work in LATER:
        work()
    LATER[:] = [lambda: torch.mul(x, 2, out=out)]


CACHE = {}


@double.variant
def cached(x, out):
    if x.data_ptr() not in CACHE:
        CACHE[x.data_ptr()] = x * 2
    out.copy_(CACHE[x.data_ptr()])


CALLS = []


@double.variant
def lazy_later(x, out):
    CALLS.append(0)
    if len(CALLS) < 40:
        torch.mul(x, 2, out=out)
"""
WRONG = ("side_stream", "next_call", "cached", "lazy_later")


def test_a_sweep_rejects_wrong_functions(tmp_path):
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    words = ["sweep", "mine.py", "--device", "cuda", "--set", "plan.rounds=24", "--out", "r"]
    outcome = run_apart(*words, cwd=tmp_path)
    assert outcome.code == 5, outcome
    for name in ("baseline", "good", *WRONG):
        result = json.loads((tmp_path / "r" / f"{name}.json").read_text(encoding="utf-8"))
        statuses = {case["status"] for case in result["cases"]}
        assert statuses == ({"failed"} if name in WRONG else {"ok"}), name
        assert any(case["measurements"] for case in result["cases"]) == (name not in WRONG)
