"""The proof that a device and the host see each other's writes to pinned memory."""

from __future__ import annotations

import threading
import warnings

import torch

from bt_kernels.device_code.probing import probe_kernel
from bt_kernels.launches.paths import COMPILES, launch_jit
from bt_kernels.launches.place import Place

_OUTCOMES: dict[torch.device, str | None] = {}
_LOCK = threading.Lock()

_ROUNDS = ((0x1234567, 0x7654321), (0x2468ACE, 0x0ECA864))
"""Per round, the word of the host and the word of the kernel. Memory is 0 at first, no word is."""


def why_not_pinned(device: torch.device) -> str | None:
    """Return why pinned memory cannot be used with a device; `None` if it can.

    On confidential-computing GPUs, `pin_memory=True` can give memory whose contents kernels do not
    see as the host writes them. So the first call for a device in a process has a kernel read a
    word twice, after two writes of the host, and write one itself. It waits for the device, and
    warns if something is wrong.

    Args:
        device: with its index, if it is a CUDA device.
    """
    with _LOCK:
        if device not in _OUTCOMES:
            _OUTCOMES[device] = reason = _prove(Place(device))
            if reason is not None:
                _warn(device, reason)
        return _OUTCOMES[device]


def _prove(place: Place) -> str | None:
    """Return the fault of pinned memory, or `None`."""
    on_gpu = place.device.type == "cuda"
    if COMPILES and not on_gpu:
        return None  # a process that compiles ahead, and launches nothing
    try:
        words = torch.zeros(2, dtype=torch.int32, pin_memory=on_gpu)
    except RuntimeError as error:
        return f"none can be allocated: {str(error).splitlines()[0]}"
    view = words.numpy().data
    seen = torch.zeros(1, dtype=torch.int32, device=place.device)
    for written, answer in _ROUNDS:
        view[0] = written
        place.run(launch_jit, probe_kernel, (1, 1, 1), (words, seen, answer), (), ())
        found = int(seen.item())  # waits for the kernel
        if found != written:
            return f"a kernel read {found:#x} where the host had written {written:#x}"
        if view[1] != answer:
            return f"the host read {view[1]:#x} where a kernel had written {answer:#x}"
    return None


def _warn(device: torch.device, reason: str) -> None:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the interpreter"
    warnings.warn(
        f"pinned memory does not work with {device} ({name}): {reason}. Staged writes that do not "
        "fit the parameters of a launch, and captured steps, take a copy to the device and a wait "
        "for it, which is slower",
        RuntimeWarning,
        stacklevel=4,
    )
