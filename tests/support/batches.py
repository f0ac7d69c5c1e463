"""Helpers of tests that prepare batches."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch

from bt_bench.protocol import SuiteRef, load_suite
from bt_bench.protocol.driver import plainly
from bt_bench.suites.batch_preparation.workloads.conformance import CORNERS, workload_of
from bt_bench.worker.checking.plain_trial import trial_of
from bt_kernels.batch_inputs import InputLayout, RequestTensors
from bt_kernels.batch_inputs.fused import OneLaunchInputs
from bt_kernels.layout import TableLayout

SUITE = load_suite(SuiteRef(name="batch_preparation"))


def play(variant, workload, path, device):
    """Hold that all steps of a workload are as the reference's; return the variant's object."""
    trial = trial_of(SUITE, workload, torch.device(device), np.random.default_rng(1), [path])
    subject = trial.begin(variant, lambda *_: nullcontext())
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        trial.step(subject, path, index, expected, plainly, lambda *_: nullcontext())
    return subject.driver.variant


def workloads_of(seed):
    """Workloads of all corners; no prompt is longer than a sequence may be."""
    for number, engine in enumerate(CORNERS.values()):
        longest = max(engine.shortest, engine.max_model_len // 2)
        engine = replace(engine, prompt=min(engine.prompt, longest))
        yield workload_of(engine, np.random.default_rng((seed, number)))


class Counting:
    """A variant of a layout, with the launches that it has made."""

    def __init__(self, variant=OneLaunchInputs, num_reqs=6, num_tokens=24, **sizes):
        self.tables = TableLayout.for_length((4,), 64, num_reqs, num_tokens)
        self.layout = InputLayout(num_reqs, num_tokens, 64, **sizes)
        self.requests = RequestTensors.zeros(self.layout, "cpu")
        self.variant = variant(self.tables, self.layout, self.requests, "cpu")

    def prepare(self, num_reqs, *, inputs_only=False):
        rows = np.arange(num_reqs)
        one = np.ones(num_reqs, np.int32)
        place = self.variant.tables.place
        before = place.launches
        prepare = self.variant.prepare_inputs if inputs_only else self.variant.prepare
        batch = prepare(rows, one, 0 * one, False, None, num_reqs, num_reqs)
        return batch, place.launches - before
