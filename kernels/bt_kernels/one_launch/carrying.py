"""Launches that carry the staged writes: as parameters if they fit, else in pinned memory."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton

from bt_kernels import launches
from bt_kernels.device_code import (
    CARRIED,
    LISTED,
    NOTHING,
    PARTED,
    Features,
    one_launch_carrying_kernel,
)
from bt_kernels.one_launch.shapes import (
    FEW,
    MAX_BITMAP,
    MOST_CARRIED,
    PAYLOADS,
    PAYLOADS_INTERPRETED,
    SHAPES,
    many_rows,
    pads_for,
)
from bt_kernels.staging import PIECE_IDS, bitmap_words

if TYPE_CHECKING:
    from bt_kernels.launches import Place
    from bt_kernels.native.launcher import Launch, Step
    from bt_kernels.one_launch.shapes import Cut, Shape
    from bt_kernels.one_launch.steps import Batch, Options, Steps

SINGLE_IDS, FEW_IDS, MANY_IDS, FEW_APART, MANY_APART, IN_MEMORY = KINDS = range(len(PAYLOADS))
"""The data that a launch carries, in the order of `Payloads`.

Intervals of one id each; few or many intervals of any length with their ids; few or many without
their ids; or none.
"""

GATHER, SLOTS, GATHER_SLOTS = PARTS = range(len(PAYLOADS), len(PAYLOADS) + 3)
"""The launches of parts of a step, which see only what was applied, and carry nothing."""

IN_HOST_MEMORY = (FEW_APART, MANY_APART, IN_MEMORY)
"""Kinds of which a part is in a buffer of the host."""

WHERE = {
    SINGLE_IDS: CARRIED.value,
    FEW_IDS: CARRIED.value,
    MANY_IDS: CARRIED.value,
    FEW_APART: PARTED.value,
    MANY_APART: PARTED.value,
    IN_MEMORY: LISTED.value,
    **dict.fromkeys(PARTS, NOTHING.value),
}
"""Where kernels find what is staged, by kind."""

NUM_LEADING = 18
"""Arguments of the kernel before the words."""

_WIDE = 1 << 40  # makes Triton treat an address as an int64
_ODD = (1 << 62) + 1  # and a word likewise, not assumed to be a multiple of 16


class Binary(NamedTuple):
    """The properties that select a binary of the kernel, for one layout."""

    shape: Shape
    kind: int
    options: bool
    aligned: bool


class CarryingLaunch:
    """Launches of steps that carry their writes.

    The driver copies parameters during the call, so nothing has to be kept for the device. Triton's
    own call gets slower with the number of parameters, and recompiles for some values. So these
    launches use the driver directly, whatever the launch path.

    Args:
        tables: tables of the steps, with the compiled module unless kernels are interpreted.
    """

    @staticmethod
    def is_possible(tables: Steps) -> bool:
        """Return whether the steps of tables can be launched this way."""
        layout = tables.layout
        size = layout.num_groups * (bitmap_words(layout.max_num_reqs) + 1)
        return size <= MAX_BITMAP and (tables.place.launcher is not None or not tables._on_gpu)

    def __init__(self, tables: Steps) -> None:
        layout, self._place = tables.layout, tables.place
        self._groups, self._max_num_reqs = layout.num_groups, layout.max_num_reqs
        self._per_group = bitmap_words(layout.max_num_reqs)
        self._sharded = tables.sharded
        most_pieces = sum(-(-width // PIECE_IDS) for width in layout.widths)
        self._most_listed = layout.max_num_reqs * (layout.num_groups + -(-most_pieces // 2))
        self.payloads = PAYLOADS if launches.COMPILES else PAYLOADS_INTERPRETED
        num_words = layout.num_groups * self._per_group
        self.first = num_words + layout.num_groups  # where the payload begins
        memory = array("q", bytes(8 * (self.first + max(self.payloads))))
        self.words = memoryview(memory)
        self.bitmap = self.words[:num_words]
        self._targets = self.words[num_words : self.first]
        self.payload = self.words[self.first :]
        self._quick: Step | None = None
        self._kept: dict[Binary, Launch | None] = {}
        # Any values of the kernel's types.
        self._int64 = tables.descriptors
        self._int32 = tables.descriptors.view(torch.int32)
        if self._place.launcher is None:
            self._in_memory = torch.frombuffer(memory, dtype=torch.int64)
        else:
            self._current_stream = triton.runtime.driver.active.get_current_stream

    def run(self, tables: Steps, batch: Batch, options: Options) -> bool:
        """Launch a whole step with the staged writes; return whether that was possible."""
        staged, ring = tables._staged, tables._ring
        packed = staged.pack_words(self.bitmap, self.payload)
        if packed is None:
            return False
        num_words, num_pieces, head, size, apart, longest = packed
        kind = self.kind_of(num_pieces, head, size, longest)
        has_options = self._sharded or bool(options)
        aligned = tables.rows_are_aligned and _are_aligned(options.tables or ())
        cut = tables.cut_of(batch)
        binary = Binary(cut.shape, kind, has_options, aligned)
        if self._launch_of(binary) is None:
            return False
        staging = None
        if kind in IN_HOST_MEMORY:
            first = -(-head // 2) * 4 if kind == IN_MEMORY else 0  # a multiple of 16 bytes
            # To advance runs other code, such as the garbage collector's.
            view = ring.advance(first + 2 * apart)
            payload = view[:first] if kind == IN_MEMORY else self.payload
            if staged.pack_words(self.bitmap, payload, view[first:]) != packed:
                raise RuntimeError("what is staged has changed during the step")
            staging = ring.current
        self._run(tables, binary, batch, options, cut, (num_words, num_pieces), staging)
        if staging is not None:
            ring.note_reader()
        return True

    def run_part(self, tables: Steps, batch: Batch, options: Options) -> bool:
        """Launch gather, slots or both, without staged writes; return whether that was possible."""
        kind = (GATHER_SLOTS if batch.maps else GATHER) if batch.gathers else SLOTS
        aligned = tables.rows_are_aligned and _are_aligned(options.tables or ())
        cut = tables.cut_of(batch)
        binary = Binary(cut.shape, kind, self._sharded or bool(options), aligned)
        captured = _captured(binary)
        if self._place.is_capturing():
            binary = captured
        elif binary not in self._kept:
            self._launch_of(captured)  # which could not be loaded during a capture
        if self._launch_of(binary) is None:
            return False
        self._run(tables, binary, batch, options, cut, (0, 0), None)
        return True

    def _run(
        self,
        tables: Steps,
        binary: Binary,
        batch: Batch,
        options: Options,
        cut: Cut,
        written: tuple[int, int],
        staging: torch.Tensor | None,
    ) -> None:
        """Launch a binary.

        Args:
            tables: the tables of the step.
            binary: one that is loaded.
            batch: the batch, and the parts to do.
            options: the options of the step.
            cut: the division of the batch into programs.
            written: the numbers of carried intervals, and of pieces of these.
            staging: pinned memory that is read; `None`: none.
        """
        slots = tables.slot_mappings if options.slots is None else options.slots
        num_pads = pads_for(slots.shape[1]) if batch.maps else 0
        if self._place.launcher is None:
            self._addressed = options  # shows whose memory it is that kernels have addresses of
        computed, slots_out, stride = options.addresses()
        for group in range(self._groups):
            self._targets[group] = options.tables[group].data_ptr() if options.tables else 0
        num_words, num_pieces = written
        writers = -(-num_words // cut.shape.sizes.words) + num_pieces
        grid = (writers + self._groups * (cut.num_programs + num_pads), 1, 1)
        arguments = (
            *(self._int64, batch.idx_mapping, batch.query_start_loc, batch.positions),
            *(computed, slots_out, stride, slots.shape[1], batch.idx_mapping.itemsize // 4),
            *(batch.num_reqs, batch.num_rows, num_words, num_pieces, *cut.numbers, num_pads),
            self._int64 if staging is None else staging,
        )
        self._launch(binary, grid, arguments)

    def kind_of(self, num_pieces: int, head: int, size: int, longest: int) -> int:
        """Return the one of `KINDS` that suits staged writes, by the numbers of `pack_words`."""
        room = self.payloads
        if size <= room.single_ids and not num_pieces:
            return SINGLE_IDS
        if size <= room.many_ids and longest <= MOST_CARRIED:
            return FEW_IDS if size <= room.few_ids else MANY_IDS
        if head <= room.few_apart:
            return FEW_APART
        return MANY_APART if head <= room.many_apart else IN_MEMORY

    def binaries(self, *, aligned: bool) -> list[Binary]:
        """Return all binaries that steps of the layout can need.

        Args:
            aligned: whether the rows of the tables are aligned; a caller's tables may not be.
        """
        num_rows = self._groups * self._max_num_reqs
        shapes = SHAPES if num_rows > many_rows() else (FEW,)
        beyond = [room < self._most_listed for room in self.payloads[FEW_APART:]]
        kinds = KINDS[: FEW_APART + 1 + beyond[:-1].count(True)]
        ways = [(True, False), (True, aligned)] if aligned else [(True, False)]
        if not self._sharded:
            ways.append((False, aligned))
        every = product(shapes, (*kinds, *PARTS), ways)
        eager = [Binary(shape, kind, *way) for shape, kind, way in every]
        captured = [_captured(binary) for binary in eager if binary.kind in PARTS]
        return list(dict.fromkeys([*eager, *captured]))

    def load(self, binary: Binary) -> None:
        """Compile and load a binary, unless that was done."""
        if self._place.launcher is None and launches.COMPILES:
            launched = one_launch_carrying_kernel, (0, 1, 1), *self._to_load(binary)
            self._place.run(launches.launch_jit, *launched)
        else:
            self._launch_of(binary)

    def attach(self, quick: Step | None) -> None:
        """Add all kernels that are loaded now or later to a `launcher.Step`."""
        self._quick = quick
        for binary, launch in self._kept.items():
            self._add(binary, launch)

    def _add(self, binary: Binary, launch: Launch | None) -> None:
        # The code in C passes on the address of host memory.
        is_read = self._place.pinned or binary.kind not in IN_HOST_MEMORY
        if launch is not None and self._quick is not None and is_read:
            self._quick.add(SHAPES.index(binary.shape), *binary[1:], launch)

    def _launch_of(self, binary: Binary) -> Callable[..., None] | None:
        """Return the launch of a binary, or `None` if the driver cannot do it."""
        if self._place.launcher is None:
            return self._interpret
        if binary not in self._kept:
            launch = self._load(binary)
            if launch is None and self._place.is_capturing():
                return None  # outside of the capture it may load
            self._kept[binary] = launch
            self._add(binary, launch)
        return self._kept[binary]

    def _interpret(self, *_arguments: Any) -> None:
        raise AssertionError("interpreted kernels have no launch of their own")

    def _launch(self, binary: Binary, grid: launches.Grid, arguments: tuple[Any, ...]) -> None:
        if self._place.launcher is None and launches.COMPILES:
            # In a process that compiles ahead, and runs nothing.
            launches.launch_jit(one_launch_carrying_kernel, grid, *self._to_load(binary))
            return
        if self._place.launcher is None:
            self._place.python_launches += 1
            descriptors, mapping, *others, staging = arguments
            size = staging.numel() // 2 * 2
            # A single element may have any stride.
            mapping = mapping.as_strided(mapping.shape, (1,))
            first, past_last = self._words_of(binary.kind)
            one_launch_carrying_kernel[grid](
                *(descriptors, mapping.view(torch.int32), *others),
                *(staging.view(-1)[:size].view(torch.int64), self._in_memory[first:past_last]),
                *self._constants_of(binary),
            )
            return
        launch = self._kept[binary]
        assert launch is not None
        words = self.words[slice(*self._words_of(binary.kind))]
        launch(self._current_stream(self._place.index), grid, arguments, words)

    def _words_of(self, kind: int) -> tuple[int, int]:
        """Return the range of words that are parameters: of a part, only the callers' tables."""
        if kind in PARTS:
            return self.first - self._groups, self.first
        return 0, self.first + self.payloads[kind]

    def _num_words(self, kind: int) -> int:
        """Return the number of words that are parameters."""
        first, past_last = self._words_of(kind)
        return past_last - first

    def _constants_of(self, binary: Binary) -> tuple[Any, ...]:
        is_part = binary.kind in PARTS
        features = Features(
            where=WHERE[binary.kind],
            gathers=binary.kind != SLOTS,
            maps=binary.kind != GATHER,
            ids=not is_part and binary.kind != SINGLE_IDS,
            indexed=launches.COMPILES,
            # Of no use to a part, so layouts share its binaries.
            groups=0 if is_part else self._groups,
            bitmap=0 if is_part else self._per_group,
            payload=0 if is_part else self.first,
            options=binary.options,
            sharded=self._sharded,
            aligned=binary.aligned,
        )
        return binary.shape.sizes, features

    def _to_load(self, binary: Binary) -> tuple[Any, ...]:
        """Return the arguments of `launch_jit` after kernel and grid that load a binary."""
        arguments = arguments_to_load(self._int64, self._int32, self._num_words(binary.kind))
        return arguments, self._constants_of(binary), (), binary.shape.num_warps

    def _load(self, binary: Binary) -> Launch | None:
        return load_carrying(
            self._place, self._to_load(binary), self._num_words(binary.kind), "writes"
        )


def arguments_to_load(int64: torch.Tensor, int32: torch.Tensor, num_words: int) -> tuple[Any, ...]:
    """Return arguments of the kernel that have the types of any launch with so many words."""
    return (
        *(int64, int32, int32, int64, _WIDE, _WIDE, _WIDE),
        *((1,) * 10),
        *(int64, (_ODD,) * num_words),
    )


def load_carrying(
    place: Place, to_load: tuple[Any, ...], num_words: int, cargo: str
) -> Launch | None:
    """Compile and load a binary of the kernel; `None`, with a warning, if launches cannot carry.

    Args:
        place: the device.
        to_load: arguments of `launch_jit` after kernel and grid.
        num_words: words that are parameters.
        cargo: what launches carry, for the warning.
    """
    # An empty grid launches nothing.
    launched = one_launch_carrying_kernel, (0, 1, 1), *to_load
    try:
        handle = place.run(launches.launch_jit, *launched)
        launch = launches.direct_launch(place, handle, NUM_LEADING + num_words)
    except Exception as error:
        # The kernel relies on how Triton names and packs parameters now. Steps work without it.
        warnings.warn(f"launches cannot carry {cargo} as parameters: {error}", stacklevel=3)
        return None
    # The kernel finds a word by its distance from the first.
    if launch is None or launch.side_by_side < num_words:
        why = "only Triton's launcher can" if launch is None else "they do not lie side by side"
        warnings.warn(f"launches cannot carry {cargo} as parameters: {why}", stacklevel=3)
        return None
    return launch


def _captured(binary: Binary) -> Binary:
    """Return the binary of a part in a graph: its tables may be replaced by ones not aligned."""
    return binary if binary.kind == SLOTS else binary._replace(aligned=False)


def _are_aligned(tables: Sequence[torch.Tensor]) -> bool:
    return all(table.data_ptr() % launches.ALIGNMENT == 0 for table in tables)


def rows_are_aligned(tables: Sequence[torch.Tensor]) -> bool:
    """Return whether each row of int32 tables begins at a multiple of 16 bytes."""
    return _are_aligned(tables) and all(
        table.shape[1] * table.itemsize % launches.ALIGNMENT == 0 for table in tables
    )
