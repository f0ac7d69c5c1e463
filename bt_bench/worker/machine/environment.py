"""The machine and the software of a run, read without changing anything."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import bt_bench
from bt_bench import __version__
from bt_bench.base import run_git
from bt_bench.base.errors import UsageError
from bt_bench.base.limits import control_groups, memory_here
from bt_bench.base.names import DeviceChoice, DeviceKind, gpu_index
from bt_bench.results import Environment, Gpu
from bt_bench.worker.machine.conditions import read_conditions
from bt_bench.worker.machine.helpers import read_helpers
from bt_bench.worker.machine.nvml import GpuSensors, nvml_session, quietly


def read_environment(
    device: DeviceKind, package: str = "bt_kernels", choice: DeviceChoice = "auto"
) -> Environment:
    """Return everything that a reader of a result needs to know about its origin.

    Args:
        device: where kernels run.
        package: the kernels' package.
        choice: how the device was chosen. A GPU that was chosen by its index is the only one that
            this process sees, and is recorded under that index.
    """
    import torch

    first = gpu_index(choice) or 0
    with nvml_session() as nvml:
        driver = quietly(lambda: _text(nvml.nvmlSystemGetDriverVersion())) if nvml else None
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        gpus = [_gpu(torch, nvml, index, first + index) for index in range(count)]
    return Environment(
        **read_machine(),
        device=device,
        torch=torch.__version__,
        torch_threads=torch.get_num_threads(),
        cuda=torch.version.cuda,
        interpreted=device == "cpu",
        helpers=read_helpers(device, package),
        conditions=read_conditions(device, gpus),
        driver=driver,
        gpu_count=len(gpus),
        gpus=gpus,
    )


def read_machine() -> dict[str, Any]:
    """Return the fields of `Environment` that are known without torch, kernels and a device."""
    return {
        "host": _host(),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cpu_quota": control_groups().cpu_quota(),
        "memory_limit_bytes": control_groups().memory_limit(),
        "triton": _version("triton"),
        "bt_bench": __version__,
        **_revision(),
    }


def available_bytes(device: DeviceKind) -> int | None:
    """Return the memory available on a device, or `None` if unknown; on the host, within limits."""
    if device == "cuda":
        import torch

        free, _total = torch.cuda.mem_get_info()
        return int(free)
    return memory_here()


def _gpu(torch: Any, nvml: Any, visible_index: int, index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(visible_index)
    sensors = GpuSensors(nvml, properties.uuid)
    return Gpu(
        index=index,
        name=properties.name,
        uuid=str(properties.uuid) if hasattr(properties, "uuid") else None,
        capability=f"{properties.major}.{properties.minor}",
        memory_bytes=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        sm_clock_mhz=sensors.sm_clock_mhz(),
        memory_clock_mhz=sensors.memory_clock_mhz(),
        temperature_c=sensors.temperature_c(),
        power_w=sensors.power_w(),
        throttle_reasons=sensors.throttle_reasons(),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cpu_name() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _host() -> str:
    """Return a hash that differs by machine, and by boot of one machine, without naming them."""
    boot = _read("/proc/sys/kernel/random/boot_id") or ""
    return hashlib.sha256(f"{platform.node()} {boot}".encode()).hexdigest()[:12]


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> dict[str, Any]:
    """Return the commit of the checkout that this package runs from, and whether it has changes.

    Where git refuses a checkout or fails, `commit_unknown` has its message.
    """
    # Users can name the commit of a tree that was exported or copied.
    found: dict[str, Any] = {"commit": os.environ.get("BT_BENCH_COMMIT"), "dirty": None}
    root = Path(bt_bench.__file__).resolve().parents[1]
    if found["commit"] or not (root / ".git").exists():
        return found
    try:
        found["commit"] = _git(root, "rev-parse", "--verify", "HEAD")
        found["dirty"] = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except UsageError as error:
        found["commit_unknown"] = str(error)
    return found


def _git(root: Path, *arguments: str) -> str:
    return os.fsdecode(run_git(root, *arguments)).strip()
