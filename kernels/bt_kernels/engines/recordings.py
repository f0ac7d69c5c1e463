"""The file format of recorded calls, and its reader; neither needs torch or Triton.

A file holds the calls that an engine makes on one set of block tables: rows, block ids, lengths and
sizes, no tokens. The first line is JSON, see `Header`. Then there are frames:

    uint32  length of the payload in bytes, a multiple of 4
    uint32  CRC-32 of the payload
    int32   n, the number of integers that describe operations
    int32   [n]: for each operation its code, then its fields
    int32   the arrays of the operations, in their order

All numbers are little-endian. `Frame` has one method per operation and documents its fields by
writing them. A file begins with empty tables, unless its first operation is a `Snapshot`: so files
that replaced full ones can be replayed alone. `docs/vllm-plugin.md` describes how engines write it.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

FORMAT, VERSION = "bt-kernels calls", 1
RECORDING, REPRO = "recording", "repro"

Ints: TypeAlias = "npt.NDArray[np.int32]"
Places: TypeAlias = "npt.NDArray[np.int64]"

_INT32 = np.dtype("<i4")
_FRAME = struct.Struct("<2I")
_MAX_HEADER = 2**20  # bytes; a first line that is longer is none of ours

_APPEND, _OVERWRITE, _APPLY, _GATHER, _SLOTS, _DUMMY_TABLES, _DUMMY_SLOTS = range(1, 8)
_REDIRECT, _BEGIN, _END, _SNAPSHOT, _DIFFERENCE = range(8, 13)

# Which arrays follow, and whether arguments were given
_ROWS, _STARTS, _FIRSTS, _POSITIONS, _COMPUTED, _MASKS = (1 << bit for bit in range(6))
_SAME_ROWS, _COMPUTED_FIRSTS = 64, 128  # as in the last gather of the frame


class RecordingError(ValueError):
    """A file is none of this format, or damaged; the message names file, offset and expectation."""


@dataclass(frozen=True)
class Header:
    """The first line of a file.

    Args:
        kind: `"recording"`, or `"repro"` for a difference that shadow mode found.
        vllm: the release of vLLM.
        device: the type of the device of the tables, as in `torch.device.type`.
        device_name: the name of the GPU, or an empty string.
        block_sizes, max_num_reqs, max_num_batched_tokens, max_num_blocks_per_group, cp_size,
            cp_rank, cp_interleave, slot_mapping_enabled, dcp_sharded, sliding_window_reach: the
            arguments of the constructor of vLLM's `BlockTables`; `None` where it got none.
    """

    kind: str
    vllm: str
    device: str
    device_name: str
    block_sizes: tuple[int, ...]
    max_num_reqs: int
    max_num_batched_tokens: int
    max_num_blocks_per_group: tuple[int, ...]
    cp_size: int = 1
    cp_rank: int = 0
    cp_interleave: int = 1
    slot_mapping_enabled: tuple[bool, ...] | None = None
    dcp_sharded: tuple[bool, ...] | None = None
    sliding_window_reach: tuple[int, ...] | None = None

    @property
    def num_groups(self) -> int:
        """The number of KV cache groups."""
        return len(self.block_sizes)

    def to_line(self) -> bytes:
        """Return the first line of a file."""
        first = {"format": FORMAT, "version": VERSION}
        return json.dumps(first | asdict(self)).encode() + b"\n"


@dataclass(frozen=True, eq=False)
class Append:
    """`append_block_ids`: `ids` has an int32 array per group."""

    row: int
    ids: tuple[Ints, ...]
    overwrite: bool


@dataclass(frozen=True)
class Apply:
    """`apply_staged_writes`."""


@dataclass(frozen=True, eq=False)
class Gather:
    """`gather_block_tables`.

    Args:
        num_reqs: R, the number of requests.
        num_reqs_padded: rows of the result.
        rows: `idx_mapping`, `[R]`; `None` where it was on the GPU alone.
        masks: whether `num_computed_tokens` was given.
        computed: `num_computed_tokens` of these rows, `[R]`; `None` where it was not given, or was
            on the GPU alone. With asynchronous scheduling and drafts it is the scheduler's upper
            bound, since rejected drafts are known on the GPU alone.
        out_rows: rows of `out`; `None` without `out`.
    """

    num_reqs: int
    num_reqs_padded: int
    rows: Ints | None
    masks: bool
    computed: Ints | None
    out_rows: int | None


@dataclass(frozen=True, eq=False)
class Slots:
    """`compute_slot_mappings`.

    Args:
        num_reqs: R, the number of requests.
        num_tokens_padded: columns of the result.
        rows: `idx_mapping`, `[R]`; `None` where it was on the GPU alone.
        starts: `query_start_loc`, `[R + 1]`; `None` likewise.
        positions: int64, `[starts[R]]`; `None` likewise. From `num_computed_tokens` as in `Gather`
            where the runner derives them from it.
        out_columns: columns of `out`; `None` without `out`.
    """

    num_reqs: int
    num_tokens_padded: int
    rows: Ints | None
    starts: Ints | None
    positions: Places | None
    out_columns: int | None


@dataclass(frozen=True)
class DummyTables:
    """`get_dummy_block_tables`."""

    num_reqs: int


@dataclass(frozen=True)
class DummySlots:
    """`get_dummy_slot_mappings`."""

    num_tokens: int


@dataclass(frozen=True)
class Redirect:
    """`redirect_writes_to_null_block` was set."""

    redirects: bool


@dataclass(frozen=True)
class BeginStep:
    """The runner's `execute_model` began."""


@dataclass(frozen=True)
class EndStep:
    """The runner's `execute_model` ended."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Contents at this moment, when nothing was staged.

    Args:
        num_blocks: `[G, max_num_reqs]` int32.
        tables: per group, the source table, `[max_num_reqs, width]` int32.
        inputs: per group, the input table, of the same shape; empty where it was not copied.
        num_dirty_rows: rows that the last gather without `out` filled.
    """

    num_blocks: Ints
    tables: tuple[Ints, ...]
    inputs: tuple[Ints, ...] = ()
    num_dirty_rows: int = 0


@dataclass(frozen=True)
class Difference:
    """The first place at which ours differed from vLLM's, after the operation before.

    Args:
        step: the number of the step, from 1.
        after: the method.
        buffer: its name, such as `slot_mappings` or `block_tables[0].gpu`.
        place: the index in it.
        ours, theirs: both values.
    """

    step: int
    after: str
    buffer: str
    place: tuple[int, ...]
    ours: int
    theirs: int


Operation: TypeAlias = (
    Append
    | Apply
    | Gather
    | Slots
    | DummyTables
    | DummySlots
    | Redirect
    | BeginStep
    | EndStep
    | Snapshot
    | Difference
)


class Frame:
    """Operations that are collected, and encoded together.

    Arrays are kept by reference until `take`, and may be of any integer dtype.

    Attributes:
        staged: whether there was an append after the last apply, in this frame or before.
    """

    def __init__(self) -> None:
        self.staged = False
        self._ints: list[int] = []
        self._arrays: list[Any] = []
        self._rows: Any = None
        self._computed: Any = None

    def __len__(self) -> int:
        """Return the number of integers that describe the operations, without their arrays."""
        return len(self._ints)

    @property
    def lists(self) -> tuple[list[int], list[Any]]:
        """Return the integers and the arrays, to which others may add."""
        return self._ints, self._arrays

    def append(self, row: int, ids: Sequence[Sequence[int]], overwrite: bool) -> None:
        """Add `append_block_ids`, with one sequence of ids per group."""
        self.staged, ints = True, self._ints
        ints += (_OVERWRITE if overwrite else _APPEND, row)
        for group in ids:
            ints.append(len(group))
            ints += group

    def apply(self) -> None:
        """Add `apply_staged_writes`."""
        self.staged = False
        self._ints.append(_APPLY)

    def gather(
        self,
        num_reqs: int,
        num_reqs_padded: int,
        rows: npt.NDArray[Any] | None,
        masks: bool,
        computed: npt.NDArray[Any] | None,
        out_rows: int | None,
    ) -> None:
        """Add `gather_block_tables`, with the fields of `Gather`."""
        flags = _MASKS if masks else 0
        if rows is not None:
            flags |= _ROWS
            self._arrays.append(rows)
        if computed is not None:
            flags |= _COMPUTED
            self._arrays.append(computed)
        self._rows, self._computed = rows, computed
        out = -1 if out_rows is None else out_rows
        self._ints.extend((_GATHER, flags, num_reqs, num_reqs_padded, out))

    def slots(
        self,
        num_reqs: int,
        num_tokens_padded: int,
        rows: npt.NDArray[Any] | None,
        starts: npt.NDArray[Any] | None,
        *,
        firsts: npt.NDArray[Any] | None = None,
        positions: npt.NDArray[Any] | None = None,
        out_columns: int | None = None,
    ) -> None:
        """Add `compute_slot_mappings`, with the fields of `Slots`.

        Positions that are consecutive in each request may be given as `firsts`, `[R]`.
        """
        flags = 0
        if rows is not None:
            if rows is self._rows:
                flags = _SAME_ROWS
            else:
                flags = _ROWS
                self._arrays.append(rows)
        if starts is not None:
            flags |= _STARTS
            self._arrays.append(starts)
        if firsts is not None:
            if firsts is self._computed:
                flags |= _COMPUTED_FIRSTS
            else:
                flags |= _FIRSTS
                self._arrays.append(firsts)
        elif positions is not None:
            flags |= _POSITIONS
            self._arrays.append(positions)
        out = -1 if out_columns is None else out_columns
        self._ints.extend((_SLOTS, flags, num_reqs, num_tokens_padded, out))

    def dummy_tables(self, num_reqs: int) -> None:
        """Add `get_dummy_block_tables`."""
        self._ints.extend((_DUMMY_TABLES, num_reqs))

    def dummy_slots(self, num_tokens: int) -> None:
        """Add `get_dummy_slot_mappings`."""
        self._ints.extend((_DUMMY_SLOTS, num_tokens))

    def redirect(self, redirects: bool) -> None:
        """Add a change of `redirect_writes_to_null_block`."""
        self._ints.extend((_REDIRECT, redirects))

    def begin_step(self) -> None:
        """Add the begin of `execute_model`."""
        self._ints.append(_BEGIN)

    def end_step(self) -> None:
        """Add the end of `execute_model`."""
        self._ints.append(_END)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Add contents, which are compressed."""
        arrays = (snapshot.num_blocks, *snapshot.tables, *snapshot.inputs)
        packer = zlib.compressobj(level=1)
        packed = [packer.compress(np.ascontiguousarray(array, _INT32).data) for array in arrays]
        text = b"".join((*packed, packer.flush()))
        self._ints.extend((_SNAPSHOT, len(snapshot.inputs), snapshot.num_dirty_rows, len(text)))
        self._arrays.append(_padded(text))

    def difference(self, difference: Difference) -> None:
        """Add a difference, as JSON."""
        text = json.dumps(asdict(difference)).encode()
        self._ints.extend((_DIFFERENCE, len(text)))
        self._arrays.append(_padded(text))

    def take(self) -> bytearray:
        """Return all operations since the last call as a frame; empty if there are none.

        Raises:
            struct.error, TypeError: when an integer is none of int32.
        """
        ints, arrays = self._ints.copy(), self._arrays.copy()
        if not ints:
            return bytearray()
        # The lists stay the same: notes in C go there, too.
        self._ints.clear()
        self._arrays.clear()
        self._rows = self._computed = None
        count = len(ints)
        frame = bytearray().join(
            (
                bytes(_FRAME.size),
                struct.pack(f"<{count + 1}i", count, *ints),
                *[array.astype(_INT32, copy=False) for array in arrays],
            )
        )
        payload = memoryview(frame)[_FRAME.size :]
        _FRAME.pack_into(frame, 0, len(payload), zlib.crc32(payload))
        return frame


def _padded(text: bytes) -> Ints:
    return np.frombuffer(text + b"\0" * (-len(text) % 4), _INT32)


class Recording:
    """A file of recorded calls; the header is read at once, operations are read as they are asked.

    Attributes:
        header: the first line.
        note: after `operations` ended, a sentence if the last frame is incomplete, or `None`.

    Args:
        path: the file.

    Raises:
        RecordingError: when the file is none of this format, or of another version.
        OSError: when it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.note: str | None = None
        with self.path.open("rb") as file:
            self.header, self._begin = self._read_header(file)

    def operations(self) -> Iterator[Operation]:
        """Read the operations in their order.

        A last frame that is incomplete, as a killed process leaves it, is left out, and noted.

        Raises:
            RecordingError: when a frame is damaged.
        """
        self.note = None
        offset = self._begin
        with self.path.open("rb") as file:
            file.seek(offset)
            while head := file.read(_FRAME.size):
                if len(head) < _FRAME.size:
                    self._miss(offset, len(head), _FRAME.size)
                    return
                length, checksum = _FRAME.unpack(head)
                if length % 4 or not length:
                    raise self._damaged(
                        offset, f"the length of a frame is {length}; expected a multiple of 4"
                    )
                payload = file.read(length)
                if len(payload) < length:
                    self._miss(offset, len(payload), length)
                    return
                if zlib.crc32(payload) != checksum:
                    raise self._damaged(
                        offset,
                        f"the checksum of a frame is {zlib.crc32(payload):#010x}; expected "
                        f"{checksum:#010x}",
                    )
                try:
                    operations = list(_Decoder(self.header, payload).operations())
                except (IndexError, ValueError, KeyError, TypeError, zlib.error) as error:
                    raise self._damaged(offset, f"a frame has unknown content ({error})") from error
                yield from operations
                offset += _FRAME.size + length

    def _read_header(self, file: BinaryIO) -> tuple[Header, int]:
        line = file.readline(_MAX_HEADER)
        expected = f"expected a first line of JSON with {FORMAT!r}, version {VERSION}"
        advice = "Record it with BT_KERNELS_RECORD, as docs/vllm-plugin.md describes"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise RecordingError(f"{self.path}: byte 0: no recorded calls; {expected}. {advice}")
        version = found.pop("version", None)
        if version != VERSION:
            raise RecordingError(
                f"{self.path}: byte 0: version {version!r} of the format; {expected}. Read it with "
                "the release of bt-kernels that wrote it"
            )
        try:
            return _header(found), len(line)
        except ValueError as error:
            raise RecordingError(
                f"{self.path}: byte 0: the first line is damaged ({error}). {advice}"
            ) from error

    def _miss(self, offset: int, found: int, expected: int) -> None:
        self.note = (
            f"{self.path}: byte {offset}: the last frame is incomplete ({found:,} of {expected:,} "
            "bytes), as a killed process leaves it; it was read up to there"
        )

    def _damaged(self, offset: int, finding: str) -> RecordingError:
        return RecordingError(
            f"{self.path}: byte {offset}: {finding}. The file is damaged; copy or record it anew"
        )


_SIZES = ("max_num_reqs", "max_num_batched_tokens", "cp_size", "cp_rank", "cp_interleave")
_TEXTS = ("kind", "vllm", "device", "device_name")


def _header(found: dict[str, Any]) -> Header:
    """Build the header from JSON.

    Raises:
        ValueError: when a field is missing, unknown, or not of its type.
    """
    unknown = found.keys() - {field.name for field in fields(Header)}
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(map(repr, unknown)))}")
    for field in fields(Header):
        value = found.get(field.name)
        if isinstance(value, list):
            found[field.name] = value = tuple(value)
        if field.name in _TEXTS:
            expected = "text without control characters"  # it is printed
            valid = isinstance(value, str) and value.isprintable()
        elif field.name in _SIZES:
            expected = "a whole number of 0 or more"
            valid = type(value) is int and value >= 0
        else:
            expected = "a whole number of 0 or more for each of block_sizes"
            optional = field.name not in ("block_sizes", "max_num_blocks_per_group")
            valid = (value is None and optional) or (
                isinstance(value, tuple)
                and len(value) == len(found["block_sizes"])
                and all(isinstance(entry, int) and entry >= 0 for entry in value)
            )
        if not valid:
            raise ValueError(f"{field.name} is {value!r}; expected {expected}")
    return Header(**found)


class _Decoder:
    """Reads the operations of one frame."""

    def __init__(self, header: Header, payload: bytes) -> None:
        numbers = np.frombuffer(payload, _INT32)
        count = int(numbers[0])
        if not 0 <= count < len(numbers):
            raise ValueError(f"{count} integers in a frame of {len(numbers)}")
        self._header = header
        self._ints = numbers[1 : count + 1]
        self._data = numbers[count + 1 :]
        self._at = self._data_at = 0
        self._rows: Ints | None = None
        self._computed: Ints | None = None

    def operations(self) -> Iterator[Operation]:
        while self._at < len(self._ints):
            code = self._int()
            yield getattr(self, _READERS[code])()
        if self._data_at != len(self._data):
            raise ValueError(f"{len(self._data) - self._data_at} numbers too many")

    def _int(self) -> int:
        self._at += 1
        return int(self._ints[self._at - 1])

    def _optional(self) -> int | None:
        value = self._int()
        return None if value < 0 else value

    def _take_ints(self, count: int) -> Ints:
        found = self._ints[self._at : self._at + count]
        if count < 0 or len(found) < count:
            raise ValueError(f"{count} integers expected, {len(found)} left")
        self._at += count
        return found

    def _take(self, count: int) -> Ints:
        found = self._data[self._data_at : self._data_at + count]
        if count < 0 or len(found) < count:
            raise ValueError(f"{count} numbers expected, {len(found)} left")
        self._data_at += count
        return found

    def _text(self, length: int) -> bytes:
        return self._take(-(-length // 4)).tobytes()[:length]

    def _append(self, *, overwrite: bool = False) -> Append:
        row = self._int()
        ids = [self._take_ints(self._int()) for _ in range(self._header.num_groups)]
        return Append(row, tuple(ids), overwrite)

    def _overwrite(self) -> Append:
        return self._append(overwrite=True)

    def _apply(self) -> Apply:
        return Apply()

    def _gather(self) -> Gather:
        flags, num_reqs, padded, out = self._int(), self._int(), self._int(), self._optional()
        self._rows = self._take(num_reqs) if flags & _ROWS else None
        self._computed = self._take(num_reqs) if flags & _COMPUTED else None
        masks = bool(flags & _MASKS)
        return Gather(num_reqs, padded, self._rows, masks, self._computed, out)

    def _slots(self) -> Slots:
        flags, num_reqs, padded, out = self._int(), self._int(), self._int(), self._optional()
        rows = self._take(num_reqs) if flags & _ROWS else None
        if flags & _SAME_ROWS:
            rows = self._rows
        starts = self._take(num_reqs + 1) if flags & _STARTS else None
        firsts = self._take(num_reqs) if flags & _FIRSTS else None
        if flags & _COMPUTED_FIRSTS:
            firsts = self._computed
        positions: Places | None = None
        if starts is not None and firsts is not None:
            positions = _consecutive(starts, firsts)
        elif starts is not None and flags & _POSITIONS:
            positions = self._take(int(starts[-1])).astype(np.int64)
        return Slots(num_reqs, padded, rows, starts, positions, out)

    def _dummy_tables(self) -> DummyTables:
        return DummyTables(self._int())

    def _dummy_slots(self) -> DummySlots:
        return DummySlots(self._int())

    def _redirect(self) -> Redirect:
        return Redirect(bool(self._int()))

    def _begin(self) -> BeginStep:
        return BeginStep()

    def _end(self) -> EndStep:
        return EndStep()

    def _snapshot(self) -> Snapshot:
        num_inputs, dirty, length = self._int(), self._int(), self._int()
        header = self._header
        numbers = np.frombuffer(zlib.decompress(self._text(length)), _INT32)
        shapes = [(header.max_num_reqs, width) for width in header.max_num_blocks_per_group]
        arrays, at = [], 0
        for shape in ((header.num_groups, header.max_num_reqs), *shapes, *shapes[:num_inputs]):
            size = shape[0] * shape[1]
            arrays.append(numbers[at : at + size].reshape(shape))
            at += size
        if at != len(numbers):
            raise ValueError(f"a snapshot of {len(numbers)} numbers; expected {at}")
        groups = header.num_groups + 1
        return Snapshot(arrays[0], tuple(arrays[1:groups]), tuple(arrays[groups:]), dirty)

    def _difference(self) -> Difference:
        found = json.loads(self._text(self._int()))
        return Difference(**found | {"place": tuple(found["place"])})


_READERS = {
    _APPEND: "_append",
    _OVERWRITE: "_overwrite",
    _APPLY: "_apply",
    _GATHER: "_gather",
    _SLOTS: "_slots",
    _DUMMY_TABLES: "_dummy_tables",
    _DUMMY_SLOTS: "_dummy_slots",
    _REDIRECT: "_redirect",
    _BEGIN: "_begin",
    _END: "_end",
    _SNAPSHOT: "_snapshot",
    _DIFFERENCE: "_difference",
}


def _consecutive(starts: Ints, firsts: Ints) -> Places:
    """Return the positions of requests whose tokens are consecutive."""
    lengths = np.diff(starts)
    offsets = firsts.astype(np.int64) - starts[:-1]
    return np.repeat(offsets, lengths) + np.arange(int(starts[-1]))
