"""A cache of the blocks of prompts: a request that begins as an earlier one gets its blocks.

It works as in vLLM, with the hashes of a trace in place of hashes of tokens:

- A *unit* is the least number of tokens that fills whole blocks of the trace's hashes, and whole
  blocks of every group. A unit of a prompt is known by its hashes and all those before it.
- When a step has computed all tokens of a unit, its blocks are cached. They stay so when the
  request ends or is preempted, until one of them is handed out again: blocks that no request holds
  are in the free queue, first freed, first handed out. Of one request's, the last ones come first.
- A request that is admitted begins with the blocks of its leading units that are cached, and their
  tokens count as computed; at least one token of its prefill is left to compute. Its rows name
  these blocks, as other requests' do, and they are free when no request holds them.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from bt_bench.suites.block_tables.workloads.serving.block_pool import BlockPool

Blocks = tuple[list[int], ...]
"""Block ids of each group."""


class SharingPool(BlockPool):
    """A pool whose blocks several requests may hold, and which are cached after their end.

    Args:
        num_blocks: ids in the pool.
    """

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._holders: dict[int, int] = {}  # requests that hold a block, where there are any
        self._idle: OrderedDict[int, None] = OrderedDict()  # the freed ones, first freed first
        self._units: dict[int, Blocks] = {}  # the cached blocks of a unit, by its key
        self._key_of: dict[int, int] = {}  # the key of the unit that a cached block is of

    def cached(self, keys: Sequence[int], most: int) -> list[Blocks]:
        """Return the blocks of the leading units that are cached.

        Args:
            keys: of the units of a prompt.
            most: how many units are asked for at most.
        """
        found: list[Blocks] = []
        for key in keys[:most]:
            blocks = self._units.get(key)
            if blocks is None:
                break
            found.append(blocks)
        return found

    def num_idle(self, units: Sequence[Blocks]) -> int:
        """Return how many blocks of these units no request holds, so that they are free."""
        return sum(block in self._idle for unit in units for ids in unit for block in ids)

    def hold(self, units: Sequence[Blocks]) -> None:
        """Let one more request hold the blocks of these units."""
        for block in (block for unit in units for ids in unit for block in ids):
            if block in self._idle:
                del self._idle[block]
                self.num_in_use += 1
            self._holders[block] = self._holders.get(block, 0) + 1
        self.peak_in_use = max(self.peak_in_use, self.num_in_use)

    def keep(self, key: int, unit: Blocks) -> None:
        """Cache the blocks of a unit, unless another request's are cached."""
        if key not in self._units:
            self._units[key] = unit
            self._key_of.update((block, key) for ids in unit for block in ids)

    def take(self, count: int) -> list[int]:
        """See the base class."""
        ids = super().take(count)
        self._holders.update(dict.fromkeys(ids, 1))
        return ids

    def _reuse(self, count: int) -> list[int]:
        """See the base class; contents cached in these blocks are forgotten."""
        ids = [self._idle.popitem(last=False)[0] for _ in range(count)]
        for block in ids:
            for cached in self._units.pop(self._key_of.get(block, -1), ()):
                for each in cached:
                    del self._key_of[each]
        return ids

    def give_back(self, ids: array[int]) -> None:
        """See the base class; blocks that another request holds stay with it."""
        for block in reversed(ids):
            self._holders[block] -= 1
            if not self._holders[block]:
                del self._holders[block]
                self._idle[block] = None
                self.num_in_use -= 1


class Units:
    """The units of prompts.

    Args:
        hash_tokens: tokens of a hashed block of the trace.
        sizes: tokens of a block, per group.
    """

    def __init__(self, hash_tokens: int, sizes: Sequence[int]) -> None:
        self.num_tokens = math.lcm(hash_tokens, *sizes)
        self._hashes = self.num_tokens // hash_tokens
        self._blocks = [self.num_tokens // size for size in sizes]

    def keys(self, hashes: tuple[object, ...], context: int) -> list[int]:
        """Return a key for each whole unit of a prompt, which no other prefix has.

        Args:
            hashes: of the blocks of the prompt.
            context: tokens of the prompt.
        """
        count = min(context // self.num_tokens, len(hashes) // self._hashes)
        keys: list[int] = []
        for unit in range(count):
            before = keys[-1] if keys else 0
            keys.append(hash((before, hashes[unit * self._hashes : (unit + 1) * self._hashes])))
        return keys

    def blocks(self, held: Sequence[array[int]], unit: int) -> Blocks:
        """Return the blocks of a unit, of those that a row holds in each group."""
        pairs = zip(held, self._blocks, strict=True)
        return tuple(ids[unit * count : (unit + 1) * count].tolist() for ids, count in pairs)

    def first_columns(self, unit: int) -> list[int]:
        """Return the first column of a unit, per group."""
        return [unit * count for count in self._blocks]
