"""The change of vLLM 0.33.0 that prepares a batch's inputs with fewer device operations."""

from __future__ import annotations

from bt_bench.upstream.changes import Change, Edit, Patch, after, binding, body_behind

_INPUT_BATCH = "vllm/v1/worker/gpu/input_batch.py"
_MODEL_RUNNER = "vllm/v1/worker/gpu/model_runner.py"
_TESTS = "tests/v1/worker/test_gpu_model_runner_v2.py"

_DESCRIPTION = """\
GPUModelRunner.prepare_inputs makes tensors anew in every step that are always the
same, fills one mask twice, and copies two small arrays one by one. Now it makes fewer
device operations, with the same values, shapes and dtypes, and no new kernel.

- Without drafts, cu_num_logits and expanded_local_pos are prefixes of two constants
  in InputBuffers. Nothing in this release writes to either field: kernels load them,
  outputs clone them, and PCP and batch sharding make tensors of their own. So readers
  on other streams stay safe. Custom logits processors get expanded_local_pos, too,
  and must not write to it.
- With drafts, idx_mapping and cu_num_logits travel in one copy. They are still new in
  every step. The second begins at 16 bytes, so Triton specializes kernels as before.
- is_padding is written by one comparison, in place of two fills.
- query_start_loc keeps its own copy: graphs read it at a fixed address, while
  idx_mapping must be new in every step.
"""

_MEASURED = """\
Device operations of prepare_inputs, counted on a CPU: torch operations that write, copies
from the host, and Triton launches; prefill adds one launch to each.

    without drafts, padded      8 -> 5        not padded   7 -> 5
    with drafts, padded         8 -> 6        not padded   7 -> 6

Times were not measured. To find the share of prepare_inputs in your engine, before and
after, profile decode steps:

    py-spy record --subprocesses -o before.svg -- \\
        vllm bench throughput --model MODEL --input-len 8 --output-len 1024

Add runs of `vllm bench serve`, with their number and spread.
"""

_TESTED = """\
On a CPU, in Triton's interpreter: the added test; 2,880 random steps with drafts, padding
and prefill in prepare_inputs before and after, with adaptive verification stubbed. Results
and buffers were equal bit for bit after each step, also those that a reader kept. Not run
on a GPU, nor in an engine.
"""

_CONSTANTS = """\
        # Constants, whose prefixes serve every step: never write to them.
        self.arange = torch.arange(
            max(max_num_reqs + 1, max_num_tokens), dtype=torch.int32, device=device
        )
        self.zeros = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)
"""

_PADDING = """\
            token_indices = self.input_buffers.arange[: is_padding.shape[0]]
            torch.ge(token_indices, num_tokens, out=is_padding)
"""

_WITHOUT_DRAFTS = """\
            idx_mapping = async_tensor_h2d(
                idx_mapping_np, device=self.device, dtype=torch.int64
            )
            cu_num_logits = self.input_buffers.arange[: num_reqs + 1]
"""

_LOCAL_POS = """\
            expanded_local_pos = self.input_buffers.zeros[:num_reqs]
"""

_WITH_DRAFTS = """\
            # One copy for both. Rounding up aligns cu_num_logits to 16 bytes.
            offset = 2 * (num_reqs + num_reqs % 2)
            packed_np = np.zeros(offset + num_reqs + 1, dtype=np.int32)
            packed_np[: 2 * num_reqs].view(np.int64)[:] = idx_mapping_np
            packed_np[offset:] = cu_num_logits_np
            packed = async_tensor_h2d(packed_np, device=self.device)
            idx_mapping = packed[: 2 * num_reqs].view(torch.int64)
            cu_num_logits = packed[offset:]
"""

_TEST = '''

@pytest.mark.parametrize(
    "drafts, ends", [(None, [0, 1, 2, 3]), ([2, 0, 1], [0, 3, 4, 6])]
)
def test_prepare_inputs_maps_logits_and_marks_padding(monkeypatch, drafts, ends):
    """Constants and packed copies give what tensors of their own would."""
    kernels = ("expand_idx_mapping", "prepare_pos_seq_lens")
    for kernel in (*kernels, "combine_sampled_and_draft_tokens"):
        monkeypatch.setattr(model_runner_module, kernel, Mock(return_value=(0, 0)))
    runner = Mock(device=torch.device("cuda"), max_num_reqs=4, pcp_manager=None)
    runner.input_buffers = model_runner_module.InputBuffers(4, 16, runner.device)
    runner.adaptive_verification = runner.model_config.rswa_window = None
    runner.model_state.num_new_sampled_tokens_per_step = 1
    lens, rows = torch.tensor([4, 4, 3], dtype=torch.int32), torch.tensor([3, 0, 2])
    runner.req_states.num_computed_tokens_np = torch.zeros(4).int().numpy()
    state = Mock(num_tokens=11, req_ids="abc", has_prefill=False)
    state.idx_mapping_np, state.num_scheduled_tokens = rows.numpy(), lens.numpy()
    state.num_draft_tokens_np = drafts and torch.tensor(drafts).int().numpy()
    scheduled = Mock(scheduled_spec_decode_tokens=drafts)
    desc = SimpleNamespace(num_tokens=16, num_reqs=None)
    batch = GPUModelRunner.prepare_inputs(runner, scheduled, state, desc, 0)
    assert batch.idx_mapping.tolist() == rows.tolist()
    assert batch.cu_num_logits.tolist() == ends
    assert batch.cu_num_logits.data_ptr() % 16 == 0
    assert drafts or batch.expanded_local_pos.tolist() == [0, 0, 0]
    assert batch.is_padding.tolist() == [False] * 11 + [True] * 5
'''

INPUT_OPERATIONS = Patch(
    "input-operations",
    "Prepare a batch's inputs with fewer device operations",
    _DESCRIPTION,
    _MEASURED,
    _TESTED,
    (
        Change(
            _INPUT_BATCH,
            (Edit("InputBuffers.__init__", after, _CONSTANTS),),
            adds="self.arange",
            digests={"InputBuffers.__init__": "976bbf974df2599b"},
        ),
        Change(
            "vllm/utils/torch_utils.py",
            digests={"async_tensor_h2d": "a554008c4234270e"},
        ),
        Change(
            _MODEL_RUNNER,
            (
                Edit("GPUModelRunner.prepare_inputs", body_behind("is_padding"), _PADDING),
                Edit("GPUModelRunner.prepare_inputs", binding("idx_mapping"), ""),
                Edit("GPUModelRunner.prepare_inputs", binding("cu_num_logits"), _WITHOUT_DRAFTS),
                Edit("GPUModelRunner.prepare_inputs", binding("expanded_local_pos"), _LOCAL_POS),
                Edit("GPUModelRunner.prepare_inputs", binding("cu_num_logits", 1), _WITH_DRAFTS),
            ),
            adds="input_buffers.arange",
            digests={"GPUModelRunner.prepare_inputs": "b6bf942b2ea1af3d"},
        ),
        Change(
            _TESTS,
            (Edit("test_standalone_draft_kv_dtype_override", after, _TEST),),
            adds="test_prepare_inputs_maps_logits_and_marks_padding",
            is_test=True,
        ),
    ),
)
"""Views of constants, one copy for two arrays, and one fill."""
