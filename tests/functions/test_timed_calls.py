"""Functions in the ways of a GPU, on a scripted device: repeated calls find their arguments."""

from __future__ import annotations

import pytest
import torch
from support.scripted import ScriptedClock, ScriptedDevice
from support.suites import suites_here

from bt_bench.protocol import find_suite, load_suite
from bt_bench.results.run.nouns import LaunchPath
from bt_bench.results.run.plan import Plan
from bt_bench.variants import find_variants, load_apart
from bt_bench.worker.measuring.bench import cuda_probes
from bt_bench.worker.measuring.case import build_instances
from bt_bench.worker.measuring.methods.graphs import run_captured
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.measuring.spot_checks import SpotChecks, TimingWay, way_of

CPU = torch.device("cpu")

FILE = '''\
"""Doubles in place, or not."""
import torch
import bt_bench


@bt_bench.benchmark(inputs={"n": [33]})
def double(n):
    return {"x": torch.rand(n), "out": torch.empty(n)}


@double.reference
def right(x, out):
    out.copy_(x)
    x.mul_(2)
    return x + 1


@double.variant
def good(x, out):
    out.copy_(x)
    x.add_(x.clone())
    return x + 1


SEEN = []


@double.variant
def output_of_the_first_call(x, out):
    if not any(torch.equal(x, seen) for seen in SEEN):
        out.copy_(x)
        SEEN.append(x.clone())
    x.mul_(2)
    return x + 1
'''


@pytest.fixture
def failed(tmp_path):
    """The messages of `SpotChecks` by variant, for a file and one of the ways of a GPU."""
    (tmp_path / "doubling.py").write_text(FILE, encoding="utf-8")

    def check(way):
        with suites_here():
            suite = load_suite(find_suite("doubling.py", tmp_path))
            variants = {
                n: load_apart(e) for n, e in find_variants(suite=suite).items() if n != "reference"
            }
            workload = next(iter(suite.conformance(0).values()))
            plan = Plan(instances=1, rounds=2)
            copies = {name: (variant,) for name, variant in variants.items()}
            built = build_instances(copies, workload, plan, CPU)
            steps = suite.driver().inputs_on(CPU, workload)
            window = ReplayWindow("case", built, steps, suite.operations[0])
            checks = SpotChecks(window, workload, CPU, ScriptedClock())
            checks.all([way], [])
            return {name: reason.message for name, reason in checks.failed.items()}

    return check


class Device(ScriptedDevice):
    """A scripted device whose graphs make their calls again when they are replayed."""

    def capture(self, call, count):
        for _ in range(count):
            call()
        self.replay = lambda: [call() for _ in range(count)]
        return self


def _ways():
    clock = ScriptedClock()
    device = Device(clock)
    probes = cuda_probes(Plan(launch_paths=(LaunchPath.JIT,)), clock, device)
    yield from (way_of(probe, "call") for probe in probes)

    def replay(_arm, _operation, call, spoil):
        return run_captured(device, call, spoil)

    yield TimingWay("graphs", lambda _: True, replay)


REPEATED = ("pipelined_us on jit", "graphs")


@pytest.mark.parametrize("way", [pytest.param(way, id=way.name) for way in _ways()])
def test_calls_find_their_arguments_and_have_to_write_their_outputs(failed, way):
    """A call in place is right however often it is repeated; one that leaves its output is not."""
    wrong = ["output_of_the_first_call"] if way.name in REPEATED else []
    assert list(failed(way)) == wrong
