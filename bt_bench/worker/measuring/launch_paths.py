"""Launch paths of an arm, as its variant declares them."""

from __future__ import annotations

from bt_bench.protocol import Operation
from bt_bench.results import LaunchPath
from bt_bench.worker.tasks.arm import Arm


def supports(arm: Arm, path: LaunchPath, operation: Operation) -> bool:
    """Return whether an arm can perform an operation by a launch path; every variant has `jit`."""
    if path is LaunchPath.GRAPH:
        return operation.method in getattr(arm.variant, "capturable", ())
    return path in getattr(arm.variant, "launch_paths", (LaunchPath.JIT.value,))


def use(arm: Arm, path: LaunchPath) -> None:
    """Make an arm launch by a supported path; for graphs, Triton's calls are captured."""
    if hasattr(arm.variant, "launch_path"):
        eager = LaunchPath.JIT if path is LaunchPath.GRAPH else path
        arm.variant.launch_path = eager.value
