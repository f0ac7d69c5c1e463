"""The Triton code of the separate and the fused kernels.

The parts that do the work (`_write_record`, `_gather_row`, …) are shared, so that a fused kernel
differs from the separate ones only in how the work is cut into launches and programs.

Two arrays describe everything that does not change from step to step, or does so on the host:

`descriptors`: `[G, 12]` int64 on the device, one row per group: addresses, sizes and options (the
constants below). One argument instead of a dozen, since each argument of a launch costs host time.

`staging`: int32 in pinned host memory: first one record per written row (group, row, start,
length, offset of its contents in `staging`), then the contents. Only the kernels that apply writes
read it: the number of blocks of each row, which a gather needs, has a copy on the device that they
keep. A gather can therefore be captured into a graph without freezing a buffer that the host fills.

A request row below 0 is a dummy request: it owns no blocks, and nothing is read for it. What only
some callers need is compiled in for them alone: a part that is given `None`, or a constant that is
false, has no instruction for it. The kernels for these callers are apart, as `…_options_kernel`,
because even an argument that is `None` costs a launch host time. Row offsets and slots are computed
in int64: a block id times a block size passes 2³¹.
"""

import triton
import triton.language as tl

DESCRIPTOR_FIELDS = tl.constexpr(12)
# Columns of `descriptors`.
SOURCE = tl.constexpr(0)  # address of the source table
TARGET = tl.constexpr(1)  # address of the input table
WIDTH = tl.constexpr(2)  # columns of a row of both
BLOCK_SIZE = tl.constexpr(3)  # tokens per block
CAPACITY = tl.constexpr(4)  # positions that a row can hold; 0 if slot mapping is not enabled
NUM_BLOCKS = tl.constexpr(5)  # address of the group's number of blocks per row, int32
SLOTS = tl.constexpr(6)  # address of the group's slots
MAX_NUM_TOKENS = tl.constexpr(7)  # of them
REACH = tl.constexpr(8)  # of the sliding window in tokens; 0 if there is none
CP_SIZE = tl.constexpr(9)  # ranks that share the group's tokens; 1 if it is not sharded
CP_RANK = tl.constexpr(10)  # which of them this is
CP_INTERLEAVE = tl.constexpr(11)  # consecutive tokens of one rank

RECORD_FIELDS = tl.constexpr(5)
CAPTURED_HEADER = tl.constexpr(3)

# Sizes that change from step to step must not select another binary: without this, Triton
# compiles again at 1 and at multiples of 16, in the middle of serving.
STEP_SIZES = ["first_record", "num_reqs", "num_rows", "out_stride", "out_size"]
# Nor must a slice of a longer buffer that happens to begin at a multiple of 16 bytes. What is read
# from them begins anywhere, so that alignment would not be made use of.
INPUTS = ["idx_mapping", "query_start_loc", "positions", "num_computed_tokens", "out_ptrs", "out"]


@triton.jit
def _write_record(descriptors, staging, record, BLOCK: tl.constexpr):
    """Copies the contents of one record into its row of the source table, and counts them."""
    group = tl.load(staging + record).to(tl.int64)
    row = tl.load(staging + record + 1).to(tl.int64)
    start = tl.load(staging + record + 2)
    length = tl.load(staging + record + 3)
    contents = tl.load(staging + record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(num_blocks + row, start + length)
    for first in range(0, length, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < length
        block_ids = tl.load(staging + contents + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, block_ids, mask=mask)


@triton.jit
def _gather_row(
    descriptors,
    idx_mapping,
    num_computed_tokens,
    out_ptrs,
    group,
    batch_index,
    BLOCK: tl.constexpr,
):
    """Copies the live columns of one request's source row into its row of the target table."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = tl.load(idx_mapping + batch_index).to(tl.int64)
    if row < 0:
        _zero(target, width, BLOCK)
    else:
        length = tl.load(num_blocks + row)
        first_column = _first_column(descriptor, num_computed_tokens, row)
        for first in range(0, length, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            mask = columns < length
            block_ids = tl.load(
                source + row * width + columns, mask=mask & (columns >= first_column), other=0
            )
            tl.store(target + columns, block_ids, mask=mask)


@triton.jit
def _first_column(descriptor, num_computed_tokens, row):
    """First column that the sliding window reaches; 0 without one."""
    first_column = tl.zeros([], dtype=tl.int64)
    if num_computed_tokens is not None:
        reach = tl.load(descriptor + REACH)
        if reach > 0:
            first_token = tl.load(num_computed_tokens + row) - reach
            first_column = tl.maximum(first_token, 0) // tl.load(descriptor + BLOCK_SIZE)
    return first_column


@triton.jit
def _zero_row(descriptors, out_ptrs, group, batch_index, BLOCK: tl.constexpr):
    """Zeroes one row of the target table, whole."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    _zero(_target(descriptor, out_ptrs, group) + batch_index * width, width, BLOCK)


@triton.jit
def _target(descriptor, out_ptrs, group):
    """The table that a group is gathered into: the input table, or the caller's."""
    address = tl.load(descriptor + TARGET) if out_ptrs is None else tl.load(out_ptrs + group)
    return address.to(tl.pointer_type(tl.int32))


@triton.jit
def _zero(target, length, BLOCK: tl.constexpr):
    for first in range(0, length, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        tl.store(target + columns, tl.zeros([BLOCK], dtype=tl.int32), mask=columns < length)


@triton.jit
def _slots_of_request(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    out,
    out_stride,
    group,
    batch_index,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of one request's tokens, from its row of the source table."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    slots = _slots(descriptor, out, out_stride, group)
    row = tl.load(idx_mapping + batch_index).to(tl.int64)
    first_token = tl.load(query_start_loc + batch_index)
    end_token = tl.load(query_start_loc + batch_index + 1)
    # A dummy request has room for no position, like a group whose slot mapping is not enabled.
    capacity = tl.where(row < 0, 0, capacity)
    for first in range(first_token, end_token, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        mask = tokens < end_token
        position = tl.load(positions + tokens, mask=mask, other=0)
        inside = (position >= 0) & (position < capacity)
        # Division truncates on a device and floors in the interpreter: keep it off negatives.
        position = tl.where(inside, position, 0)
        if SHARDED:
            position, mine = _local_position(descriptor, position, block_size)
            inside &= mine
        column = position // block_size
        block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)
        slot = block_id.to(tl.int64) * block_size + position % block_size
        slot = tl.where(inside, slot, PAD)
        tl.store(slots + tokens, slot, mask=mask)


@triton.jit
def _local_position(descriptor, position, block_size):
    """Where a rank keeps a position of the whole sequence, as if its tokens were all there are.

    A group that is not sharded has one rank and an interleave of 1, and keeps every position.

    Returns:
        The position among the rank's own tokens, and whether the rank has it.
    """
    ranks = tl.load(descriptor + CP_SIZE)
    interleave = tl.load(descriptor + CP_INTERLEAVE)
    span = block_size * ranks
    offset = position % span
    turn = offset // interleave
    mine = turn % ranks == tl.load(descriptor + CP_RANK)
    local = turn // ranks * interleave + offset % interleave
    return position // span * block_size + local, mine


@triton.jit
def _pad_slots(
    descriptors,
    query_start_loc,
    out,
    out_stride,
    out_size,
    num_reqs,
    group,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Pads the slots from the real token count to the end of the buffer."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    slots = _slots(descriptor, out, out_stride, group)
    end = tl.load(descriptor + MAX_NUM_TOKENS) if out is None else out_size
    num_tokens = tl.load(query_start_loc + num_reqs)
    for first in range(num_tokens, end, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        tl.store(slots + tokens, tl.full([BLOCK], PAD, dtype=tl.int64), mask=tokens < end)


@triton.jit
def _slots(descriptor, out, out_stride, group):
    """The slots of a group: its row of `slot_mappings`, or of the caller's buffer."""
    if out is None:
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    else:
        slots = out + group * out_stride
    return slots


@triton.jit
def _gather(descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr):
    """One row of one group, for program `(group, batch index)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        _gather_row(
            descriptors, idx_mapping, num_computed_tokens, out_ptrs, group, batch_index, BLOCK
        )
    else:
        _zero_row(descriptors, out_ptrs, group, batch_index, BLOCK)


@triton.jit
def _compute_slots(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    batch_index,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of one request in one group; after the last request, the padding."""
    group = tl.program_id(0).to(tl.int64)
    if batch_index < num_reqs:
        _slots_of_request(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            out,
            out_stride,
            group,
            batch_index,
            SHARDED,
            PAD,
            BLOCK,
        )
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )


@triton.jit(do_not_specialize=STEP_SIZES)
def apply_writes_kernel(descriptors, staging, first_record, BLOCK: tl.constexpr):
    """Staged writes into the source tables; grid `(records,)`.

    Launched for the records of one group at a time, or for those of all groups at once. Moves
    4 bytes in and 4 bytes out per block id, and 20 bytes in and 4 out per record.
    """
    record = (first_record + tl.program_id(0)) * RECORD_FIELDS
    _write_record(descriptors, staging, record, BLOCK)


@triton.jit
def apply_captured_kernel(descriptors, staging, BLOCK: tl.constexpr):
    """As `apply_writes_kernel`, for replays; grid `(programs,)`, of any size.

    `staging` begins with the number of records and the number of the publication, which is noted
    behind them once a replay has taken it: the host must not overwrite what was never applied.
    """
    program = tl.program_id(0)
    num_records = tl.load(staging)
    if program == 0:
        tl.store(staging + 2, tl.load(staging + 1))
    for record in range(program, num_records, tl.num_programs(0)):
        first = CAPTURED_HEADER + record * RECORD_FIELDS
        _write_record(descriptors, staging, first, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_kernel(descriptors, idx_mapping, num_reqs, BLOCK: tl.constexpr):
    """Source rows into batch order, further rows zeroed; grid `(G, rows)`.

    Moves 4 bytes in and 4 bytes out per live column, and 4 bytes out per column of a zeroed row.
    """
    _gather(descriptors, idx_mapping, num_reqs, None, None, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_options_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr
):
    """As `gather_kernel`, with a sliding window, or into the tables of a caller, or both."""
    _gather(descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions into cache slots; grid `(G, R + 1)`, the last program of a group pads.

    Moves 12 bytes in (position, block id) and 8 bytes out per token, and 8 bytes out per
    padding slot.
    """
    _compute_slots(
        descriptors,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs,
        None,
        None,
        None,
        tl.program_id(1).to(tl.int64),
        False,
        PAD,
        BLOCK,
    )


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def slots_options_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `slots_kernel`, with context parallelism, or into the buffer of a caller, or both."""
    _compute_slots(
        descriptors,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs,
        out,
        out_stride,
        out_size,
        tl.program_id(1).to(tl.int64),
        SHARDED,
        PAD,
        BLOCK,
    )


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_rows,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gather and slots in one launch; grid `(G, num_rows + R + 1)`.

    Programs `[0, R)` gather, `[R, num_rows)` zero, the next R compute slots, the last pads. Slots
    come from the source table, which nothing in this launch writes: no program waits for another.
    Moves what `gather_kernel` and `slots_kernel` move.
    """
    program = tl.program_id(1).to(tl.int64)
    if program < num_rows:
        _gather(descriptors, idx_mapping, num_reqs, None, None, BLOCK)
    else:
        _compute_slots(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs,
            None,
            None,
            None,
            program - num_rows,
            False,
            PAD,
            BLOCK,
        )


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_slots_options_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_rows,
    num_computed_tokens,
    out_ptrs,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `gather_slots_kernel`, with what the `options` kernels of gather and slots have."""
    program = tl.program_id(1).to(tl.int64)
    if program < num_rows:
        _gather(descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK)
    else:
        _compute_slots(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs,
            out,
            out_stride,
            out_size,
            program - num_rows,
            SHARDED,
            PAD,
            BLOCK,
        )
