"""Batches derived from steps of block tables: which tokens are drafts, and where prompts end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.recorded import record

from bt_bench.base.errors import UsageError
from bt_bench.config import load_config
from bt_bench.protocol import SuiteRef, build_workload, check_workload, load_suite
from bt_bench.suites.batch_preparation.operations import INPUTS
from bt_bench.suites.batch_preparation.workloads.conformance import (
    CORNERS,
    conformance_workloads,
)
from bt_bench.suites.batch_preparation.workloads.derive import with_inputs
from bt_bench.suites.batch_preparation.workloads.kinds import (
    BatchParameters,
    RecordedParameters,
    TraceParameters,
)
from bt_bench.suites.block_tables.workloads import Step, Workload
from bt_kernels.batch_inputs.layout import DRAFTS, LOOKAHEAD, InputLayout
from bt_kernels.layout import TableLayout

SIZES = {"max_num_reqs": 16, "max_num_batched_tokens": 256, "max_model_len": 256}


def batch_of(**parameters):
    return BatchParameters(**SIZES | parameters).build()


def test_decodes_are_behind_their_prompts():
    (step,) = batch_of(requests=9).steps
    assert step.num_drafts is None
    assert not step.has_prefill
    assert (step.prefill_lens <= np.maximum(step.computed, 1)).all()
    assert (step.prefill_lens >= 1).all()


def test_the_first_decodes_may_be_in_the_last_tokens_of_their_prompts():
    workload = batch_of(requests=9, drafts=3, tokens_per_request=4, prompt_tails=5)
    (step,) = workload.steps
    ends = step.computed + step.query_lens
    tails = (step.computed < step.prefill_lens) & (step.prefill_lens < ends)
    assert tails.tolist() == [True] * 5 + [False] * 4
    assert (step.num_drafts[:5] == ends[:5] - step.prefill_lens[:5]).all()
    assert (step.num_drafts[5:] == 3).all()
    assert workload.features == {DRAFTS}
    assert workload.layout.num_speculative_steps == 3


def test_prefills_have_no_drafts():
    workload = batch_of(
        requests=4, drafts=1, tokens_per_request=2, prefills=3, prefill_tokens=20, lookahead=2
    )
    (step,) = workload.steps
    assert step.num_drafts.tolist() == [1] * 4 + [0] * 3
    assert (step.prefill_lens[4:] >= (step.computed + step.query_lens)[4:]).all()
    assert workload.features == {DRAFTS, LOOKAHEAD}


def test_a_prompt_goes_on_where_a_later_step_does():
    """Row 0 is in prefill for two steps, and then decodes."""
    layout = TableLayout.for_length((4,), 64, 2, 16)

    def step(first, count):
        starts = np.array([0, count], dtype=np.int32)
        return Step((), np.zeros(1, np.int64), starts, first + np.arange(count), 1, count)

    tables = Workload(layout, "int64", (), (step(0, 5), step(5, 4), step(9, 1)))
    steps = with_inputs(tables, InputLayout(2, 16, 64), 0, 0, 0).steps
    assert steps[0].prefill_lens[0] > 5
    assert steps[1].prefill_lens[0] == 9
    assert steps[2].prefill_lens[0] <= 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"idx_mapping": np.full(1, -1)}, "step 0 has a request without a row"),
        ({"positions": np.array([3, 5])}, "step 0 has positions that are not consecutive"),
        ({"query_start_loc": np.zeros(2, np.int32)}, "step 0 has a request without tokens"),
    ],
)
def test_what_no_engine_prepares_is_refused(change, message):
    layout = TableLayout.for_length((4,), 64, 2, 16)
    starts = np.array([0, 2], dtype=np.int32)
    step = Step((), np.zeros(1, np.int64), starts, np.array([3, 4]), 1, 2)
    tables = Workload(layout, "int64", (), (replace(step, **change),))
    with pytest.raises(UsageError, match=message):
        with_inputs(tables, InputLayout(2, 16, 64), 0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (
            BatchParameters,
            {"requests": 1, "drafts": 2},
            "'tokens_per_request' is 1 and 'drafts' is",
        ),
        (BatchParameters, {"requests": 1, "prompt_tails": 1}, "expected drafts"),
        (BatchParameters, {"requests": 1, "dummy_requests": 1}, "'dummy_requests' is 1"),
        (BatchParameters, {"requests": 1, "custom_outputs": True}, "'custom_outputs' is true"),
        (BatchParameters, {"requests": 1, "idx_mapping_dtype": "int32"}, "expected 'int64'"),
        (BatchParameters, {"prefills": 1, "prefill_tokens": 1}, "counts as a decode"),
        (
            BatchParameters,
            {"requests": 1, "drafts": 1, "tokens_per_request": 2, "prompt_tails": 2},
            "'prompt_tails' is 2; expected at most 'requests', 1",
        ),
        (
            TraceParameters,
            {"workload": "trace", "trace": "azure_conv", "drafts": 1},
            "the scheduler does not speculate",
        ),
    ],
)
def test_parameters_that_disagree_are_refused(kind, parameters, message):
    with pytest.raises(UsageError, match=message):
        kind(**SIZES | parameters).check()


def test_a_window_of_a_trace():
    window = {"at": "start", "steps": 12}
    sizes = {"max_num_reqs": 256, "max_num_batched_tokens": 8192, "max_model_len": 16384}
    workload = TraceParameters(
        workload="trace", trace="azure_conv", rate=10, window=window, **sizes
    ).build()
    in_prefill = workload.sizes()["num_prefills"]
    assert len(in_prefill) == 12
    assert in_prefill[0] == 1
    check_workload(load_suite(SuiteRef(name="batch_preparation")), workload)


def test_a_recording_of_an_engine(tmp_path):
    """A recorded step has rows and tokens of its calls, and the engine's tables."""
    made = record(tmp_path, 20)
    window = {"at": 0, "steps": 4}
    config = tmp_path / "own.yaml"
    config.write_text(
        "suite: batch_preparation\ncases:\n"
        f"  - {{name: own, workload: recorded, file: {made.path.name}, window: {window}}}\n"
    )
    parameters = load_config(str(config)).cases[0].parameters
    assert isinstance(parameters, RecordedParameters)
    workload = build_workload(parameters)
    assert workload.table_layout.widths == made.layout.widths
    for step, batch in zip(workload.steps, made.batches, strict=False):
        assert step.rows.tolist() == batch["rows"]
        assert step.computed.tolist() == batch["computed"]


def test_the_description_counts_drafts_and_prompts():
    suite = load_suite(SuiteRef(name="batch_preparation"))
    parameters = BatchParameters(
        **SIZES, requests=9, drafts=3, tokens_per_request=4, prompt_tails=2, pad_requests=True
    )
    data, document = suite.describe("own", parameters, parameters.build())
    assert data["inputs"] == {
        "steps": 1,
        "steps_with_drafts": 1,
        "most_drafts": sum(parameters.build().steps[0].num_drafts),
        "steps_with_prefill": 1,
        "steps_with_prompt_tails": 1,
        "steps_padded": 1,
    }
    assert "1 of 1 step with drafts" in str(document)


@pytest.mark.parametrize(
    ("parameters", "read", "written"),
    [
        # A decode: its length, and the sampled token; see the sizes of all outputs in the docs.
        ({"requests": 1}, 4 + 8, 8 + 8 + 12 + 17 * 4 + 16 * 4 + 8 + 1 + 4),
        # Two tokens of a prompt and none ahead; its tokens are on the host.
        (
            {"prefills": 1, "prefill_tokens": 2},
            4,
            8 + 8 + 12 + 17 * 4 + 16 * 4 + 16 + 2 + 4 * (2 + 1),
        ),
    ],
)
def test_bytes_that_inputs_must_move(parameters, read, written):
    (traffic,) = batch_of(**parameters).traffic(INPUTS)
    assert (traffic.read, traffic.written) == (read, written)


def test_conformance_reaches_its_corners():
    workloads = conformance_workloads(0)
    steps = {name: workload.steps for name, workload in workloads.items()}
    assert workloads.keys() == CORNERS.keys()
    assert any(step.num_drafts is not None for step in steps["drafts and prompt tails"])
    assert any((step.query_lens > 1024).any() for step in steps["long prompts"])
    assert any(len(set(s.rows.tolist())) < s.num_reqs for s in steps["rows twice"])
    assert all(step.num_tokens == step.num_tokens_padded for step in steps["no padding"])
    drafted = [step for name in CORNERS for step in steps[name] if step.num_drafts is not None]
    ends = [step.computed + step.query_lens for step in drafted]
    assert any((step.is_tail & (step.num_drafts > 0)).any() for step in drafted)
    assert any(
        ((step.prefill_lens == end) & (step.num_drafts > 0)).any()
        for step, end in zip(drafted, ends, strict=True)
    )
