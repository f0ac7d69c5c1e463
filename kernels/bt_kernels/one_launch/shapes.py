"""The sizes that a step in one launch is cut into, and the choice of sizes for a layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bt_kernels import device_code as one_launch_code
from bt_kernels import launches
from bt_kernels.device_code import Sizes
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
    """The division of a step's requests into programs.

    Args:
        requests: requests of a tile, which a program gathers and maps.
        columns: columns of a row that it copies at a time.
        tokens: tokens of its requests that it maps; the others are left to spans.
        num_warps: warps of a program.
    """

    requests: int
    columns: int
    tokens: int
    num_warps: int

    @cached_property
    def sizes(self) -> Sizes:
        """Constants of the kernels."""
        return Sizes(
            pad=PAD_SLOT_ID,
            tile=self.requests,
            columns=self.columns,
            wide_columns=WIDE_COLUMNS,
            own_columns=OWN_COLUMNS,
            rest=REST,
            fresh=2 * self.columns,  # read at once: as many as registers allow
            tokens=self.tokens,
            span=SPAN,
            searched=SEARCHED,
            block=BLOCK,
            words=WORDS_WRITTEN,
        )

    def spans(self, num_tokens: int) -> int:
        """Return the number of programs that map spans of tokens, of one group."""
        return min(MAX_SPANS, -(-num_tokens // SPAN)) if num_tokens > self.tokens else 0


class Cut(NamedTuple):
    """The division of a step into programs, of each group.

    Args:
        shape: shape of the programs.
        num_tiles: programs for tiles of requests.
        num_spans: programs for spans of tokens.
        num_wide: rows at the end of the batch whose columns have programs of their own.
        num_chunks: programs for the columns of each such row.
    """

    shape: Shape
    num_tiles: int
    num_spans: int
    num_wide: int
    num_chunks: int

    @property
    def num_programs(self) -> int:
        """All programs but the ones that write or pad."""
        return self.num_tiles + self.num_spans + self.num_wide * self.num_chunks

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The fields passed to the kernels."""
        return self.num_spans, self.num_wide, self.num_chunks


class Payloads(NamedTuple):
    """Sizes of payloads: int64 words of parameters for staged writes, beside the bitmap of rows.

    Data that does not fit is in pinned memory.

    Args:
        single_ids: intervals of one id each.
        few_ids: any intervals, with their pieces and ids.
        many_ids: the same.
        few_apart: any intervals, with their pieces; ids are in memory.
        many_apart: the same. The kernel makes one dependent read less than in `in_memory`.
        in_memory: none.
    """

    single_ids: int
    few_ids: int
    many_ids: int
    few_apart: int
    many_apart: int
    in_memory: int = 0


# With few requests, one request per program is fastest from launch to store. With thousands,
# starting programs dominates (0.65 us per thousand), so requests share one. Found by measurement on
# an H200.
FEW = Shape(requests=1, columns=512, tokens=32, num_warps=1)
MANY = Shape(requests=2, columns=256, tokens=32, num_warps=1)
# For a launch that never changes, and has to suit any step of a layout with few rows.
FIXED = Shape(requests=1, columns=256, tokens=128, num_warps=4)
SHAPES = (FEW, MANY)
MANY_ROWS = 1024  # of all groups
SPAN = 128  # consecutive tokens of the batch, for a program of their own
SEARCHED = 256  # requests that are examined at a time
MAX_SPANS = 1024  # programs of a group; each takes several spans where there are more
FIXED_SPANS = 64  # in a launch that never changes
WIDE_COLUMNS = 512  # columns that programs for long rows copy at a time
REST = 128  # columns that are copied one by one, at a time
OWN_COLUMNS = 1024  # columns of a row for one program; longer rows have more programs
MAX_CHUNKS = 64
MAX_WIDE_PROGRAMS = 2048  # of all groups, for columns of long rows
MAX_PADS = 16
BLOCK = 1024  # slots that are padded, or ids that are written, at a time
WORDS_WRITTEN = 64  # intervals that a program writes
# A launch takes 2 to 4 ns longer for each word on an H200, and 1.2 to 1.8 on an H100, however many
# of them are used; each dependent read of pinned memory takes 2 to 3 us on the device.
PAYLOADS = Payloads(single_ids=64, few_ids=256, many_ids=1024, few_apart=256, many_apart=1024)
MOST_CARRIED = 256  # ids of an interval; beyond this, pinned memory is quicker
# Small, for a few writes to exercise every kind of payload.
PAYLOADS_INTERPRETED = Payloads(single_ids=2, few_ids=4, many_ids=8, few_apart=3, many_apart=6)
MAX_BITMAP = 768  # words of all groups: a bit for each row and an address for each group
MAX_PROGRAMS = 1056  # of a launch that never changes: eight for each multiprocessor
MANY_ROWS_INTERPRETED = 12  # small, for a few rows to exercise both shapes
PROGRAMS_INTERPRETED = 6  # each one takes long to read its header in the interpreter


def many_rows() -> int:
    """Return the most rows, of all groups together, that get a program each."""
    return MANY_ROWS if launches.COMPILES else MANY_ROWS_INTERPRETED


def pads_for(num_slots: int) -> int:
    """Return the number of programs that pad the slots of a group."""
    return min(MAX_PADS, -(-num_slots // BLOCK)) or 1
