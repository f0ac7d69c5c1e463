"""Failures of variants, and the reasons that results record for them."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from bt_bench.protocol import is_of_users_suite
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import text_of


class ArmFailedError(Exception):
    """A variant raised, and the others cannot go on beside it.

    Args:
        arm: the variant's name.
        error: what it raised.
        where: what was being done.
    """

    def __init__(self, arm: str, error: BaseException, where: str = "while measured") -> None:
        super().__init__(f"{arm}: {text_of(error)}")
        self.arm = arm
        self.error = error
        self.where = where

    def reason(self) -> Reason:
        """Why the arm's case failed."""
        return reason_of(self.error, self.where)


def reason_of(error: BaseException, where: str, device_fault: str | None = None) -> Reason:
    """The reason for a case in which a variant raised an exception.

    Args:
        error: the exception.
        where: what was being done.
        device_fault: the error of the device, if it can do nothing more.
    """
    frames = traceback.extract_tb(error.__traceback__)
    # The last frame in the variant's own code, not one inside Triton or torch.
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    at = (
        f" ({Path(own[-1].filename).name}:{own[-1].lineno}{_whose(own[-1].filename)})"
        if own
        else ""
    )
    text = _first_line(error)
    if device_fault is not None:
        return Reason(code=ReasonCode.CRASHED, message=f"{where}: {device_fault}{at}")
    if is_out_of_memory(error):
        what = text or type(error).__name__
        return Reason(code=ReasonCode.OUT_OF_MEMORY, message=f"{where}: {what}{at}")
    return Reason(code=ReasonCode.RAISED, message=f"{where}: {type(error).__name__}: {text}{at}")


def _whose(filename: str) -> str:
    """Says that a file is of the suite itself, if a user's, and not of a variant."""
    return ", of the suite itself" if is_of_users_suite(Path(filename)) else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from, says that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (MemoryError, torch.OutOfMemoryError)):
            return True
        # Neither the driver nor torch's CPU allocator has a dedicated exception for it.
        if isinstance(cause, RuntimeError) and re.search(
            "out of memory|can't allocate memory", _first_line(cause)
        ):
            return True
        cause = cause.__cause__
    return False


def is_fatal(error: BaseException, device: torch.device) -> bool:
    """Whether nothing more should be run in a process after an exception."""
    return is_out_of_memory(error) or device_fault(device) is not None


def synchronize(device: torch.device) -> None:
    """Waits until a device is idle, so that its errors are raised here."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_fault(device: torch.device) -> str | None:
    """The error that makes a device unusable for this process, or `None`.

    An illegal address ends a CUDA context: every call after it fails with the same error.
    """
    try:
        synchronize(device)
    except RuntimeError as error:
        return _first_line(error)
    return None


def _first_line(error: BaseException) -> str:
    return (text_of(error).splitlines() or [""])[0]
