"""Takes defences out of bt-bench, in all of its processes, to see that cheats pass without them.

With this folder on `PYTHONPATH`, `TAKEN_OUT` names defences, separated by commas. Python imports
this module by itself when it starts.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader

_WORKER = "bt_bench.worker"
_TABLES = "bt_bench.suites.block_tables"


def _nothing(*_arguments, **_options):
    """In place of a defence."""


def _passed(_self, task, arms, *_more):
    """In place of the workloads that a check runs."""
    from bt_bench.results import CheckReport
    from bt_bench.worker.tasks.tasks import CheckOutcome

    report = CheckReport(steps=1, buffers=["nothing"], differences=[])
    return {(arm, each): CheckOutcome(report, None) for arm in arms for each in task.operations}


def _late(run):
    """In place of running calls under check: whatever they have left to do is done at the end."""

    def run_and_wait(tables, path, step, through):
        import torch

        results = run(tables, path, step, through)
        if tables.device.type == "cuda":
            torch.cuda.synchronize()
        return results

    return run_and_wait


def _no_ways(*_arguments):
    """In place of graphs that are checked."""
    return []


# Per defence the module, what in it is replaced, and what takes its place.
DEFENCES = {
    "spot checks": [
        (f"{_WORKER}.measuring.spot_checks", "SpotChecks.perhaps", _nothing),
        (f"{_WORKER}.measuring.spot_checks", "SpotChecks.all", _nothing),
    ],
    "tool watch": [(f"{_WORKER}.isolation.state_watch", "ToolWatch.refuse", _nothing)],
    "stream order": [
        (f"{_TABLES}.exploring.buffers", "Buffers.hold", _nothing),
        (f"{_TABLES}.exploring.arguments", "Arguments.arrive_late", _nothing),
        (f"{_TABLES}.checking.trial", "run", _late),
    ],
    "workloads": [(f"{_WORKER}.process.executor", "Executor._check", _passed)],
    "exploring": [],
    "graphs": [
        (f"{_WORKER}.measuring.bench", "CudaBench.replay_graphs", _nothing),
        (f"{_WORKER}.measuring.bench", "CudaBench.graph_ways", _no_ways),
    ],
}
TAKEN_OUT = [name for name in os.environ.get("TAKEN_OUT", "").split(",") if name]


def _take_out(module) -> None:
    for defence in TAKEN_OUT:
        for name, place, instead in DEFENCES[defence]:
            if module.__name__ == name:
                first, _, attribute = place.rpartition(".")
                owner = getattr(module, first) if first else module
                made = _late(getattr(owner, attribute)) if instead is _late else instead
                setattr(owner, attribute, made)


if TAKEN_OUT:
    if "exploring" in TAKEN_OUT:
        os.environ["BT_BENCH_EXPLORE"] = "0"
    original = SourceFileLoader.exec_module

    def exec_module(self, module):
        """Runs a module, and then takes out what is to be."""
        original(self, module)
        if module.__name__.startswith("bt_bench."):
            _take_out(module)

    SourceFileLoader.exec_module = exec_module
    sys.dont_write_bytecode = True
