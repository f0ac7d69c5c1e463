"""Batches prepared by separate operations, and by one packed copy: beside the reference."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from bt_bench.protocol import SuiteRef, load_suite
from bt_bench.protocol.driver import plainly
from bt_bench.suites.batch_preparation.workloads.conformance import conformance_workloads
from bt_bench.worker.checking.plain_trial import trial_of
from bt_kernels.batch_inputs import InputBuffers, InputLayout, RequestTensors
from bt_kernels.batch_inputs.variants.separate import Variant as Separate
from bt_kernels.batch_inputs.variants.staged_copy import Variant as StagedCopy
from bt_kernels.layout import TableLayout

SUITE = load_suite(SuiteRef(name="batch_preparation"))
WORKLOADS = conformance_workloads(0)
LAYOUT = InputLayout(4, 16, 32, num_speculative_steps=2)
TABLES = TableLayout.for_length((4,), 32, 4, 16)

VARIANTS = pytest.mark.parametrize("variant", [Separate, StagedCopy])


@VARIANTS
@pytest.mark.parametrize(
    "name", ["drafts, lookahead, two groups", "no token of its own", "no mark of padding"]
)
def test_whole_buffers_and_results_are_right(variant, name, device):
    """Memory, results, and results kept for later steps."""
    rng = np.random.default_rng(2)
    path = ("prepare",)
    trial = trial_of(SUITE, WORKLOADS[name], device, rng, [path])
    subject = trial.begin(variant, lambda *_: nullcontext())
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        trial.step(subject, path, index, expected, plainly, lambda *_: nullcontext())


def prepared(variant, device, **changes):
    """Prepare a batch of two decodes with two drafts and none; return the variant."""
    requests = RequestTensors.zeros(LAYOUT, device)
    requests.num_computed_tokens[:] = 9
    requests.prefill_len[:] = 3
    made = variant(TABLES, LAYOUT, requests, device)
    made.validate = True
    arguments = {
        "rows": np.array([3, 1]),
        "query_lens": np.array([3, 1], dtype=np.int32),
        "prefill_lens": np.array([3, 3], dtype=np.int32),
        "has_prefill": False,
        "num_drafts": np.array([2, 0], dtype=np.int32),
        "num_reqs_padded": 2,
        "num_tokens_padded": 4,
    }
    made.prepare(**arguments | changes)
    return made


@VARIANTS
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_reqs_padded": 1}, "num_reqs_padded is 1; expected 2, the requests, to max_num_reqs"),
        ({"num_tokens_padded": 17}, "num_tokens_padded is 17 for 4 tokens"),
        ({"rows": np.array([3, 4])}, r"rows\[1\] is 4; expected 0 to 3"),
        ({"num_drafts": np.array([2, 3], dtype=np.int32)}, r"num_drafts\[1\] is 3; expected 0 to"),
        ({"num_drafts": np.array([2, 1], dtype=np.int32)}, r"query_lens\[1\] is 1; expected 2"),
        ({"num_drafts": np.zeros(1, np.int32)}, "num_drafts has 1 entries; expected 2"),
        ({"prefill_lens": np.array([3, 4], dtype=np.int32)}, r"prefill_lens\[1\] is 4; expected 3"),
        ({"prefill_lens": np.zeros(3, np.int32)}, "prefill_lens has 3 entries"),
        (
            {"rows": np.zeros(0, np.int64), "query_lens": np.zeros(0, np.int32)},
            "rows is empty; expected one request or more",
        ),
    ],
)
def test_arguments_that_have_no_meaning_are_refused(variant, changes, message, device):
    with pytest.raises(ValueError, match=message):
        prepared(variant, device, **changes)


@VARIANTS
def test_a_sequence_that_becomes_too_long_is_refused(variant, device):
    made = prepared(variant, device)
    made.requests.num_computed_tokens[1] = 32
    arguments = np.array([1]), np.ones(1, np.int32), np.full(1, 3, np.int32)
    with pytest.raises(ValueError, match="is 1 after 32 computed tokens; expected no more than"):
        made.prepare_inputs(*arguments, False, None, 1, 1)


@VARIANTS
def test_layouts_that_disagree_are_refused(variant, device):
    requests = RequestTensors.zeros(LAYOUT, device)
    for tables, message in (
        (TableLayout.for_length((4,), 32, 5, 16), "max_num_reqs is 4 for inputs and 5 for tables"),
        (TableLayout.for_length((4,), 32, 4, 15), "max_num_tokens is 16; expected at most"),
    ):
        with pytest.raises(ValueError, match=message):
            variant(tables, LAYOUT, requests, device)


@VARIANTS
def test_buffers_that_exist_are_used(variant, device):
    buffers = InputBuffers.zeros(LAYOUT, device)
    made = variant(TABLES, LAYOUT, RequestTensors.zeros(LAYOUT, device), device, buffers)
    assert made.buffers is buffers


def test_constant_outputs_are_views(device):
    made = StagedCopy(TABLES, LAYOUT, RequestTensors.zeros(LAYOUT, device), device)
    arguments = np.array([1]), np.ones(1, np.int32), np.zeros(1, np.int32), False, None, 1, 1
    first, second = (made.prepare_inputs(*arguments) for _ in range(2))
    assert first.cu_num_logits.data_ptr() == second.cu_num_logits.data_ptr()
    assert first.idx_mapping.data_ptr() != second.idx_mapping.data_ptr()
    assert torch.equal(first.expanded_local_pos, torch.zeros(1, dtype=torch.int32, device=device))
