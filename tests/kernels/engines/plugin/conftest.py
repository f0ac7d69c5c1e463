"""The plugin's tests make steps in C, as on a GPU, where there is a compiler."""

from __future__ import annotations

import pytest
from support.in_c import interpreted_step

from bt_kernels.one_launch import tables as one_launch_tables


@pytest.fixture(autouse=True)
def _steps_in_c(monkeypatch, request):
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(one_launch_tables, "native_step", interpreted_step)
