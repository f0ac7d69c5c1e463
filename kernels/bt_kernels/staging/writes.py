"""The staged writes of a step, and their packing for kernels."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bt_kernels import device_code
from bt_kernels import device_code as one_launch_code
from bt_kernels.layout import NULL_BLOCK_ID
from bt_kernels.native import load

if TYPE_CHECKING:
    from bt_kernels.native import staged

RECORD_FIELDS: int = device_code.RECORD_FIELDS.value
CAPTURED_HEADER: int = device_code.CAPTURED_HEADER.value
MARK_FIELDS: int = one_launch_code.MARK_FIELDS.value
STEP_RECORD_FIELDS: int = one_launch_code.STEP_RECORD_FIELDS.value
BITMAP_ROWS: int = one_launch_code.BITMAP_ROWS.value
PIECE_IDS: int = one_launch_code.PIECE_IDS.value
ALIGNED_IDS: int = one_launch_code.ALIGNED_IDS.value
SEVERAL = 1 << 63  # to be subtracted, since words are signed
MOST_WORDS = 2**16 - 1  # intervals in a bitmap, and the largest place in a word

# Row, ids of each group, whether they replace the row's ids.
_Request: TypeAlias = "tuple[int, list[array[int]], bool]"

# Start and ids by row, in the order in which rows were first written.
_Intervals: TypeAlias = "dict[int, tuple[int, array[int]]]"

# Numbers of blocks, intervals, row, its number of blocks before, ids, whether they replace others.
_Write: TypeAlias = "tuple[memoryview, _Intervals, int, int, array[int], bool]"

AnyStagedWrites: TypeAlias = "StagedWrites | staged.StagedWrites"
"""The staged writes of a step, in Python or in C."""


class StagedWrites:
    """The writes of a step, one interval `[start, start + len(ids))` per group and row.

    Appends extend an interval; an overwrite replaces it, and earlier staged ids of the row never
    reach the table. An interval may be empty: the row then owns `start` blocks.

    `staged.c` implements the same class in C; see `staged_writes`.

    Args:
        widths: columns of the table, one entry per group.
        num_blocks: `[G, max_num_reqs]` int32, C-contiguous; the number of blocks that each row
            owns. Kept up to date by `append` and `append_many`.

    Attributes:
        longest: the most blocks of any row, as of the last call, unless it was set since.

    Raises:
        ValueError: when `num_blocks` is not such an array.
    """

    def __init__(self, widths: Sequence[int], num_blocks: npt.NDArray[np.int32], /) -> None:
        widths = _int32_of(widths)
        num_groups = len(widths)
        view: memoryview = memoryview(num_blocks)  # type: ignore[arg-type]  # a buffer
        if (
            (view.ndim, view.format, view.c_contiguous, view.readonly) != (2, "i", True, False)
            or view.shape is None
            or view.shape[0] != num_groups
            or 0 in view.shape
        ):
            raise ValueError(
                f"num_blocks is not a writable C-contiguous int32 array of {num_groups} rows, one "
                "per group"
            )
        self._max_num_reqs = size = view.shape[1]
        flat = view.cast("B").cast("i")
        self._groups: list[_Intervals] = [{} for _ in range(num_groups)]
        # Numbers of blocks, width and intervals. A view is quicker than the array.
        self._tables = [
            (flat[group * size : (group + 1) * size], width, self._groups[group])
            for group, width in enumerate(widths)
        ]
        self._longest = 0
        self._has_shrunk = False  # a row that had this many blocks: the number is then only a bound

    @property
    def longest(self) -> int:
        """See the class; counted anew only where it is read."""
        if self._has_shrunk:
            self.longest = max(max(counts) for counts, _, _ in self._tables)
        return self._longest

    @longest.setter
    def longest(self, number: int) -> None:
        self._longest, self._has_shrunk = number, False

    @property
    def num_records(self) -> int:
        """Intervals that are staged."""
        return sum(map(len, self._groups))

    @property
    def num_ids(self) -> int:
        """Block ids in them."""
        return sum([len(ids) for group in self._groups for _, ids in group.values()])

    def __bool__(self) -> bool:
        return any(self._groups)

    def append(
        self,
        row: int,
        block_ids: Sequence[Sequence[int]],
        overwrite: bool,
        redirect: bool,
        /,
    ) -> bool:
        """Stage the writes of a request; copies the ids.

        Args:
            row: row of the tables.
            block_ids: new ids of each group.
            overwrite: whether they replace the row's ids, rather than follow them.
            redirect: stage the null block in place of every id.

        Returns:
            `False` if it is refused, with nothing changed: the row does not exist, there is not one
            list per group, an id does not fit int32, or the row would be wider than its table.
            `refuse_append` finds the reason.
        """
        try:
            request = self._read(row, block_ids, overwrite)
        except (OverflowError, TypeError):
            return False
        return request is not None and self._stage((request,), redirect)

    def append_many(
        self,
        rows: Sequence[int],
        block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
        redirect: bool,
        /,
    ) -> bool:
        """Stage the writes of several requests, as calls of `append` in their order would.

        Returns:
            `False` if one is refused, or the arguments have not one entry per request; then nothing
            has been changed. `refuse_append_many` finds the reason.
        """
        requests = []
        try:
            rows, block_ids, overwrite = _listed(rows), _listed(block_ids), _listed(overwrite)
            num_reqs = len(rows)
            if len(block_ids) != num_reqs or len(overwrite) != num_reqs:
                return False
            for arguments in zip(rows, block_ids, overwrite, strict=False):
                request = self._read(*arguments)
                if request is None:
                    return False
                requests.append(request)
        except (OverflowError, TypeError):
            return False
        # A list may have changed while it was read.
        return len(requests) == num_reqs and self._stage(requests, redirect)

    def pack(self, view: memoryview, first: int, /) -> list[int]:
        """Write staged intervals as the apply kernels read them, groups one after the other.

        The layout is a record for each interval, with group, row, start, length and the place of
        its block ids in the view, followed by all block ids.

        Args:
            view: int32 elements.
            first: where to begin, in elements.

        Returns:
            Records per group.

        Raises:
            ValueError: when the view has no room, or is not of int32.
        """
        view, first = _checked_view(view, "first", first)
        records_per_group = list(map(len, self._groups))
        place = first + RECORD_FIELDS * sum(records_per_group)
        records: list[int] = []
        contents = array("i")
        for group, intervals in enumerate(self._groups):
            for row, (start, ids) in intervals.items():
                length = len(ids)
                records += (group, row, start, length, place)
                contents += ids
                place += length
        _check_room(view, place)
        # `array` is the quickest way to convert Python objects to int32 in place.
        packed = array("i", records)
        packed += contents
        view[first:place] = packed
        return records_per_group

    def pack_step(self, view: memoryview, first_record: int, step: int, /) -> None:
        """Write staged intervals as the kernel of a whole step reads them.

        A record per interval has group, row, start, end, value, step and two zeros. The value is
        the block id if there is one, else the place of the ids in the view. The ids follow the
        records. Start, end, value and step are the interval's mark as well: the view begins with
        `[G, max_num_reqs, 4]` marks, and others are left as they are.

        Args:
            view: int32 elements.
            first_record: where the records begin, in elements.
            step: number that distinguishes the marks of this step from older ones.

        Raises:
            ValueError: when the view has no room, or is not of int32, or records are to begin
                among the marks.
        """
        (step,) = array("i", [step])
        view, first_record = _checked_view(view, "first_record", first_record)
        size, num_records = self._max_num_reqs, self.num_records
        num_marks = len(self._groups) * size
        if first_record < MARK_FIELDS * num_marks:
            raise ValueError(
                f"first_record is {first_record}; expected {MARK_FIELDS * num_marks} or more, "
                "after the marks"
            )
        place = first_id = first_record + STEP_RECORD_FIELDS * num_records
        records: list[int] = []
        rows: list[int] = []
        contents = array("i")
        for group, intervals in enumerate(self._groups):
            for row, (start, ids) in intervals.items():
                length = len(ids)
                if length == 1:
                    value = ids[0]
                else:
                    value = place
                    contents += ids
                    place += length
                records += (group, row, start, start + length, value, step, 0, 0)
                rows.append(group * size + row)
        _check_room(view, place)
        packed = array("i", records)
        view[first_record:first_id] = packed
        view[first_id:place] = contents
        if num_records:
            table = np.frombuffer(packed, np.int32).reshape(num_records, STEP_RECORD_FIELDS)
            marks = np.frombuffer(view, np.int32, MARK_FIELDS * num_marks)
            # A mark is part of its record.
            marks.reshape(num_marks, MARK_FIELDS)[rows] = table[:, 2 : 2 + MARK_FIELDS]

    def pack_words(
        self, bitmap: memoryview, payload: memoryview, ids_apart: memoryview | None = None, /
    ) -> tuple[int, int, int, int, int, int] | None:
        """Write staged intervals as words for a launch that carries them.

        See `one_launch_kernels` for the layout.

        Args:
            bitmap: int64, `bitmap_words` for each group: a bit per row that has an interval.
            payload: int64 or int32; intervals, the list of pieces, and ids, if they fit.
            ids_apart: int64 or int32; in place of the payload, for the ids.

        Returns:
            Six numbers: intervals; pieces, of intervals whose number of ids is not one; int64 words
            of intervals and pieces; int64 words of these and the ids; int64 words of ids apart; and
            ids of the longest interval. Nothing but the bitmap is written if a view is too short.
            `None` if words cannot encode the writes: more than 65,535 intervals, an interval that
            begins after that column or is longer, or more ids than their places can count (65,535,
            or four times as many apart).

        Raises:
            ValueError: when the bitmap is too short, or a view has elements of another kind.
        """
        bitmap, payload = _words_of(bitmap, "bitmap"), _words_of(payload, "payload")
        more = payload if ids_apart is None else _words_of(ids_apart, "ids_apart")
        per_group = bitmap_words(self._max_num_reqs)
        if len(bitmap) < per_group * len(self._groups):
            raise ValueError(
                f"bitmap has {len(bitmap)} words; expected {len(self._groups)} groups of "
                f"{per_group}"
            )
        intervals = [
            (group * per_group + row // BITMAP_ROWS, row, start, ids)
            for group, found in enumerate(self._groups)
            for row, (start, ids) in found.items()
        ]
        lengths = [len(ids) for _, _, _, ids in intervals if len(ids) != 1]
        num_pieces = sum(-(-length // PIECE_IDS) for length in lengths)
        num_ids, aligned = sum(lengths), sum(map(_aligned, lengths))
        longest = max((len(ids) for _, _, _, ids in intervals), default=0)
        furthest = max((start for _, _, start, _ in intervals), default=0)
        if max(len(intervals), longest, furthest, aligned // ALIGNED_IDS) > MOST_WORDS:
            return None
        bits = [0] * (per_group * len(self._groups))
        for place, row, _, _ in intervals:
            bits[place] |= 1 << row % BITMAP_ROWS
        before = [0, *accumulate(word.bit_count() for word in bits)]
        words = [
            _signed(number << BITMAP_ROWS | word)
            for number, word in zip(before, bits, strict=False)
        ]
        bitmap[: len(words)] = array("q", words)
        head = len(intervals) + -(-num_pieces // 2)
        size, apart = head + -(-num_ids // 2), aligned // 2
        is_apart = ids_apart is not None
        packed = len(intervals), num_pieces, head, size, apart, longest
        if (head if is_apart else size) > len(payload) or (is_apart and apart > len(more)):
            return packed
        if num_ids > MOST_WORDS and not is_apart:
            return None
        numbers, pieces, several = [0] * len(intervals), array("i"), array("i")
        for place, row, start, ids in intervals:
            below = bits[place] & (1 << row % BITMAP_ROWS) - 1
            number = before[place] + below.bit_count()
            word = row << 48 | start << 32
            if len(ids) == 1:
                numbers[number] = word | ids[0] & 0xFFFFFFFF
                continue
            its_place = len(several) // (ALIGNED_IDS if is_apart else 1)
            numbers[number] = (word | len(ids) << 16 | its_place) - SEVERAL
            pieces.extend(n << 16 | number for n in range(-(-len(ids) // PIECE_IDS)))
            several += ids
            if is_apart:
                several.extend([0] * (_aligned(len(ids)) - len(ids)))
        payload[: len(numbers)] = array("q", numbers)
        payload[len(numbers) : head] = _packed(pieces)
        first = 0 if is_apart else head
        more[first : first + -(-len(several) // 2)] = _packed(several)
        return packed

    def intervals(self) -> list[tuple[int, int, int, list[int]]]:
        """Return group, row, start and ids of each interval, groups one after the other."""
        return [
            (group, row, start, ids.tolist())
            for group, intervals in enumerate(self._groups)
            for row, (start, ids) in intervals.items()
        ]

    def clear(self) -> None:
        """Forget all staged writes."""
        for intervals in self._groups:
            intervals.clear()

    def _read(
        self, row: int, block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> _Request | None:
        """Return a request with a copy of its ids; `None` for a bad row or number of lists.

        Raises:
            OverflowError: for an id that does not fit int32.
            TypeError: for an id that is not an integer, or ids that are not a list.
        """
        if type(row) is not int:
            row = int.__index__(index(row))
        contents = []
        for ids in block_ids:
            # A comprehension takes longer for so few, in Python 3.11.
            contents.append(array("i", ids) if type(ids) is list else _int32_of(ids))  # noqa: PERF401
        if 0 <= row < self._max_num_reqs and len(contents) == len(self._groups):
            return row, contents, bool(overwrite)
        return None

    def _stage(self, requests: Sequence[_Request], redirect: bool) -> bool:
        """Stage requests, or nothing if a row would get too wide; keeps and extends their ids."""
        if redirect:
            requests = [(row, _zeros_for(ids), overwrite) for row, ids, overwrite in requests]
        tables, longest, has_shrunk = self._tables, self._longest, self._has_shrunk
        writes: list[_Write] = []
        for row, contents, overwrite in requests:
            for group, ids in enumerate(contents):
                counts, width, intervals = tables[group]
                before = counts[row]
                end = len(ids) if overwrite else before + len(ids)
                if end > width:
                    # Backwards, since a row may occur twice.
                    for changed, _, place, number, _, _ in reversed(writes):
                        changed[place] = number
                    return False
                counts[row] = end
                if before > end and before >= longest:
                    has_shrunk = True
                if end > longest:
                    longest, has_shrunk = end, False
                writes.append((counts, intervals, row, before, ids, overwrite))
        self._longest, self._has_shrunk = longest, has_shrunk
        for _, intervals, row, start, ids, overwrite in writes:
            if overwrite:
                intervals[row] = (0, ids)
            elif ids:
                if row in intervals:
                    intervals[row][1].extend(ids)
                else:
                    intervals[row] = (start, ids)
        return True


def staged_writes(native: bool) -> type[StagedWrites] | type[staged.StagedWrites]:
    """Return the class of staged writes to use: the one in C if wanted and available."""
    module = load("staged") if native else None
    return StagedWrites if module is None else module.StagedWrites


def _listed(values: Sequence[Any]) -> Sequence[Any]:
    return values if type(values) in (list, tuple) else list(values)


def _zeros_for(contents: list[array[int]]) -> list[array[int]]:
    return [array("i", [NULL_BLOCK_ID]) * len(ids) for ids in contents]


def _int32_of(values: Sequence[int]) -> array[int]:
    # `array` would copy the memory of bytes or other arrays instead of converting values.
    return array("i", _listed(values))


def bitmap_words(max_num_reqs: int) -> int:
    """Return the number of words of a bitmap for the rows of a group."""
    return -(-max_num_reqs // BITMAP_ROWS)


def _aligned(number: int) -> int:
    """Return the number of elements that so many ids occupy in memory."""
    return -(-number // ALIGNED_IDS) * ALIGNED_IDS


def _packed(values: array[int]) -> array[int]:
    """Return int32 elements as words; half of the last may be unused."""
    whole = values + array("i", [0] * (len(values) % 2))
    return array("q", whole.tobytes())


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _words_of(view: Any, name: str) -> memoryview:
    """Return a view of int32 or int64 elements as one of int64, without half a word at its end."""
    its: memoryview = memoryview(view)
    if its.ndim != 1 or its.format not in "iq" or not its.c_contiguous or its.readonly:
        raise ValueError(f"{name} is not a writable, contiguous view of int32 or int64 elements")
    flat = its.cast("B")
    return flat[: len(flat) // 8 * 8].cast("q")


def _checked_view(view: Any, name: str, first: int) -> tuple[memoryview, int]:
    view, first = memoryview(view), index(first)
    if (view.ndim, view.format, view.c_contiguous, view.readonly) != (1, "i", True, False):
        raise ValueError("view is not a writable, contiguous view of int32 elements")
    if first < 0:
        raise ValueError(f"{name} is {first}; expected 0 or more")
    return view, first


def _check_room(view: memoryview, size: int) -> None:
    if size > len(view):
        raise ValueError(f"view has {len(view)} elements; expected {size} or more")
