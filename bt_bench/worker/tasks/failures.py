"""Failures of variants, and the reasons that results record for them."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from bt_bench.base.errors import UsageError
from bt_bench.protocol import is_of_users_suite
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import text_of
from bt_bench.worker.isolation.located import first_line, place_of, summary_of

_NO_FILES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

_tell: Callable[[BaseException], None] | None = None


def on_failure(tell: Callable[[BaseException], None]) -> None:
    """Pass each exception that becomes a reason to `tell` as well, from now on."""
    global _tell
    _tell = tell


class MemoryFaultError(Exception):
    """A kernel's misuse of memory; subclasses name the kind."""

    code: ReasonCode


class ArmFailedError(Exception):
    """A variant raised an exception, and the other arms cannot go on beside it.

    Args:
        arm: the variant's name.
        error: the exception.
        where: the activity at the time.
    """

    def __init__(self, arm: str, error: BaseException, where: str = "while measured") -> None:
        super().__init__(f"{arm}: {text_of(error)}")
        self.arm = arm
        self.error = error
        self.where = where

    def reason(self) -> Reason:
        """Return the reason why the arm's case failed."""
        return reason_of(self.error, self.where)


def reason_of(error: BaseException, where: str, device_fault: str | None = None) -> Reason:
    """Return the reason for a case that failed with an exception of a variant.

    Args:
        error: the exception.
        where: the activity at the time.
        device_fault: the device's error, if the device has become unusable.
    """
    place = place_of(error)
    at = f" ({place}{_whose(place.path)})" if place is not None else ""
    if _tell is not None:
        _tell(error)
    if device_fault is not None:
        return Reason(code=ReasonCode.CRASHED, message=f"{where}: {device_fault}{at}")
    if is_out_of_memory(error):
        what = first_line(error) or type(error).__name__
        return Reason(code=ReasonCode.OUT_OF_MEMORY, message=f"{where}: {what}{at}")
    if isinstance(error, MemoryFaultError):
        return Reason(code=error.code, message=f"{where}: {error}{at}")
    return Reason(code=ReasonCode.RAISED, message=f"{where}: {summary_of(error)}{at}")


def _whose(path: Path) -> str:
    """Return a remark if a file belongs to a user's suite itself, and not to a variant."""
    return ", of the suite itself" if is_of_users_suite(path) else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, or one of its causes, reports that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (MemoryError, torch.OutOfMemoryError)):
            return True
        # Neither the driver nor torch's CPU allocator has a dedicated exception for it.
        if isinstance(cause, RuntimeError) and re.search(
            "out of memory|can't allocate memory", first_line(cause)
        ):
            return True
        cause = cause.__cause__
    return False


def refuse_full_disk(error: BaseException) -> None:
    """Raise if an exception, or one of its causes, means that no file can be written.

    That is no fault of the variant whose kernels were to be compiled.

    Raises:
        UsageError: naming the folders that files are written to, with a remedy.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _NO_FILES:
            caches = os.environ.get("TRITON_CACHE_DIR") or "~/.triton/cache"
            raise UsageError(
                f"a file cannot be written: {text_of(cause)}. Temporary files are in "
                f"{tempfile.gettempdir()}, and compiled kernels in {caches}; free space there, or "
                "set TMPDIR and TRITON_CACHE_DIR to other folders"
            ) from error
        cause = cause.__cause__


def is_fatal(error: BaseException, device: torch.device) -> bool:
    """Return whether nothing more should run in the process after an exception."""
    return is_out_of_memory(error) or device_fault(device) is not None


def synchronize(device: torch.device) -> None:
    """Wait until a device is idle, which raises its errors here."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_fault(device: torch.device) -> str | None:
    """Return the error that makes a device unusable for this process, or `None`.

    An illegal address ends a CUDA context: every later call fails with the same error.
    """
    try:
        synchronize(device)
    except RuntimeError as error:
        return first_line(error)
    return None
