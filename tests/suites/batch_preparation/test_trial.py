"""The check of prepared batches: right variants pass, and each planted fault is found."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from beside.input_faults import FAULTS

from bt_bench.protocol import MismatchError, SuiteRef, load_suite
from bt_bench.protocol.driver import plainly
from bt_bench.suites.batch_preparation.trial import KEPT_STEPS
from bt_bench.suites.batch_preparation.workloads.conformance import conformance_workloads
from bt_bench.variants import load_reference
from bt_bench.worker.checking.plain_trial import trial_of

SUITE = load_suite(SuiteRef(name="batch_preparation"))
REFERENCE = load_reference(SUITE)
WORKLOADS = conformance_workloads(0)
CPU = torch.device("cpu")


def unguarded(*_owners):
    return nullcontext()


def fault_of(variant, workload, path):
    """Return the message of a variant's first mismatch on a workload; `None` without one."""
    trial = trial_of(SUITE, workload, CPU, np.random.default_rng(1), [path])
    subject = trial.begin(variant, unguarded)
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        try:
            trial.step(subject, path, index, expected, plainly, unguarded)
        except MismatchError as error:
            return str(error)
    return None


@pytest.mark.parametrize("path", [("inputs",), ("prepare",)])
def test_the_reference_passes(path):
    assert {name: fault_of(REFERENCE, w, path) for name, w in WORKLOADS.items()} == dict.fromkeys(
        WORKLOADS
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    variant = FAULTS[fault](REFERENCE)
    paths = (("inputs",), ("prepare",))
    found = (fault_of(variant, w, path) for path in paths for w in WORKLOADS.values())
    assert next(filter(None, found), None) is not None


def test_a_reused_output_is_named_with_both_steps():
    variant = FAULTS["rows are in a ring of two"](REFERENCE)
    message = fault_of(variant, WORKLOADS["no padding"], ("inputs",))
    assert message == (
        "idx_mapping of step 0 was changed by step 2, while a reader held it; expected tensors "
        "that are new in each step to keep their contents"
    )
    assert KEPT_STEPS > 2
