"""The plugin's tests make steps in C, as on a GPU, where there is a compiler."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _steps_in_c(monkeypatch, request):
    if request.node.get_closest_marker("gpu") is None:
        from support.in_c import interpreted_step  # not earlier: Triton must find its setting

        monkeypatch.setattr("bt_kernels.one_launch.tables.native_step", interpreted_step)
