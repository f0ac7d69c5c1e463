"""Launch paths of an arm: what a variant declares about how its calls may be launched."""

from __future__ import annotations

from bt_bench.arms import Arm
from bt_bench.model import LaunchPath, Operation

# The method of the interface that performs an operation; `capturable` speaks of these.
METHODS: dict[Operation, str] = {
    Operation.STAGE: "append_block_ids",
    Operation.APPLY: "apply_staged_writes",
    Operation.GATHER: "gather_block_tables",
    Operation.SLOTS: "compute_slot_mappings",
    Operation.GATHER_SLOTS: "gather_and_compute_slot_mappings",
    Operation.STEP: "prepare_step",
}


def supports(arm: Arm, path: LaunchPath, operation: Operation) -> bool:
    """Whether an arm can perform an operation by a launch path; every variant has `jit`."""
    if path is LaunchPath.GRAPH:
        return METHODS[operation] in getattr(arm.tables, "capturable", ())
    return path in getattr(arm.tables, "launch_paths", (LaunchPath.JIT.value,))


def use(arm: Arm, path: LaunchPath) -> None:
    """Makes an arm launch by a path that it supports; a graph is captured from Triton's calls."""
    if hasattr(arm.tables, "launch_path"):
        eager = LaunchPath.JIT if path is LaunchPath.GRAPH else path
        arm.tables.launch_path = eager.value
