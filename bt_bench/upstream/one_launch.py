"""The change of vLLM 0.33.0 that gathers rows and maps slots in one launch."""

from __future__ import annotations

from bt_bench.upstream.changes import Change, Edit, Patch, after, from_binding_to_return

_BLOCK_TABLE = "vllm/v1/worker/gpu/block_table.py"
_MODEL_RUNNER = "vllm/v1/worker/gpu/model_runner.py"
_TESTS = "tests/v1/worker/test_gpu_block_table.py"

_DESCRIPTION = """\
Every step with tokens launches _gather_block_tables_kernel, then
_compute_slot_mappings_kernel. Both only read the source tables, and neither
reads anything that the other writes. One launch does both, leaves the same bits
in every buffer, and saves one Triton launch per step on the host.

- BlockTables.gather_and_compute_slot_mappings is new. All other methods keep
  their signatures and results. Prefill context parallelism and the speculators
  keep their separate calls.
- GPUModelRunner.prepare_attn calls it in place of the two.
- The first programs of a group gather one row each, the others map 1,024 tokens
  each. A token finds its request by bisection of query_start_loc. So 16 programs
  map a prefill of 16,384 tokens, in place of one.
- A request with idx_mapping == -1 gets a row of null blocks. The separate gather
  reads before the start of its buffers for such a request.
- warmup_kernels compiles the kernel, as it does the other two: its steps go
  through prepare_attn. Integers that vary between steps are not specialized, so
  an engine has one variant of the kernel.
"""

_MEASURED = """\
GPU time of a step of bt-bench's config `origin`, one H100, medians of 1,000 rounds
(torch 2.11.0+cu130, Triton 3.6.0): 10.7 -> 8.3, 11.5 -> 8.8, 11.3 -> 9.0, 14.4 -> 12.3
and 16.0 -> 11.7 us, for 1, 1, 1, 2 and 4 groups. Original and patched copy ran one after
the other, beside other work: `compare` calls these changes inconclusive, and host
times of the pair say nothing. To repeat it, with PATCHED a copy that has this patch:

    bt-bench sweep origin --variants vllm --vllm-source ORIGINAL --out before
    bt-bench sweep origin --variants vllm --vllm-source PATCHED --out after
    bt-bench compare before after

With PATCHED, a step calls the new method. Add runs of `vllm bench serve` on your
engine, with their number and spread.
"""

_TESTED = """\
On a CPU, in Triton's interpreter: the tests of this file and the added one; random
call sequences against bt-bench's reference, also in your copy:

    bt-bench check quick --variants vllm --vllm-source PATCHED --explore 20

The last command, which includes context parallelism there, also passed on an H100. Not
run in an engine.
"""

_METHOD = '''
    def gather_and_compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Do gather_block_tables and compute_slot_mappings in one launch.

        Both only read the source tables, so neither waits for the other.
        """
        num_groups = self.num_kv_cache_groups
        if num_groups == 0:
            return (), self.slot_mappings[:, :num_tokens_padded]
        has_window = self.has_sliding_window_groups and num_computed_tokens is not None
        num_reqs = idx_mapping.shape[0]
        # Also clear rows left by a larger batch.
        num_rows = max(num_reqs_padded, self._num_dirty_rows)
        self._num_dirty_rows = num_reqs
        max_num_tokens = self.slot_mappings.shape[1]
        num_tiles = triton.cdiv(max_num_tokens, _TILE_SIZE)
        _gather_and_compute_slot_mappings_kernel[(num_groups, num_rows + num_tiles)](
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs,
            num_rows,
            triton.next_power_of_2(num_reqs) // 2,
            self.block_table_ptrs,
            self.input_block_table_ptrs,
            self.block_table_strides,
            self.num_blocks.gpu,
            self.num_blocks.gpu.stride(0),
            num_computed_tokens if has_window else self.sliding_window_reach,
            self.sliding_window_reach,
            self.block_sizes_tensor,
            self.slot_mapping_enabled,
            self.dcp_sharded,
            self.slot_mappings,
            self.slot_mappings.stride(0),
            max_num_tokens,
            self.cp_rank,
            HAS_WINDOW=has_window,
            CP_SIZE=self.cp_size,
            CP_INTERLEAVE=self.cp_interleave,
            PAD_ID=PAD_SLOT_ID,
            TILE_SIZE=_TILE_SIZE,
        )
        return (
            tuple(bt[:num_reqs_padded] for bt in self.input_block_tables),
            self.slot_mappings[:, :num_tokens_padded],
        )
'''

_KERNEL = """

_TILE_SIZE = 1024


@triton.jit(do_not_specialize=["num_reqs", "num_rows", "first_step"])
def _gather_and_compute_slot_mappings_kernel(
    idx_mapping,  # [num_reqs]
    query_start_loc,  # [num_reqs + 1]
    positions_ptr,  # [num_tokens]
    num_reqs,
    num_rows,  # rows to gather or to clear
    first_step,  # of the bisection: the largest power of 2 below num_reqs
    src_table_ptrs,  # [num_kv_cache_groups]
    dst_table_ptrs,  # [num_kv_cache_groups]
    table_strides,  # [num_kv_cache_groups]
    num_blocks_ptr,  # [num_kv_cache_groups, max_num_reqs]
    num_blocks_stride,
    num_computed_tokens_ptr,  # [max_num_reqs], if HAS_WINDOW
    window_reach_ptr,  # [num_kv_cache_groups]
    block_sizes_ptr,  # [num_kv_cache_groups]
    enabled_ptr,  # [num_kv_cache_groups]
    sharded_ptr,  # [num_kv_cache_groups]
    slots_ptr,  # [num_kv_cache_groups, max_num_tokens]
    slots_stride,
    max_num_tokens,
    cp_rank,
    HAS_WINDOW: tl.constexpr,
    CP_SIZE: tl.constexpr,
    CP_INTERLEAVE: tl.constexpr,
    PAD_ID: tl.constexpr,
    TILE_SIZE: tl.constexpr,
):
    # Of a group's programs the first num_rows gather a row each, and the others
    # map a tile of tokens each.
    group = tl.program_id(0)
    index = tl.program_id(1)
    lane = tl.arange(0, TILE_SIZE)
    width = tl.load(table_strides + group)
    src_table = _load_ptr(src_table_ptrs + group, tl.int32)
    block_size = tl.load(block_sizes_ptr + group)

    if index < num_rows:
        row = tl.load(idx_mapping + index, mask=index < num_reqs, other=-1)
        is_real = row >= 0
        count_ptr = num_blocks_ptr + group * num_blocks_stride + row
        # A row without a request is null blocks over its whole width.
        num_blocks = tl.load(count_ptr, mask=is_real, other=0)
        num_columns = tl.where(is_real, num_blocks, width)
        num_null = tl.where(is_real, 0, width)
        if HAS_WINDOW:
            reach = tl.load(window_reach_ptr + group)
            computed = tl.load(num_computed_tokens_ptr + row, mask=is_real, other=0)
            below = tl.maximum(computed - reach, 0) // block_size
            num_null = tl.where(is_real & (reach > 0), below, num_null)
        dst_row = _load_ptr(dst_table_ptrs + group, tl.int32) + index * width
        for first_column in tl.range(0, num_columns, TILE_SIZE):
            column = first_column + lane
            in_row = column < num_columns
            is_copied = in_row & (column >= num_null)
            block_ids = tl.load(
                src_table + row * width + column, mask=is_copied, other=0
            )
            tl.store(dst_row + column, block_ids, mask=in_row)
        return

    first_token = (index - num_rows) * TILE_SIZE
    token = first_token + lane
    slot_ptr = slots_ptr + group * slots_stride + token
    num_tokens = tl.load(query_start_loc + num_reqs)
    if first_token >= num_tokens:
        # CUDA graphs read padding up to the end.
        tl.store(slot_ptr, PAD_ID, mask=token < max_num_tokens)
        return

    # The request of a token is the last one that starts at or before it.
    request = tl.zeros([TILE_SIZE], dtype=tl.int32)
    step = first_step
    while step > 0:
        later = request + step
        start = tl.load(
            query_start_loc + later, mask=later < num_reqs, other=max_num_tokens
        )
        request = tl.where(start <= token, later, request)
        step = step // 2

    is_token = token < num_tokens
    row = tl.load(idx_mapping + request, mask=is_token, other=-1)
    position = tl.load(positions_ptr + token, mask=is_token, other=0)
    row = tl.where(tl.load(enabled_ptr + group), row, -1)
    has_slot = row >= 0
    if CP_SIZE != 1:
        # Ranks take turns at stripes of CP_INTERLEAVE tokens.
        span = block_size * CP_SIZE
        virtual_block = position // span
        within = (position - virtual_block * span).to(tl.int32)
        stripe = within // CP_INTERLEAVE
        sharded = tl.load(sharded_ptr + group)
        has_slot &= tl.where(sharded, stripe % CP_SIZE, cp_rank) == cp_rank
        local = stripe // CP_SIZE * CP_INTERLEAVE + within % CP_INTERLEAVE
        local = virtual_block * block_size + local
        position = tl.where(sharded, local, position)
    column = position // block_size
    block_id = tl.load(src_table + row * width + column, mask=has_slot, other=0)
    # Not %, which would be a second division of int64.
    slot = block_id * block_size + (position - column * block_size)
    slot = tl.where(has_slot, slot, PAD_ID)
    tl.store(slot_ptr, slot, mask=token < max_num_tokens)
"""

_CALL = """\
        # Slot mappings: [num_kv_cache_groups, num_tokens_padded].
        # Kernel pads beyond num_tokens with PAD_SLOT_ID.
        return self.block_tables.gather_and_compute_slot_mappings(
            input_batch.idx_mapping,
            input_batch.query_start_loc,
            input_batch.positions,
            num_reqs_padded=input_batch.num_reqs_after_padding,
            num_tokens_padded=input_batch.num_tokens_after_padding,
            num_computed_tokens=self.req_states.num_computed_tokens.gpu,
        )
"""

_TEST = '''

@pytest.mark.parametrize("cp_size", [1, 2])
def test_one_launch_equals_gather_and_slot_mappings(cp_size: int):
    """The runner's single launch leaves the same bits as the two calls."""
    device = torch.device("cuda")
    sizes = [16, 32, 12]
    widths = [192, 96, 1200]

    def make_tables() -> BlockTables:
        tables = BlockTables(
            block_sizes=sizes,
            max_num_reqs=6,
            max_num_batched_tokens=2500,
            max_num_blocks_per_group=widths,
            device=device,
            cp_size=cp_size,
            cp_rank=cp_size - 1,
            cp_interleave=4,
            slot_mapping_enabled=[True, True, False] if cp_size > 1 else None,
            dcp_sharded=[True, False, True],
            sliding_window_reach=[0, 31, 11],
        )
        for req_index in range(6):
            ids = tuple([req_index * w + i + 1 for i in range(w)] for w in widths)
            tables.append_block_ids(req_index, ids, overwrite=True)
        tables.apply_staged_writes()
        for table in (*tables.input_block_tables, tables.slot_mappings):
            table.fill_(-7)
        return tables

    expected, actual = make_tables(), make_tables()
    computed = torch.tensor([700, 40, 0, 33, 1, 299], dtype=torch.int32, device=device)
    # Requests, with tokens of each: a long prefill, a smaller batch, no request.
    for reqs, lens in (([4, 1, 5], [2100, 0, 7]), ([0, 3], [1, 1]), ([], [])):
        idx_mapping = torch.tensor(reqs, dtype=torch.int32, device=device)
        ends = torch.tensor([0, *lens], device=device).cumsum(0)
        starts = ends.to(torch.int32)
        spans = [torch.arange(n, device=device) for n in (*lens, 3)]
        positions = torch.cat(spans)
        num_reqs, num_tokens = len(reqs) + 1, len(positions)
        rows = expected.gather_block_tables(
            idx_mapping, num_reqs, num_computed_tokens=computed
        )
        slots = expected.compute_slot_mappings(
            idx_mapping, starts, positions, num_tokens
        )
        fused_rows, fused_slots = actual.gather_and_compute_slot_mappings(
            idx_mapping, starts, positions, num_reqs, num_tokens, computed
        )
        for got, want in zip((*fused_rows, fused_slots), (*rows, slots), strict=True):
            assert torch.equal(got, want)
        for got, want in zip(
            actual.input_block_tables, expected.input_block_tables, strict=True
        ):
            assert torch.equal(got, want)
        assert torch.equal(actual.slot_mappings, expected.slot_mappings)
'''

ONE_LAUNCH = Patch(
    "gather-and-slots",
    "Gather block tables and map slots in one launch",
    _DESCRIPTION,
    _MEASURED,
    _TESTED,
    (
        Change(
            _BLOCK_TABLE,
            (
                Edit("BlockTables.compute_slot_mappings", after, _METHOD),
                Edit("_compute_slot_mappings_kernel", after, _KERNEL),
            ),
            adds="gather_and_compute_slot_mappings",
            digests={
                "BlockTables.__init__": "b15b0e23b609e370",
                "BlockTables.init_block_table_layout_tensors": "4ab565fc19cbe8bb",
                "BlockTables.gather_block_tables": "6e05b4a7cb84b184",
                "BlockTables.get_dummy_block_tables": "5a165c2c96874f9d",
                "BlockTables.compute_slot_mappings": "e2129c7cb8d585bb",
                "_gather_block_tables_kernel": "1fe90bd17f4389be",
                "_compute_slot_mappings_kernel": "de328c0cbe229826",
            },
        ),
        Change("vllm/v1/worker/gpu/buffer_utils.py", digests={"_load_ptr": "02527e4fd1152f08"}),
        Change(
            _MODEL_RUNNER,
            (Edit("GPUModelRunner.prepare_attn", from_binding_to_return("block_tables"), _CALL),),
            adds="gather_and_compute_slot_mappings",
            digests={"GPUModelRunner.prepare_attn": "ca7fc1d7287894fb"},
        ),
        Change(
            _TESTS,
            (Edit("test_dummy_request_slot_mapping_is_pad", after, _TEST),),
            adds="test_one_launch_equals_gather_and_slot_mappings",
            is_test=True,
        ),
    ),
)
"""Gather and slots in one launch, behind the signatures of today."""
