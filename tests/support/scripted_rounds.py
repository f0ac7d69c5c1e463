"""Requests for process-rounds whose workers follow a script."""

from __future__ import annotations

import json

from bt_bench.results.gate.rounds import GateArm
from bt_bench.runs.gate.processes import ProcessRounds
from bt_bench.runs.gate.sides import GateSide, RoundsRequest
from bt_bench.runs.gate.wanted import choose_metrics
from bt_bench.variants.catalogue import VariantEntry
from bt_bench.worker.tasks.messages import Hello
from support import fake_rounds
from support.factories import make_environment
from support.tiny_gates import NAMES, Quiet, spec_of

ARMS = list(GateArm)
HELLO = Hello("cpu", make_environment("cpu", cpu_affinity=2), None)


def side(folder, label, script):
    """A revision whose workers follow a script."""
    folder.mkdir(parents=True)
    (folder / "script.json").write_text(json.dumps(script))
    entries = tuple(VariantEntry(n, "", folder / f"{n}.py", False, "bt_kernels") for n in script)
    return GateSide(label, entries, named=lambda text: f"{label}: {text}")


def request_of(tmp_path, base=None, head=None, workers=6, devices=("cpu",)):
    base = {name: {"us": 10.0} for name in NAMES} | (base or {})
    head = {name: {"us": 11.0} for name in NAMES} | (head or {})
    old, new = side(tmp_path / "base", "old", base), side(tmp_path / "head", "new", head)
    spec = spec_of()
    return RoundsRequest(
        spec=spec,
        sides={GateArm.BASE: old, GateArm.HEAD: new, GateArm.CONTROL: old},
        metrics=choose_metrics((), spec.operations, "cpu"),
        device=devices[0],
        serve=fake_rounds.serve,
        workers=workers,
        others=tuple(devices[1:]),
    )


def source_of(request, **options):
    return ProcessRounds(request, request.subjects, HELLO, Quiet(), **options)
