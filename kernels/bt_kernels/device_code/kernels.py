"""The Triton code of the separate and the fused kernels.

The parts that do the work (`_write_record`, `_gather_row`, …) are shared. A fused kernel differs
from the separate ones only in how the work is cut into launches and programs.

Two arrays describe the tables and the staged writes:

`descriptors`: `[G, 16]` int64 on the device, one row per group: addresses, sizes and options (see
`fields`). It is one argument instead of a dozen, since each argument of a launch costs host time.

`staging`: int32 in pinned host memory: first one record per written row (group, row, start,
length, offset of its contents in `staging`), then the contents. Only the kernels that apply writes
read it. They also keep the number of blocks of each row on the device, which a gather needs. So a
gather can be captured into a graph without freezing a buffer that the host fills.

A request row below 0 is a dummy request: it owns no blocks, and nothing is read for it. Options
that only some callers need are compiled in for them alone: if an argument is `None`, or a constant
false, there are no instructions for it. These callers have separate kernels, `…_options_kernel`,
because even an argument that is `None` costs host time in a launch. Row offsets and slots are
computed in int64: the product of a block id and a block size may exceed 2³¹.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import CAPTURED_HEADER, INPUTS, RECORD_FIELDS, STEP_SIZES
from bt_kernels.device_code.parts import _compute_slots, _gather, _write_record


@triton.jit(do_not_specialize=STEP_SIZES)
def apply_writes_kernel(descriptors, staging, first_record, BLOCK: tl.constexpr):
    """Write staged block ids into the source tables; grid `(records,)`.

    Launched for the records of one group at a time, or for all groups' records at once. Moves
    4 bytes in and 4 bytes out per block id, and 20 bytes in and 4 out per record.
    """
    record = (first_record + tl.program_id(0)) * RECORD_FIELDS
    _write_record(descriptors, staging, record, BLOCK)


@triton.jit
def apply_captured_kernel(descriptors, staging, BLOCK: tl.constexpr):
    """Do what `apply_writes_kernel` does, for replays; grid `(programs,)`, of any size.

    `staging` begins with the number of records and the number of the publication. A replay stores
    the latter behind them, and the host learns which publication was applied.
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
    """Copy source rows into batch order and zero further rows; grid `(G, rows)`.

    Moves 4 bytes in and 4 bytes out per live column, and 4 bytes out per column of a zeroed row.
    """
    _gather(descriptors, idx_mapping, num_reqs, None, None, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_options_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr
):
    """Gather like `gather_kernel`, with a sliding window, or into a caller's tables, or both."""
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
    """Turn positions into cache slots; grid `(G, R + 1)`, the last program of a group pads.

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
    """Do what `slots_kernel` does, with context parallelism, or into a caller's buffer, or both."""
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
    """Gather and compute slots in one launch; grid `(G, num_rows + R + 1)`.

    Programs `[0, R)` gather, `[R, num_rows)` zero, the next R compute slots, the last pads. Slots
    come from the source table, which nothing in this launch writes: no program waits for another.
    Moves as many bytes as `gather_kernel` and `slots_kernel` together.
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
    """Do what `gather_slots_kernel` does, with the options of the gather and slots kernels."""
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
