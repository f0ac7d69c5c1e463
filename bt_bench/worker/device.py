"""Which device a command runs on, decided before anything imports Triton."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from bt_bench.errors import UsageError

if TYPE_CHECKING:
    from bt_bench.names import DeviceChoice, DeviceKind


def choose_device(choice: DeviceChoice, *, interprets: bool = True) -> DeviceKind:
    """Resolves `auto`, and switches Triton's interpreter on for the CPU.

    Args:
        choice: what was asked for.
        interprets: whether kernels are run, which a reference does without.

    Triton reads `TRITON_INTERPRET` when its functions are declared, so this must run before
    anything that imports triton.

    Raises:
        UsageError: when CUDA is asked for and cannot be used, saying what is missing.
    """
    _detach_profilers()
    missing = _what_cuda_lacks() if choice in ("auto", "cuda") else "not asked for"
    if missing is None:
        if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            raise UsageError(
                "TRITON_INTERPRET is set, which makes Triton interpret kernels on the CPU; "
                "unset it, or pass --device cpu"
            )
        return "cuda"
    if choice == "cuda":
        raise UsageError(f"no GPU to run on: {missing}; expected a CUDA device")
    if interprets:
        _refuse_broken_interpreter()
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise UsageError("triton was imported before the device was chosen; set TRITON_INTERPRET=1")
    os.environ["TRITON_INTERPRET"] = "1"
    return "cpu"


def _detach_profilers() -> None:
    """Makes torch's profiler detach when it stops; call it before torch is imported.

    Otherwise CUPTI stays attached, and every launch after the first profile costs more than those
    before it: on an H200 1 us by Triton, 2 us by graph replay, and 1 us at a synchronisation.
    """
    os.environ["TEARDOWN_CUPTI"] = "1"


def _what_cuda_lacks() -> str | None:
    """Why CUDA cannot be used here, or `None` if it can."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device (is there a GPU, and a driver that is new enough?)"
    return None


def _refuse_broken_interpreter() -> None:
    if _release("triton") < (3, 7) and _release("numpy") >= (2, 4):
        raise UsageError(
            f"the interpreter of Triton {metadata.version('triton')} does not work with numpy "
            f"{metadata.version('numpy')}; install 'numpy<2.4' or a newer Triton, or use a GPU"
        )


def _release(distribution: str) -> tuple[int, ...]:
    """Major and minor version of an installed package."""
    return tuple(int(part) for part in metadata.version(distribution).split(".")[:2])
