"""vLLM's own preparation of batches as a variant: which sources it takes, and that it is right."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import SuiteRef, load_suite
from bt_bench.protocol.driver import plainly
from bt_bench.suites.batch_preparation.vllm.adapter import RELEASE, adapt
from bt_bench.suites.batch_preparation.workloads.conformance import conformance_workloads
from bt_bench.suites.block_tables.vllm.source import INPUT_MODULES, VllmSource, find_sources
from bt_bench.worker.checking.plain_trial import trial_of

SUITE = load_suite(SuiteRef(name="batch_preparation"))
FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]


def test_another_release_is_refused(tmp_path):
    source = VllmSource(tmp_path, "0.32.0", INPUT_MODULES)
    with pytest.raises(UsageError, match=r"is vLLM 0\.32\.0; expected 0\.33\.0, whose calls"):
        adapt(source)


def test_a_source_needs_the_file_of_inputs(tmp_path):
    """A source that block tables can use may lack it."""
    gpu = tmp_path / "vllm" / "v1" / "worker" / "gpu"
    gpu.mkdir(parents=True)
    for name in ("block_table.py", "buffer_utils.py"):
        (gpu / name).touch()
    assert find_sources([tmp_path]).found
    with pytest.raises(UsageError, match=r"holds no vllm/v1/worker/gpu/input_batch\.py"):
        SUITE.opponents([tmp_path])


def test_vllm_equals_the_reference(device):
    sources = [s for f in FOLDERS for s in find_sources([f], INPUT_MODULES).found]
    source = next((each for each in sources if each.release == RELEASE), None)
    if source is None:
        pytest.skip(
            f"needs an unpacked wheel of vLLM {RELEASE}: BT_BENCH_VLLM_SOURCE=DIR (docs/vllm.md)"
        )
    path = ("prepare",)
    workload = conformance_workloads(0)["drafts, lookahead, two groups"]
    trial = trial_of(SUITE, workload, device, np.random.default_rng(3), [path])
    subject = trial.begin(adapt(source), lambda *_: nullcontext())
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        trial.step(subject, path, index, expected, plainly, lambda *_: nullcontext())
