"""What of a process's global state is read, and what counts as a change of it."""

from __future__ import annotations

import sys

import torch

from bt_bench.worker.isolation.global_state import GlobalState


def test_a_module_that_is_loaded_late_is_no_change():
    before = GlobalState.now()
    torch.a_late_module = sys
    try:
        assert GlobalState.now().changes_since(before) == []
    finally:
        del torch.a_late_module
