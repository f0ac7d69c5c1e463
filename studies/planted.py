"""Errors that `studies/sanitize.py` must find: the shipped gather with wrong arguments.

compute-sanitizer --tool memcheck python studies/planted.py memcheck
"""

from __future__ import annotations

import sys

import torch

from bt_kernels.layout import TableLayout
from bt_kernels.variants.fused import Variant

LAYOUT = TableLayout((16,), (64,), max_num_reqs=4, max_num_batched_tokens=16)


def main(tool: str) -> None:
    """Make the error that a tool detects."""
    tables = Variant(LAYOUT, "cuda")
    idx_mapping = torch.zeros(1, dtype=torch.int64, device="cuda")
    tables.append_block_ids(0, [range(1, 65)], True)
    tables.apply_staged_writes()
    out = out_ptrs = None
    if tool == "memcheck":
        # 64 block ids are written to an allocation of 8. The bytes behind it up to the next
        # multiple of 512 belong to no other allocation; addresses further off might.
        short = torch.zeros(8, dtype=torch.int32, device="cuda")
        out = [torch.zeros_like(tables.input_block_tables[0])]
        out_ptrs = torch.tensor([short.data_ptr()], device="cuda")
    else:
        tables.block_tables[0] = torch.empty_like(tables.block_tables[0])
        tables.init_block_table_layout_tensors()
    tables.gather_block_tables(idx_mapping, 1, out, out_ptrs)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
