"""vLLM's own block tables against the reference; only where BT_BENCH_VLLM_SOURCE names wheels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from support.variants import failures

from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload, default_suite
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.checking.differences import tamed, undefined_on
from bt_bench.suites.block_tables.vllm.loading import device_view
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.conformance.random_calls import random_workload
from bt_bench.variants.catalogue import find_variants, load_apart
from bt_kernels.layout import TableLayout

# Rows of one length in all groups; block ids times 262144 wrap.
LAYOUT = TableLayout((16, 5, 262_144), (4, 13, 1), max_num_reqs=5, max_num_batched_tokens=40)
OPERATIONS = (ops.STEP, ops.GATHER_SLOTS, ops.GATHER)

FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]
VARIANTS = find_variants(opponents=default_suite().opponents(FOLDERS)) if FOLDERS else {}
NAMES = [entry.name for entry in VARIANTS.values() if entry.opponent is not None]

needs_vllm = pytest.mark.skipif(
    not NAMES, reason="needs unpacked wheels of vLLM: BT_BENCH_VLLM_SOURCE=DIR (docs/vllm.md)"
)


def wrong(name, workloads, device):
    variant = load_apart(VARIANTS[name])
    found = {}
    for title, workload in workloads.items():
        defined = tamed(workload, variant.differences)
        if workload.features <= variant.features and undefined_on(variant, defined) is None:
            found[title] = failures({name: variant}, defined, OPERATIONS, device)
    return {title: messages for title, messages in found.items() if messages}, set(found)


def small_workloads():
    names = ("corners_int32", "shrinking", "disabled", "custom_outputs", "window")
    workloads = {name: conformance_workloads(0)[name] for name in names}
    workloads["random"] = random_workload(3, LAYOUT, 3, full=True)
    for case in load_config("quick").cases:
        workloads[case.name] = build_workload(case.parameters)
    return workloads


@needs_vllm
@pytest.mark.parametrize("name", NAMES or ["vllm"])
def test_vllm_equals_the_reference(name, device):
    messages, checked = wrong(name, small_workloads(), device)
    assert messages == {}
    assert {"random", "shrinking", "uniform_4grp", "azure_conv_1grp"} <= checked


@pytest.mark.gpu
@needs_vllm
@pytest.mark.parametrize("name", NAMES or ["vllm"])
def test_vllm_equals_the_reference_on_a_gpu(name, device):
    messages, checked = wrong(name, small_workloads() | conformance_workloads(0), device)
    assert messages == {}
    assert {"random", "long", "long_request"} <= checked


@pytest.mark.gpu
def test_a_view_of_pinned_memory_is_no_copy(device):
    pinned = torch.zeros(3, 5, dtype=torch.int32, pin_memory=True)
    view = device_view(pinned)
    assert view.device == device
    assert (view.shape, view.dtype, view.stride()) == (pinned.shape, pinned.dtype, (5, 1))
    pinned[1, 2] = 7
    assert view.sum().item() == 7
    view[2, 0] = 5
    torch.cuda.synchronize()
    assert pinned[2, 0] == 5


@pytest.mark.gpu
def test_a_view_of_no_elements_is_on_the_device_all_the_same(device):
    view = device_view(torch.zeros(0, 5, dtype=torch.int32, pin_memory=True))
    assert (view.device, view.shape, view.dtype) == (device, (0, 5), torch.int32)
