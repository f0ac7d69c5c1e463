"""The checker can fail: every mutant is rejected, on the CPU as well as on a GPU."""

from __future__ import annotations

import pytest
from mutants import MUTANTS, write_mutant
from variants import classes, failures

from bt_bench.model import Operation
from bt_bench.workloads.conformance import conformance_workloads

# A kernel that reads or writes past its table may end the CUDA context of the whole process, so
# these run under the interpreter only, where every access is checked before it is made.
OUT_OF_BOUNDS = {"first_groups_stride", "wrong_row", "unbounded_positions", "row_may_overflow"}
RUNS = [pytest.param(name, id=f"{name}-cpu") for name in MUTANTS] + [
    pytest.param(name, id=f"{name}-cuda", marks=pytest.mark.gpu)
    for name in MUTANTS
    if name not in OUT_OF_BOUNDS
]


@pytest.mark.parametrize("name", RUNS)
def test_mutant_is_rejected(name, tmp_path, device):
    variants = classes([name], [write_mutant(tmp_path, name)])
    operations = [Operation.STEP, Operation.APPLY]
    found = {}
    for title, workload in conformance_workloads(seed=0).items():
        found |= failures(variants, workload, operations, device, title=title)
    assert found, f"{MUTANTS[name].what}: not noticed"


def test_message_says_which_element_is_wrong(tmp_path, device):
    variants = classes(["no_padding"], [write_mutant(tmp_path, "no_padding")])
    workload = conformance_workloads(seed=0)["corners"]
    found = failures(variants, workload, [Operation.STEP], device, title="corners")
    message = found["no_padding", "step"]
    assert message.startswith("corners, round 0, step 0, calls step: slot_mappings[0, ")
    assert "expected -1 (never written: it holds the poison)" in message
    assert "of 144 elements differ" in message
