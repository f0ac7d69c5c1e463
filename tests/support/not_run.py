"""Launches that run no kernel, for tests that look only at what is launched."""

from __future__ import annotations

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from bt_kernels.launches import why_not_pinned


def run_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the interpreter do nothing from now on.

    Whether pinned memory works is found out before, once and for all later tests, since a kernel
    that is not run would show that it does not.
    """
    assert why_not_pinned(torch.device("cpu")) is None
    monkeypatch.setattr(InterpretedFunction, "run", lambda *arguments, **options: None)
