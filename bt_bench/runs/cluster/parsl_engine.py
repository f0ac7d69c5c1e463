"""Parsl's executor of pilot jobs as the engine of a cluster; the only module that imports Parsl.

Its own retries and checkpoints are not used. The shards' folders show what is done,
which a record that a function has returned does not; `dispatch` gives out anew what is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bt_bench.base.errors import UsageError
from bt_bench.config import ClusterSpec, KubernetesCluster, LocalCluster, SlurmCluster
from bt_bench.runs.cluster.engine import Engine, ShardTask
from bt_bench.runs.cluster.task import Ended, run_shard

if TYPE_CHECKING:
    from parsl.dataflow.dflow import DataFlowKernel
    from parsl.executors import HighThroughputExecutor
    from parsl.providers.base import ExecutionProvider

_BEATS = 3  # signs of life within the silence after which a worker counts as lost


@contextmanager
def parsl_engine(spec: ClusterSpec, folder: Path) -> Iterator[Engine]:
    """Start an engine, and end its workers when the block ends.

    Args:
        spec: the cluster.
        folder: of the engine's own files.

    Raises:
        UsageError: if Parsl is missing, or cannot reach the scheduler.
    """
    try:
        import parsl
    except ModuleNotFoundError:
        raise UsageError(
            "--cluster needs Parsl, which is not installed; pip install 'bt-bench[cluster]'"
        ) from None
    from parsl.executors import HighThroughputExecutor
    from parsl.executors.high_throughput import interchange

    executor = HighThroughputExecutor(
        label="workers",
        provider=_provider(spec),
        address=spec.address or ("127.0.0.1" if isinstance(spec, LocalCluster) else None),
        # A worker is bound by its GPU; Parsl would have as many as there are cores.
        cores_per_worker=1e-6,
        max_workers_per_node=spec.num_workers if isinstance(spec, LocalCluster) else 1,
        available_accelerators=spec.devices if isinstance(spec, LocalCluster) else (),
        heartbeat_period=max(1, spec.silence_s // _BEATS),
        heartbeat_threshold=spec.silence_s,
        # Else the first job that fails would fail all shards.
        block_error_handler=False,
        worker_logdir_root=str(folder),
        # By its name as a script, Parsl finds it only where the environment is activated.
        interchange_launch_cmd=[sys.executable, "-m", interchange.__name__],
    )
    config = parsl.Config(executors=[executor], run_dir=str(folder), retries=0, strategy_period=1)
    kernel = parsl.DataFlowKernel(config)
    try:
        yield _ParslEngine(kernel, executor)
    finally:
        kernel.cleanup()


class _ParslEngine:
    def __init__(self, kernel: DataFlowKernel, executor: HighThroughputExecutor) -> None:
        import parsl

        self._executor = executor
        self._app = parsl.python_app(run_shard, data_flow_kernel=kernel)

    def submit(self, task: ShardTask) -> Future[Ended]:
        future = self._app(
            list(task.arguments), list(task.resumed), str(task.folder), dict(task.versions)
        )
        return cast("Future[Ended]", future)

    def num_running(self) -> int:
        return sum(int(manager["tasks"]) for manager in self._executor.connected_managers())


def _provider(spec: ClusterSpec) -> ExecutionProvider:
    """Return Parsl's way to start workers; as many jobs are kept as there are workers."""
    from parsl.providers import KubernetesProvider, LocalProvider, SlurmProvider

    path = f"export PATH={Path(sys.executable).parent}:$PATH"
    if isinstance(spec, LocalCluster):
        setup = f"{path}\n{spec.setup}"
        return LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1, worker_init=setup)
    blocks = {f"{name}_blocks": spec.num_workers for name in ("init", "min", "max")}
    if isinstance(spec, SlurmCluster):
        return SlurmProvider(
            **blocks,
            worker_init=f"{path}\n{spec.setup}",
            gpus_per_node=spec.gpus or None,
            cores_per_node=spec.cores,
            mem_per_node=spec.memory_gb,
            walltime=spec.walltime,
            partition=spec.partition,
            account=spec.account,
            qos=spec.qos,
            constraint=spec.constraint,
            scheduler_options=spec.options,
            exclusive=False,
        )
    assert isinstance(spec, KubernetesCluster)
    size = {"cpu": float(spec.cores), "mem": f"{spec.memory_gb}Gi"}
    return KubernetesProvider(
        **blocks,
        image=spec.image,
        namespace=spec.namespace,
        worker_init=spec.setup,
        persistent_volumes=[(spec.claim, spec.mount)],
        init_cpu=size["cpu"],
        max_cpu=size["cpu"],
        init_mem=size["mem"],
        max_mem=size["mem"],
        extra_requests={spec.gpu_resource: "1"},
        extra_limits={spec.gpu_resource: "1"},
    )
