"""The pool of blocks for all requests and groups."""

from __future__ import annotations

from array import array
from collections import deque

MAX_BLOCK_ID = 2_147_483_647
"""Tables hold int32."""


class BlockPool:
    """Block ids with a free queue: first freed, first handed out again.

    As in vLLM, one pool serves all KV cache groups: an id belongs to one row of one group at a
    time. Ids start at 1, since block 0 is the null block that no request owns. The queue begins
    with all ids in order: every id is used once before any is used again. Ids that were never used
    are not stored; others take 4 bytes each.

    Args:
        num_blocks: ids in the pool.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_in_use = 0
        self.peak_in_use = 0
        self.num_allocations = 0
        self.num_distinct = 0
        """Ids handed out at least once, which are `1 … num_distinct`."""
        self._freed: deque[array[int]] = deque()
        self._head = 0  # ids of the first chunk of `_freed` that were handed out again

    @property
    def num_free(self) -> int:
        """Return the number of ids that can be taken."""
        return self.num_blocks - self.num_in_use

    def take(self, count: int) -> list[int]:
        """Take ids from the front of the queue.

        Raises:
            ValueError: if fewer than `count` are free.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks were asked for, but only {self.num_free} are free")
        first = self.num_distinct + 1
        fresh = min(count, self.num_blocks - self.num_distinct)
        ids = list(range(first, first + fresh))
        self.num_distinct += fresh
        while len(ids) < count:
            ids += self._reuse(count - len(ids))
        self.num_allocations += count
        self.num_in_use += count
        self.peak_in_use = max(self.peak_in_use, self.num_in_use)
        return ids

    def _reuse(self, count: int) -> list[int]:
        """Take at most `count` freed ids, all from the first chunk."""
        chunk = self._freed[0]
        part = chunk[self._head : self._head + count].tolist()
        self._head += len(part)
        if self._head == len(chunk):
            self._freed.popleft()
            self._head = 0
        return part

    def give_back(self, ids: array[int]) -> None:
        """Append the ids of one row and group to the queue, the last one first, as vLLM does."""
        if ids:
            self._freed.append(ids[::-1])
            self.num_in_use -= len(ids)
