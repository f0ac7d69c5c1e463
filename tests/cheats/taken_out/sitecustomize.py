"""Takes defences out of bt-bench, in all of its processes, to see that cheats pass without them.

With this folder on `PYTHONPATH`, `TAKEN_OUT` names defences, separated by commas. Python imports
this module by itself when it starts.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader

_WORKER = "bt_bench.worker"
_EXPLORING = "bt_bench.suites.block_tables.exploring"


def _nothing(*_arguments, **_options):
    return None


# Per defence the module, and what in it does nothing then.
DEFENCES = {
    "spot checks": [
        (f"{_WORKER}.measuring.spot_checks", "SpotChecks.perhaps"),
        (f"{_WORKER}.measuring.spot_checks", "SpotChecks.all"),
    ],
    "tool watch": [(f"{_WORKER}.state_watch", "ToolWatch.refuse")],
    "stream order": [
        (f"{_EXPLORING}.buffers", "Buffers.hold"),
        (f"{_EXPLORING}.arguments", "Arguments.arrive_late"),
    ],
    "tensors kept": [(f"{_EXPLORING}.buffers", "Buffers.hold")],
}


def _take_out(module) -> None:
    for defence in filter(None, os.environ.get("TAKEN_OUT", "").split(",")):
        for name, place in DEFENCES[defence]:
            if module.__name__ == name:
                owner, _, attribute = place.rpartition(".")
                setattr(getattr(module, owner) if owner else module, attribute, _nothing)


if os.environ.get("TAKEN_OUT"):
    original = SourceFileLoader.exec_module

    def exec_module(self, module):
        """Runs a module, and then takes out what is to be."""
        original(self, module)
        if module.__name__.startswith("bt_bench."):
            _take_out(module)

    SourceFileLoader.exec_module = exec_module
    sys.dont_write_bytecode = True
