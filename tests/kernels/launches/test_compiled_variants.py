"""Sizes of a step select no binary: each kernel is compiled once per feature set and mapping dtype.

On the CPU kernels are compiled as for a GPU that is not there, and their launches counted.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest
import torch
from support.mutants import SPECIALIZED, write_mutant
from support.variants import classes

from bt_bench.config.load import load_config
from bt_bench.variants.catalogue import find_variants
from bt_bench.worker.compiling.census import take_census
from bt_kernels.layout import TableLayout

# R and T: 1, multiples of 16 and what is beside them, and the largest.
SIZES = [(1, 1), (1, 16), (2, 17), (15, 15), (16, 48), (17, 256), (256, 1000), (1024, 16384)]
DTYPES = ["int32", "int64"]
FEATURES = {
    "plain": "",
    "cp": "cp_size: 2",
    "own_window": "custom_outputs: true, sliding_window: 100",
}
KERNELS_OF_A_STEP = {"fused": 2, "baseline": 3}


def config_in(folder):
    lines = [
        "name: sizes",
        "variants: [fused]",
        "operations: [step]",
        "defaults: {groups: 2, max_num_reqs: 1025, max_num_batched_tokens: 16384,",
        "           max_model_len: 16384}",
        "cases:",
    ]
    for name in FEATURES:
        for dtype in DTYPES:
            for reqs, tokens in SIZES:
                case = f"name: {name}-{dtype}-{reqs}-{tokens}, requests: {reqs}, tokens: {tokens}"
                lines.append(f"  - {{{case}, idx_mapping_dtype: {dtype}, {FEATURES[name]}}}")
    path = folder / "sizes.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_config(path)


def compiled_for(census):
    """Per feature set and dtype: how often each kernel was compiled."""
    names = {kernel.id: kernel.name for kernel in census.kernels}
    found = {}
    for operation in census.operations:
        assert operation.failure is None
        feature_set = "-".join(operation.case.split("-")[:2])
        found.setdefault(feature_set, set()).update(operation.kernels)
    return {name: Counter(names[kernel] for kernel in ids) for name, ids in found.items()}


def compiled(folder, names):
    """What `compiled_for` finds, by variant; all of one process."""
    mutants = folder / "mutants"
    for name in SPECIALIZED:
        write_mutant(mutants, name)
    entries = find_variants([mutants])
    spec = config_in(folder)
    census = take_census(spec, [entries[name] for name in names], ["sm_90"])
    return {variant.name: compiled_for(variant) for variant in census.variants}


def assert_no_binary_by_size(name, found):
    for feature_set, kernels in found.items():
        assert list(kernels.values()) == [1] * KERNELS_OF_A_STEP[name], feature_set


# That a size which selects a binary is noticed at all: tests/analysis/test_census.py.
@pytest.mark.slow
def test_sizes_select_no_binary(tmp_path):
    found = compiled(tmp_path, [*KERNELS_OF_A_STEP, *SPECIALIZED])
    for name in KERNELS_OF_A_STEP:
        assert len(found[name]) == len(FEATURES) * len(DTYPES)
        assert_no_binary_by_size(name, found[name])
    for name in SPECIALIZED:
        assert found[name]["plain-int64"]["gather_slots_kernel"] > 1


LAYOUT = TableLayout((16, 5), (4, 3), max_num_reqs=1024, max_num_batched_tokens=16_384)


def sweep(variant, device, dtype):
    """Steps of all sizes, from inputs that begin at a multiple of 16 bytes and beside it."""
    tables = variant(LAYOUT, device)
    for offset in (0, 1):
        for reqs, tokens in SIZES:
            for row in range(min(reqs, 17)):
                tables.append_block_ids(row, [[row], [row]], overwrite=True)
            bounds = torch.full((reqs + 1 + offset,), tokens, dtype=torch.int32, device=device)
            bounds[offset] = 0
            tables.prepare_step(
                torch.arange(-offset, reqs, dtype=dtype, device=device)[offset:],
                bounds[offset:],
                torch.zeros(tokens + offset, dtype=torch.int64, device=device)[offset:],
                reqs,
                tokens,
            )


def binaries(package, kernel):
    """Of a kernel, in this process so far."""
    caches = getattr(sys.modules[f"{package}.device_code"], kernel).device_caches
    return sum(len(kernels) for kernels, *_ in caches.values())


@pytest.mark.gpu
def test_sizes_and_alignments_select_no_binary_on_the_gpu(device):
    for dtype in (torch.int32, torch.int64):
        for variant in classes(["fused", "baseline"]).values():
            sweep(variant, device, dtype)
    assert binaries("bt_kernels", "apply_writes_kernel") == 1
    for kernel in ("gather_kernel", "slots_kernel", "gather_slots_kernel"):
        assert binaries("bt_kernels", kernel) == 2, kernel  # one for each dtype


@pytest.mark.gpu
@pytest.mark.parametrize("name", SPECIALIZED)
def test_sizes_that_select_binaries_are_found_on_the_gpu(name, device, tmp_path):
    sweep(classes([name], [write_mutant(tmp_path, name)])[name], device, torch.int64)
    assert binaries(f"bt_kernels_{name}", "gather_slots_kernel") > 1
