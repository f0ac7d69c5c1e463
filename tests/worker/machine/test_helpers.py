"""Which helpers a worker finds in use."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bt_bench.worker.machine import helpers as found
from bt_bench.worker.machine.helpers import read_helpers
from bt_kernels import native, staging


def test_without_a_gpu_only_staging_and_ranges_have_helpers() -> None:
    read = read_helpers("cpu", "bt_kernels")
    assert read.staging_in_c is not None
    assert read.nvtx is not None
    assert (read.direct_launches, read.cupti, read.nvml) == (None, None, None)
    assert read.pinned_memory is None


def test_kernels_of_another_package_do_not_use_those_in_c() -> None:
    assert read_helpers("cpu", "page_kernels").staging_in_c is None


def test_reasons_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="x"))
    monkeypatch.setattr(torch._C._autograd, "_supported_activities", set)
    monkeypatch.setattr(found, "why_not", lambda uuid: f"no GPU-{uuid}")
    monkeypatch.setattr(native, "why_not_direct", lambda: None)
    monkeypatch.setattr(staging, "why_not_pinned", lambda device: f"{device} does not see it")
    read = read_helpers("cuda", "bt_kernels")
    assert read.direct_launches is not None
    assert read.direct_launches.in_use
    assert read.pinned_memory is not None
    assert read.pinned_memory.why_not == "cuda:0 does not see it"
    assert read.cupti is not None
    assert "built without it" in (read.cupti.why_not or "")
    assert read.nvml is not None
    assert read.nvml.why_not == "no GPU-x"
