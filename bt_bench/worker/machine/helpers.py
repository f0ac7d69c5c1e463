"""The helpers in use in this process; see `bt_bench.results.Helpers`."""

from __future__ import annotations

import os

from bt_bench.base.names import DeviceKind
from bt_bench.results import Helper, Helpers
from bt_bench.worker.machine.nvml import why_not

_KERNELS = "bt_kernels"


def read_helpers(device: DeviceKind, package: str) -> Helpers:
    """Return which helpers are in use, and why others are not.

    Args:
        device: where kernels run. Without a GPU, there are no direct launches, no profiling and no
            sensors.
        package: the kernels' package; other packages do not use the helpers in C.
    """
    import torch

    from bt_kernels import native

    has_c, on_gpu = package == _KERNELS, device == "cuda"
    return Helpers(
        staging_in_c=_helper(native.why_not("staged")) if has_c else None,
        direct_launches=_helper(native.why_not_direct()) if has_c and on_gpu else None,
        pinned_memory=_pinned_memory() if has_c and on_gpu else None,
        cupti=_helper(_why_no_cupti()) if on_gpu else None,
        nvml=_helper(why_not(torch.cuda.get_device_properties(0).uuid)) if on_gpu else None,
        nvtx=_nvtx(),
    )


def _helper(why_not: str | None) -> Helper:
    return Helper(in_use=why_not is None, why_not=why_not)


def _pinned_memory() -> Helper | None:
    """Return whether pinned memory works with the GPU; `None` if the kernels do not find out."""
    import torch

    try:  # only here, since it loads kernels
        from bt_kernels.staging import why_not_pinned
    except ImportError:
        return None
    return _helper(why_not_pinned(torch.device("cuda", 0)))


def _why_no_cupti() -> str | None:
    """Return why torch's profiler cannot record device activities; no recording is tried."""
    import torch

    # The same as `torch.profiler.supported_activities()`, without the modules it imports.
    if any(activity.name == "CUDA" for activity in torch._C._autograd._supported_activities()):
        return None
    return f"torch {torch.__version__} is built without it; install a build that has it"


def _nvtx() -> Helper:
    import nvtx

    if nvtx.enabled():
        return Helper(in_use=True)
    value = os.environ.get("NVTX_DISABLE")
    set_so = f"the environment has NVTX_DISABLE={value}; unset it" if value else None
    return Helper(in_use=False, why_not=set_so)
