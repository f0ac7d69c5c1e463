"""One launch: each program sums up the pages before its request, and copies its own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from page_kernels.interface import PageIndexTensors, PageIndices

TILE = 128
BLOCK = 256


@triton.jit(do_not_specialize=["num_reqs"])
def build_kernel(
    page_table,
    lengths,
    idx_mapping,
    indptr,
    indices,
    last_page_len,
    num_reqs,
    width,
    PAGE_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Run a program for each request, and one for an empty batch; grid `(max(R, 1),)`."""
    request = tl.program_id(0)
    start = 0
    for first in range(0, request, TILE):
        others = first + tl.arange(0, TILE)
        before = others < request
        rows = tl.load(idx_mapping + others, mask=before, other=0)
        their_lengths = tl.load(lengths + rows, mask=before, other=0)
        start += tl.sum(tl.cdiv(their_lengths, PAGE_SIZE))
    tl.store(indptr + request, start)
    if request < num_reqs:
        row = tl.load(idx_mapping + request).to(tl.int64)
        length = tl.load(lengths + row)
        num_pages = tl.cdiv(length, PAGE_SIZE)
        if request == num_reqs - 1:
            tl.store(indptr + num_reqs, start + num_pages)
        in_last = length - (num_pages - 1) * PAGE_SIZE
        tl.store(last_page_len + request, tl.where(num_pages > 0, in_last, 0))
        for first_page in range(0, num_pages, BLOCK):
            columns = first_page + tl.arange(0, BLOCK)
            used = columns < num_pages
            page_ids = tl.load(page_table + row * width + columns, mask=used)
            tl.store(indices + start + columns, page_ids, mask=used)


class Variant(PageIndices):
    """No program waits for another: the sum of the pages before is cheaper than a second launch."""

    def build(self, idx_mapping: torch.Tensor) -> PageIndexTensors:
        num_reqs = idx_mapping.shape[0]
        build_kernel[(max(num_reqs, 1),)](
            self.page_table,
            self.staged.publish(),
            idx_mapping,
            self.indptr,
            self.indices,
            self.last_page_len,
            num_reqs,
            self.page_table.shape[1],
            PAGE_SIZE=self.page_size,
            TILE=TILE,
            BLOCK=BLOCK,
        )
        return self._views(num_reqs)
