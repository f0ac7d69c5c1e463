"""The sizes that a step in one launch is cut into, and which of them a layout takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bt_kernels import device_code as one_launch_code
from bt_kernels.layout import PAD_SLOT_ID

MARK_FIELDS: int = one_launch_code.MARK_FIELDS.value
STEP_RECORD_FIELDS: int = one_launch_code.STEP_RECORD_FIELDS.value
HEADER_FIELDS: int = one_launch_code.HEADER_FIELDS.value
OPTION_FIELDS: int = one_launch_code.OPTION_FIELDS.value
ADDRESS_BITS: int = one_launch_code.ADDRESS_BITS.value
DLPACK_CUDA = 2
WORDS = 2  # int32 elements of an int64


@dataclass(frozen=True)
class Shape:
    """How the requests of a step are cut into programs.

    Args:
        requests: that a program gathers and maps.
        columns: of a row that it copies at a time.
        tokens: that it maps at a time.
        num_warps: of a program.
    """

    requests: int
    columns: int
    tokens: int
    num_warps: int

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """Values of the kernels' last `tl.constexpr` parameters, in their order."""
        return (PAD_SLOT_ID, self.requests, self.columns, self.tokens, BLOCK)


# One request a program has the shortest way from launch to store, as long as there are few. Where
# there are thousands, starting programs is what takes the time (0.65 us a thousand), and requests
# share one. A long prompt, or a long row, has more programs of more columns and tokens. Found by
# measurement on an H200.
FEW = Shape(requests=1, columns=128, tokens=32, num_warps=1)
MANY = Shape(requests=2, columns=128, tokens=8, num_warps=1)
LONG = Shape(requests=1, columns=512, tokens=256, num_warps=4)
# For a launch that never changes, which has to do for any step of a layout with few rows.
FIXED = Shape(requests=1, columns=256, tokens=128, num_warps=4)
SHAPES = (FEW, MANY, LONG)
MANY_ROWS = 1024  # of all groups
LONG_TOKENS = 256  # tokens per request, on average
LONG_COLUMNS = 2048
CHUNK = 256  # tokens or columns for which a tile of `LONG` has a program of its own
MAX_CHUNKS = 64
MAX_TILE_PROGRAMS = 2048  # that chunks make; without chunks there may be more
MAX_PADS = 16
BLOCK = 1024  # slots that are padded, or ids that are written, at a time
# Writes that the parameters of a launch carry: for each group a power of two up to the first, and
# for all groups together up to the second, which takes 4 KiB.
MOST_SLOTS = 64
MAX_WORDS = 512
FEWEST_SLOTS = 16
SLOTS_INTERPRETED = 4  # each takes long there
MAX_PROGRAMS = 1056  # of a launch that never changes: eight for each multiprocessor


def pads_for(num_slots: int) -> int:
    """Programs that pad the slots of a group."""
    return min(MAX_PADS, -(-num_slots // BLOCK)) or 1
