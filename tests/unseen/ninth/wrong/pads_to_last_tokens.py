"""As baseline, but slots are padded only as far as the last call filled them.

What it does: the device keeps the number of tokens of the last call per group. What lies behind
those is PAD already, so the padding of a small step does not write the whole buffer. (Tables that
are replaced are padded whole once.)

Wrong: `restore` brings the slots of a larger step back, but not its number of tokens. (As
after anything else that fills `slot_mappings` behind the back of the calls, such as a poison.)

Shows: slots of many tokens, a snapshot, slots of few, restore, slots of few.
"""

import torch
import triton
import triton.language as tl

from bt_kernels.device_code.fields import DESCRIPTOR_FIELDS
from bt_kernels.device_code.parts import _slots, _slots_of_request
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base

BLOCK = 1024


@triton.jit(do_not_specialize=["num_reqs"])
def slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    filled,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of one request in one group; grid `(G, R + 1)`, the last program pads."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        _slots_of_request(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            None,
            None,
            num_reqs,
            group,
            batch_index,
            False,
            PAD,
            BLOCK,
        )
    else:
        slots = _slots(descriptors + group * DESCRIPTOR_FIELDS, None, None, group)
        num_tokens = tl.load(query_start_loc + num_reqs)
        end = tl.load(filled + group)
        for first in range(num_tokens, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            tl.store(slots + tokens, tl.full([BLOCK], PAD, dtype=tl.int64), mask=tokens < end)
        tl.store(filled + group, num_tokens)


class Variant(Base):
    """Pads what is not padded yet."""

    launch_paths = ("jit",)

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._filled = torch.zeros(layout.num_groups, dtype=torch.int32, device=self.device)

    def replace_tables(self, block_tables, input_block_tables, slot_mappings):
        super().replace_tables(block_tables, input_block_tables, slot_mappings)
        self._filled.fill_(self.layout.max_num_batched_tokens)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        self.launch(
            slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, self._filled, num_reqs),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping,),
        )
