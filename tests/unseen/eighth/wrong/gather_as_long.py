"""As fused_apply, but a gather has programs for 128 columns each, for the longest row only.

The host knows how many blocks every row has, so the grid ends where the longest row ends. Rows
that are zeroed whole are shared by all programs that there are for them.

Wrong: the host's `num_blocks` count what is staged, too. A longest row that was overwritten with
fewer blocks, and not applied yet, still has all of them for a gather.

Shows: an overwrite with fewer blocks of a row with more than 128, then a gather before the apply.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, TARGET, WIDTH
from bt_kernels.device_code.parts import _row
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 128


@triton.jit(do_not_specialize=["num_reqs"])
def gather_chunks_kernel(descriptors, idx_mapping, num_reqs, CHUNK: tl.constexpr):
    """Gathers a chunk of a row, or zeroes a share of it; grid `(G, rows, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + batch_index * width
    if row < 0:
        zeros = tl.zeros([CHUNK], tl.int32)
        for first in range(chunk * CHUNK, width, tl.num_programs(2) * CHUNK):
            columns = first + tl.arange(0, CHUNK)
            tl.store(target + columns, zeros, mask=columns < width)
    else:
        num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
        columns = chunk * CHUNK + tl.arange(0, CHUNK)
        live = columns < tl.load(num_blocks + row)
        tl.store(target + columns, tl.load(source + columns, mask=live), mask=live)


class Variant(Base):
    """Replaces the launch of the plain gather."""

    # The number of chunks would be that of the capture.
    capturable = frozenset({"compute_slot_mappings"})

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        num_chunks = max(1, triton.cdiv(int(self.num_blocks.max()), CHUNK))
        self.launch(
            gather_chunks_kernel,
            (self.layout.num_groups, num_rows, num_chunks),
            (self.descriptors, idx_mapping, idx_mapping.shape[0]),
            (CHUNK,),
            (idx_mapping,),
        )
