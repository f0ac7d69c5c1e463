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
        requests: requests that a program gathers and maps.
        columns: columns of a row that it copies at a time.
        tokens: tokens that it maps at a time.
        num_warps: warps of a program.
    """

    requests: int
    columns: int
    tokens: int
    num_warps: int

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """Values of the kernels' last `tl.constexpr` parameters, in their order."""
        return (PAD_SLOT_ID, self.requests, self.columns, self.tokens, BLOCK)


# With few requests, one request per program is fastest from launch to store. With thousands,
# starting programs dominates (0.65 us per thousand), so requests share one. Long prompts and long
# rows get more programs, with more columns and tokens each. Found by measurement on an H200.
FEW = Shape(requests=1, columns=128, tokens=32, num_warps=1)
MANY = Shape(requests=2, columns=128, tokens=8, num_warps=1)
LONG = Shape(requests=1, columns=512, tokens=256, num_warps=4)
# For a launch that never changes, which has to suit any step of a layout with few rows.
FIXED = Shape(requests=1, columns=256, tokens=128, num_warps=4)
SHAPES = (FEW, MANY, LONG)
MANY_ROWS = 1024  # of all groups
LONG_TOKENS = 256  # tokens per request, on average
LONG_COLUMNS = 2048
CHUNK = 256  # tokens or columns for which a tile of `LONG` has a program of its own
MAX_CHUNKS = 64
MAX_TILE_PROGRAMS = 2048  # when split into chunks; without chunks there may be more
MAX_PADS = 16
BLOCK = 1024  # slots that are padded, or ids that are written, at a time
# How many writes the parameters of a launch carry: per group a power of two up to the first, and
# for all groups together up to the second, which takes 4 KiB.
MOST_SLOTS = 64
MAX_WORDS = 512
FEWEST_SLOTS = 16
SLOTS_INTERPRETED = 4  # each one is slow in the interpreter
MAX_PROGRAMS = 1056  # of a launch that never changes: eight for each multiprocessor
PROGRAMS_INTERPRETED = 6  # each one takes long to read its header in the interpreter


def pads_for(num_slots: int) -> int:
    """Programs that pad the slots of a group."""
    return min(MAX_PADS, -(-num_slots // BLOCK)) or 1
