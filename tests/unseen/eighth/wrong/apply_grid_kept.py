"""As fused_apply, but a program of apply writes 128 ids of a row; the grid is computed once.

Wrong: the number of tiles is kept in the module by groups and rows of the tables, not by their
widths, so later tables with wider rows have the tiles of the first ones.

Shows: tables of up to 128 columns make an apply; then tables with as many groups and rows, but
wider ones, apply a write of more than 128 ids.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.staging import RECORD_FIELDS
from bt_kernels.variants.fused_apply import Variant as Base

TILE = 128

_TILES = {}  # by the shape of `num_blocks`


@triton.jit(do_not_specialize=["first_record"])
def apply_tiles_kernel(
    descriptors, staging, first_record, FIELDS: tl.constexpr, TILE: tl.constexpr
):
    """Writes one tile of one record; grid `(records, tiles)`."""
    record = staging + (first_record + tl.program_id(0)) * FIELDS
    tile = tl.program_id(1)
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    offsets = tile * TILE + tl.arange(0, TILE)
    mask = offsets < length
    ids = tl.load(staging + contents + offsets, mask=mask, other=0)
    tl.store(source + row * width + start + offsets, ids, mask=mask)
    if tile == 0:
        tl.store(num_blocks + row, start + length)


class Variant(Base):
    """Replaces the launch of apply."""

    def _launch_apply(self, records_per_group):
        shape = self.num_blocks.shape
        tiles = _TILES.get(shape)
        if tiles is None:
            tiles = _TILES[shape] = triton.cdiv(max(self.layout.widths), TILE)
        self.launch(
            apply_tiles_kernel,
            (sum(records_per_group), tiles, 1),
            (self.descriptors, self._ring.current, 0),
            (RECORD_FIELDS, TILE),
            (),
        )
