"""The variables of CUDA, torch, Triton and the C library that change times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bt_bench.results import Harm

_OFF = ("", "0")


@dataclass(frozen=True)
class Setting:
    """A variable that changes times.

    Args:
        effect: a clause on times.
        harm: how much they suffer.
        counts: whether a value has the effect.
    """

    effect: str
    harm: Harm = Harm.NOTED
    counts: Callable[[str], bool] = lambda value: value not in _OFF


def _is_on(value: str) -> bool:
    """Return whether Triton takes a value for true."""
    return value.lower() in ("1", "true", "yes", "on", "y")


_ANY: Callable[[str], bool] = bool
_KERNELS = "kernels are compiled otherwise than in an engine"
_PRECISION = "products of matrices have another precision"
_NOT_COMPILED = "torch.compile leaves functions as they are"

CUDA_SETTINGS = {
    "CUDA_LAUNCH_BLOCKING": Setting(
        "every launch waits for its kernel, so host times include the device's work", Harm.FALSE
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": Setting(
        "torch asks the driver for memory at each allocation, and waits for the device at each "
        "release",
        Harm.FALSE,
        # torch looks only at whether it is set.
        lambda _value: True,
    ),
    "TORCH_CUDA_SANITIZER": Setting(
        "torch looks for races at each of its operations", Harm.FALSE, counts=lambda _value: True
    ),
    "CUDA_DISABLE_PERF_BOOST": Setting("the driver does not raise clocks for the work"),
    "CUDA_DEVICE_MAX_CONNECTIONS": Setting(
        "streams share so many queues, so work of one may wait for another", counts=_ANY
    ),
    "CUDA_SCALE_LAUNCH_QUEUES": Setting(
        "the host may be farther ahead of the device, or less far", counts=_ANY
    ),
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": Setting("the driver watches kernels for faults"),
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": Setting("the driver can be made to dump kernels"),
    "CUDA_FORCE_PTX_JIT": Setting("the driver compiles kernels anew, with its own compiler"),
    "PYTORCH_ALLOC_CONF": Setting("torch allocates otherwise than by default", counts=_ANY),
    "PYTORCH_CUDA_ALLOC_CONF": Setting("torch allocates otherwise than by default", counts=_ANY),
    "NVIDIA_TF32_OVERRIDE": Setting(_PRECISION, counts=_ANY),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": Setting(_PRECISION),
    "TRITON_DEBUG": Setting("kernels check their assertions", counts=_is_on),
    "TRITON_ENABLE_ASAN": Setting("kernels check their addresses", Harm.FALSE, counts=_is_on),
    "TRITON_INSTRUMENTATION_MODE": Setting("kernels are instrumented", Harm.FALSE, counts=_ANY),
    "TRITON_KERNEL_OVERRIDE": Setting("kernels may be replaced by files", counts=_is_on),
    "DISABLE_PTXAS_OPT": Setting(_KERNELS, counts=_is_on),
    "PTXAS_OPTIONS": Setting(_KERNELS, counts=_ANY),
    "DISABLE_LLVM_OPT": Setting(_KERNELS, counts=_is_on),
    "TRITON_OVERRIDE_ARCH": Setting("kernels are compiled for another GPU", counts=_ANY),
    "TRITON_PTXAS_PATH": Setting(_KERNELS, counts=_ANY),
    "TRITON_PTXAS_BLACKWELL_PATH": Setting(_KERNELS, counts=_ANY),
    "TRITON_DEFAULT_FP_FUSION": Setting(_KERNELS, counts=_ANY),
    "TRITON_FORCE_DISABLE_FP_FUSION": Setting(_KERNELS, counts=_is_on),
    "TRITON_F32_DEFAULT": Setting(_PRECISION, counts=_ANY),
}
"""Not among them: CUDA_MODULE_LOADING and CUDA_CACHE_*, which matter at a kernel's first launch,
and TORCH_USE_CUDA_DSA, an option of torch's own build that no process reads."""

HOST_SETTINGS = {
    "TORCH_COMPILE_DISABLE": Setting(_NOT_COMPILED, counts=lambda value: value == "1"),
    "TORCHDYNAMO_DISABLE": Setting(_NOT_COMPILED, counts=lambda value: value == "1"),
    "ATEN_CPU_CAPABILITY": Setting("torch's functions use other instructions", counts=_ANY),
    "GLIBC_TUNABLES": Setting("functions of the C library may be others", counts=_ANY),
}
"""These change times on the host, whatever the device is."""
