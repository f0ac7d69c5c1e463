"""The choice of a command's device, made before anything imports Triton.

A GPU that was chosen by index or UUID is the only one that the process sees. The harness, variants,
Triton and the profiler then all mean the same one by "the GPU", in every thread.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import metadata
from typing import TYPE_CHECKING

from bt_bench.base.errors import UsageError
from bt_bench.base.limits import affine_cores, cores_here
from bt_bench.base.names import gpu_index, gpu_uuid

if TYPE_CHECKING:
    from bt_bench.base.names import DeviceChoice, DeviceKind

VISIBLE = "CUDA_VISIBLE_DEVICES"

# Of torch on the CPU, beside a GPU. Checks are no slower than with all cores. With 32 threads each,
# two workers of a host with 32 cores slowed each other's checks down by a factor of three: threads
# spin while they wait for work.
MOST_THREADS = 4


def choose_device(choice: DeviceChoice, *, interprets: bool = True) -> DeviceKind:
    """Resolve `auto`, hide the GPUs that were not chosen, and have Triton interpret on the CPU.

    Triton reads `TRITON_INTERPRET` when its functions are declared, and CUDA determines the visible
    GPUs when it is first used. Call this before anything imports triton or uses CUDA.

    Args:
        choice: the device asked for.
        interprets: whether kernels are run; a reference runs none.

    Raises:
        UsageError: when CUDA is asked for and cannot be used, naming the cause; for an index that
            no GPU has, naming the indices there are; for a UUID that CUDA does not find.
    """
    _detach_profilers()
    given = "OMP_NUM_THREADS" in os.environ
    _bound_threads()
    index, uuid = gpu_index(choice), gpu_uuid(choice)
    if uuid is not None:
        missing = _what_is_lacking_of(uuid)
    elif index is None:
        missing = "not asked for" if choice == "cpu" else _what_cuda_lacks()
    else:
        missing = _what_is_lacking_alone(index)
    if missing is None:
        if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            raise UsageError(
                "TRITON_INTERPRET is set, which makes Triton interpret kernels on the CPU; "
                "unset it, or pass --device cpu"
            )
        if not given:
            _spare_cores()
        return "cuda"
    if choice not in ("auto", "cpu"):
        raise UsageError(f"no GPU to run on: {missing}; expected a CUDA device")
    if interprets:
        _refuse_broken_interpreter()
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise UsageError("triton was imported before the device was chosen; set TRITON_INTERPRET=1")
    os.environ["TRITON_INTERPRET"] = "1"
    return "cpu"


def _detach_profilers() -> None:
    """Make torch's profiler detach when it stops; call this before torch is imported.

    Otherwise CUPTI stays attached, and every launch after the first profile costs more than those
    before it: on an H200 1 µs by Triton, 2 µs by graph replay, and 1 µs at a synchronisation.
    """
    os.environ["TEARDOWN_CUPTI"] = "1"


def _bound_threads() -> None:
    """Give torch as many threads as a CPU quota allows; call this before torch is imported.

    torch counts the cores of the host. Threads beyond the quota use it up early in each period,
    and then all threads of the container stand still until the next one.
    """
    cores = cores_here()
    if cores < affine_cores() and "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(cores)


def _spare_cores() -> None:
    """Give torch few threads beside a GPU."""
    import torch

    torch.set_num_threads(min(torch.get_num_threads(), MOST_THREADS))


def _what_cuda_lacks() -> str | None:
    """Return why CUDA cannot be used here, or `None` if it can."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device (is there a GPU, and a driver that is new enough?)"
    return None


def _what_is_lacking_of(uuid: str) -> str | None:
    """Return the same as `_what_cuda_lacks`, with only the GPU or MIG instance of a UUID visible.

    Raises:
        UsageError: if CUDA does not find it, or if the environment hides it.
    """
    before = os.environ.get(VISIBLE)
    named = [] if before is None else [each.strip() for each in before.split(",")]
    if before is not None and not any(_is_same(each, uuid) for each in named):
        raise UsageError(
            f"device {uuid}: {VISIBLE}={before} does not name it; unset that variable, or name "
            "this one in it by its UUID"
        )
    missing = _what_is_lacking_where(uuid)
    if missing is not None and _count():
        raise UsageError(
            f"device {uuid}: CUDA finds no GPU and no MIG instance of this UUID; expected one that "
            "`nvidia-smi -L` lists, or cuda for the first one"
        )
    return missing


def _what_is_lacking_where(named: str) -> str | None:
    """Return the same as `_what_cuda_lacks` where only this is visible; if it lacks, undo that."""
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = named
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that CUDA finds no device
        missing = _what_cuda_lacks()
    if missing is not None and before is None:
        del os.environ[VISIBLE]
    elif missing is not None and before is not None:
        os.environ[VISIBLE] = before
    return missing


def _is_same(named: str, uuid: str) -> bool:
    """Return whether two UUIDs may mean the same GPU; both may be cut short."""
    return named.startswith(uuid) or (named[:4] in ("GPU-", "MIG-") and uuid.startswith(named))


def _what_is_lacking_alone(index: int) -> str | None:
    """Return the same as `_what_cuda_lacks`, with only the GPU of this index visible.

    Raises:
        UsageError: when there are GPUs, but none of this index.
    """
    before = os.environ.get(VISIBLE)
    visible = None if before is None else [each.strip() for each in before.split(",")]
    missing = None
    if visible is None or index < len(visible):
        missing = _what_is_lacking_where(str(index) if visible is None else visible[index])
        if missing is None:
            return None
    if count := _count():
        among = "" if before is None else f" among those that {VISIBLE}={before} leaves visible"
        which = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise UsageError(
            f"device cuda:{index}: there is no GPU of this index{among}; expected {which}, "
            "or cuda for the first one"
        )
    return missing or _what_cuda_lacks()


def _count() -> int:
    """Return the number of visible GPUs; 0 where it is unknown without using one."""
    import torch

    return torch.cuda.device_count()


def _refuse_broken_interpreter() -> None:
    if _release("triton") < (3, 7) and _release("numpy") >= (2, 4):
        raise UsageError(
            f"the interpreter of Triton {metadata.version('triton')} does not work with numpy "
            f"{metadata.version('numpy')}; install 'numpy<2.4' or a newer Triton, or use a GPU"
        )


def _release(distribution: str) -> tuple[int, ...]:
    """Return the major and minor version of an installed package."""
    return tuple(int(part) for part in metadata.version(distribution).split(".")[:2])
