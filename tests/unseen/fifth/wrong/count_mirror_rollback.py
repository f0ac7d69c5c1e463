"""Own counts of blocks are put back in the wrong order after a refused `append_many`.

Shows: an `append_many` that names a row twice and is refused because of a later entry; then an append
to that row that just fits its table, which is refused, since the row counts the first entry still.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Refuses rows that get too wide before any id is converted, by counts in plain lists."""

    def __init__(self, layout, device, **options) -> None:
        super().__init__(layout, device, **options)
        self._counts = self.num_blocks.tolist()

    def append_block_ids(self, req_index, new_block_ids, overwrite) -> None:
        undo = self._reserve([req_index], [new_block_ids], [overwrite])
        try:
            super().append_block_ids(req_index, new_block_ids, overwrite)
        except ValueError:
            self._put_back(undo)
            raise

    def append_many(self, req_indices, new_block_ids, overwrite) -> None:
        undo = self._reserve(req_indices, new_block_ids, overwrite)
        try:
            super().append_many(req_indices, new_block_ids, overwrite)
        except ValueError:
            self._put_back(undo)
            raise

    def restore(self, state) -> None:
        super().restore(state)
        self._counts = self.num_blocks.tolist()

    def _reserve(self, rows, block_ids, overwrite):
        undo = []
        try:
            for row, lists, anew in zip(rows, block_ids, overwrite):
                for counts, width, ids in zip(self._counts, self.layout.widths, lists):
                    before = counts[row]
                    end = len(ids) if anew else before + len(ids)
                    undo.append((counts, row, before))
                    counts[row] = end
                    if end > width:
                        self._put_back(undo)
                        raise ValueError(
                            f"row {row} would have {end} blocks; its table is {width} columns wide"
                        )
        except (TypeError, IndexError):
            pass  # what is wrong is said by the thorough checks
        return undo

    def _put_back(self, undo) -> None:
        for counts, row, before in undo:
            counts[row] = before
