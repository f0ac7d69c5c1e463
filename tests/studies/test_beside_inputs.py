"""Sequences of steps: vLLM's preparation of batches and ours do the same; faults are found."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import beside_inputs
import pytest
from beside.input_faults import FAULTS

from bt_bench.suites.batch_preparation.vllm.adapter import adapt
from bt_bench.suites.block_tables.vllm.source import INPUT_MODULES, find_sources
from bt_kernels.batch_inputs.variants.separate import Variant as Separate
from bt_kernels.batch_inputs.variants.staged_copy import Variant as StagedCopy

FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]

FOUND = {
    "drafts do not overwrite a prompt's tail": "input_ids",
    "positions behind the step are zeroed": "positions",
    "rows are in a ring of two": "idx_mapping",
    "writes are applied late": "input_block_tables[0]",
}
"""Faults, one of each risk, and the tensor that shows it."""


@pytest.fixture(scope="module")
def vllm_inputs():
    """The functions of vLLM, of an unpacked wheel, as a variant."""
    for folder in FOLDERS:
        for source in find_sources([folder], INPUT_MODULES).found:
            if source.release == beside_inputs.RELEASE:
                return adapt(source)
    pytest.skip(
        f"needs an unpacked wheel of vLLM {beside_inputs.RELEASE}: BT_BENCH_VLLM_SOURCE=DIR "
        "(docs/vllm.md)"
    )


@pytest.mark.parametrize("ours", [Separate, StagedCopy])
def test_vllm_and_ours_do_the_same(vllm_inputs, ours, device):
    seen = Counter()
    for number in range(5):
        counted, found = beside_inputs.play(vllm_inputs, ours, 0, number, device)
        assert found == []
        seen.update(counted)
    assert {
        "steps with drafts",
        "steps with a prompt's tail and drafts",
        "steps with a prefill",
        "steps padded",
        "steps without tokens",
        "dummy batches",
    } <= {name for name, count in seen.items() if count}


@pytest.mark.parametrize("fault", FOUND)
def test_a_planted_fault_is_found(vllm_inputs, fault, device):
    wrong = FAULTS[fault](Separate)
    names = set()
    for number in range(20):
        names |= {
            each.name for each in beside_inputs.play(vllm_inputs, wrong, 0, number, device)[1]
        }
        if FOUND[fault] in names:
            return
    pytest.fail(f"found only {sorted(names)}")
