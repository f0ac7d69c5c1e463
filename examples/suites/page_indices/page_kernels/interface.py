"""The common base of the variants: buffers, staged lengths, and argument checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from page_kernels.lengths import StagedLengths

ANY_PAGE_SIZE = "any_page_size"
"""Feature: the page size need not be a power of two."""

PageIndexTensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""`indptr`, `indices` and `last_page_len`."""


class PageIndices(ABC):
    """The page indices of a batch, in buffers that every step writes again.

    Calls of `build` can be captured into a CUDA graph. A replay reads the lengths from the buffer
    that was current at the capture. It is therefore valid only until the next `set_lengths`, and
    the caller has to call `note_replay` after each replay.

    Args:
        page_table: `[max_num_reqs, width]` int32, the page ids of each request row; never written.
        page_size: tokens of a page.

    Attributes:
        indptr: `[max_num_reqs + 1]` int32; the pages of request i of the batch are
            `indices[indptr[i]:indptr[i + 1]]`.
        indices: `[max_num_reqs * width]` int32, page ids.
        last_page_len: `[max_num_reqs]` int32, tokens in the last page of each request of the batch.
    """

    features = frozenset({ANY_PAGE_SIZE})
    capturable = frozenset({"build"})

    def __init__(self, page_table: torch.Tensor, page_size: int) -> None:
        max_num_reqs, width = page_table.shape
        device = page_table.device
        self.page_table = page_table
        self.page_size = page_size
        self.staged = StagedLengths(max_num_reqs, device)
        self.indptr = torch.zeros(max_num_reqs + 1, dtype=torch.int32, device=device)
        self.indices = torch.zeros(max_num_reqs * width, dtype=torch.int32, device=device)
        self.last_page_len = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)

    @property
    def lengths(self) -> torch.Tensor:
        """The length of each request row in tokens: `[max_num_reqs]` int32 on the host."""
        return self.staged.on_host

    def set_lengths(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Set the lengths of the scheduled requests; the other rows keep theirs.

        Args:
            rows: request rows, each at most once.
            lengths: lengths in tokens, one for each of `rows`.

        Raises:
            ValueError: for a row or a length out of range; nothing is changed then.
        """
        max_num_reqs, width = self.page_table.shape
        if len(rows) != len(lengths):
            raise ValueError(f"{len(lengths)} lengths for {len(rows)} rows; expected one each")
        if not rows:
            return
        if min(rows) < 0 or max(rows) >= max_num_reqs:
            raise ValueError(
                f"rows from {min(rows)} to {max(rows)}; expected 0 to {max_num_reqs - 1}"
            )
        most = width * self.page_size
        if min(lengths) < 0 or max(lengths) > most:
            raise ValueError(
                f"lengths from {min(lengths)} to {max(lengths)} tokens; expected 0 to {most}, "
                f"which is {width} pages of {self.page_size}"
            )
        self.staged.write(rows, lengths)

    @abstractmethod
    def build(self, idx_mapping: torch.Tensor) -> PageIndexTensors:
        """Build the page indices of a batch from the current lengths.

        A request of length n has `ceil(n / page_size)` pages, and `last_page_len` from 1 to
        `page_size`, or 0 if n is 0. Unused elements are not written: `indices[indptr[R]:]`,
        `indptr[R + 1:]`, and `last_page_len[R:]`.

        Args:
            idx_mapping: `[R]` int32 on the device, the row of each request; all are different.

        Returns:
            Views of the buffers: `indptr` `[R + 1]`, all of `indices`, and `last_page_len` `[R]`.
        """

    def note_replay(self) -> None:
        """Record a replay of a captured `build`; call this after each replay."""
        self.staged.note_read()

    def _views(self, num_reqs: int) -> PageIndexTensors:
        return self.indptr[: num_reqs + 1], self.indices, self.last_page_len[:num_reqs]
