"""Launches that carry a batch: its requests are parameters, and staged writes follow them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton

from bt_kernels import launches
from bt_kernels.device_code import (
    INPUT_FIELDS,
    LOGIT_BITS,
    NOTHING,
    PREFILL_LEN,
    ROW_BITS,
    Features,
    one_launch_carrying_kernel,
)
from bt_kernels.one_launch.carrying import (
    IN_HOST_MEMORY,
    IN_MEMORY,
    KINDS,
    PARTS,
    SINGLE_IDS,
    WHERE,
    arguments_to_load,
    load_carrying,
)
from bt_kernels.one_launch.native_step import make_step
from bt_kernels.one_launch.shapes import FEW, SHAPES, pads_for
from bt_kernels.staging import bitmap_words

if TYPE_CHECKING:
    from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
    from bt_kernels.batch_inputs.layout import InputLayout
    from bt_kernels.native import Launcher
    from bt_kernels.native.launcher import Device, Launch, Step
    from bt_kernels.one_launch import OneLaunch
    from bt_kernels.one_launch.shapes import Shape
    from bt_kernels.one_launch.steps import Batch

MOST_REQUESTS = 1024
"""The most requests of a batch whose inputs are prepared by a launch that carries it."""

ROOMS = (128, MOST_REQUESTS)
"""Requests that a binary has parameters for; each parameter makes a launch 2 to 4 ns longer."""

ROOMS_INTERPRETED = (3, MOST_REQUESTS)  # for a few requests to exercise both

MOST_TOKENS = 1 << LOGIT_BITS.value
"""Tokens of a step are below this number, for a request to fit its word."""

INPUTS_ALONE = PARTS[-1] + 1
"""The kind of a launch that prepares inputs, and nothing else."""

# Programs that prepare inputs have a warp each. With an element for each thread, no program reads
# more than a few dozen different parameters, which are served one after another.
FEW_REQUESTS = 32
SPAN = 32
# Each one takes long in the interpreter.
FEW_INTERPRETED = 4
SPAN_INTERPRETED = 64
MOST_LOGITS = 16  # of a request, that are written at a time
MOST_LOOKAHEAD = 8
MAX_WORDS = 4000
"""Parameters of a launch: 32,764 bytes are possible on compute capability 7.0 and later."""


class InputBinary(NamedTuple):
    """The properties that select a binary of the kernel, for one layout.

    Args:
        room: requests that it has parameters for.
        shape: shape of the programs of block tables.
        kind: where the staged writes are, as in `KINDS`; or `INPUTS_ALONE`.
        aligned: whether rows of tables are aligned.
    """

    room: int
    shape: Shape
    kind: int
    aligned: bool


class NewOutputs(NamedTuple):
    """Addresses of outputs that are new in a step, in the order of the kernel; 0: not written."""

    idx_mapping: int
    expanded_idx_mapping: int = 0
    expanded_local_pos: int = 0
    cu_num_logits: int = 0
    logits_indices: int = 0


class CarriedInputs:
    """Launches of `one_launch_carrying_kernel` that prepare inputs, of whole steps or alone.

    Args:
        tables: the block tables, whose steps carry their writes, too.
        layout: sizes and flags of the inputs.
        requests: the state of the requests.
        buffers: the persistent outputs.
    """

    @staticmethod
    def why_not(tables: OneLaunch, layout: InputLayout) -> str | None:
        """Return why launches cannot carry batches, in one line; `None` if they can."""
        if tables._carrying is None:
            if tables.place.launcher is None:
                return "the compiled module launcher is missing"
            return "the layout of the tables has too many rows for a launch to carry writes"
        if layout.max_num_tokens >= MOST_TOKENS:
            return f"max_num_tokens is {layout.max_num_tokens}; expected below {MOST_TOKENS}"
        size = tables._carrying.first + max(tables._carrying.payloads)
        if size + MOST_REQUESTS + 1 + INPUT_FIELDS.value > MAX_WORDS:
            return "the layout of the tables has too many rows for a launch to carry requests, too"
        return None

    def __init__(
        self,
        tables: OneLaunch,
        layout: InputLayout,
        requests: RequestTensors,
        buffers: InputBuffers,
    ) -> None:
        assert tables._carrying is not None
        self._carrying = tables._carrying
        self._place, self._layout = tables.place, layout
        self._groups, self._sharded = tables.layout.num_groups, tables.sharded
        self._has_window = any(tables.layout.reaches)
        self._per_group = bitmap_words(tables.layout.max_num_reqs)
        self.rooms = ROOMS if launches.COMPILES else ROOMS_INTERPRETED
        self.payloads = self._carrying.payloads
        # Words of requests end where the fields begin, so those of any room lie before these.
        self.fields_at = MOST_REQUESTS + 1
        self.bitmap_at = self.fields_at + INPUT_FIELDS.value
        num_words = self._groups * self._per_group
        self.payload_at = self.bitmap_at + num_words + self._groups
        memory = array("q", bytes(8 * (self.payload_at + max(self.payloads))))
        self.words = memoryview(memory)
        self._array = np.frombuffer(memory, np.int64)
        self._bitmap = self.words[self.bitmap_at : self.bitmap_at + num_words]
        self._payload = self.words[self.payload_at :]
        self._array[self.fields_at + 7 : self.bitmap_at] = self._constants(requests, buffers)
        self._prefill_len = requests.prefill_len
        self.computed = requests.num_computed_tokens.data_ptr() if self._has_window else 0
        # What launches have addresses of must live as long as they.
        self._kept = (requests, buffers)
        self.addressed: tuple[torch.Tensor, ...] = ()
        """New outputs of the last batch, which show whose memory kernels have addresses of."""
        self._binaries: dict[InputBinary, Launch | None] = {}
        self._steps: tuple[Step, ...] = ()  # in C, by room
        self._int64 = tables.descriptors
        self._int32 = tables.descriptors.view(torch.int32)
        if self._place.launcher is None:
            self._in_memory = torch.frombuffer(memory, dtype=torch.int64)
        else:
            self._current_stream = triton.runtime.driver.active.get_current_stream

    def _constants(self, requests: RequestTensors, buffers: InputBuffers) -> list[int]:
        """Return the fields that stay the same, in the order of the kernel."""
        marks = buffers.is_padding.data_ptr() if self._layout.marks_padding else 0
        return [
            buffers.input_ids.data_ptr(),
            buffers.positions.data_ptr(),
            buffers.query_start_loc.data_ptr(),
            buffers.seq_lens.data_ptr(),
            marks,
            requests.num_computed_tokens.data_ptr(),
            requests.prefill_len.data_ptr(),
            requests.all_token_ids.data_ptr(),
            requests.all_token_ids.stride(0),
            requests.last_sampled_tokens.data_ptr(),
            requests.draft_tokens.data_ptr(),
            requests.draft_tokens.stride(0),
            requests.next_prefill_tokens.data_ptr(),
            requests.next_prefill_tokens.stride(0),
            self._layout.num_lookahead,
            self._layout.max_num_reqs,
        ]

    def use_prefill_len(self, prefill_len: torch.Tensor) -> None:
        """Give launches from now on, also those by C, the address of another `prefill_len`."""
        self._prefill_len = prefill_len
        self.words[self.fields_at + PREFILL_LEN.value] = prefill_len.data_ptr()

    def carry(
        self,
        rows: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int32],
        cu_num_logits: npt.NDArray[np.int32],
        num_tokens_padded: int,
        has_prefill: bool,
        new: NewOutputs,
    ) -> int:
        """Make a batch the one of the next launch; return the room that it needs.

        Args:
            rows: `[R]`, at most `MOST_REQUESTS`, each from 0 to `max_num_reqs` - 1.
            starts: `[R + 1]`, first token of each request.
            cu_num_logits: `[R + 1]`, first logit of each request.
            num_tokens_padded: tokens that get a mark of padding.
            has_prefill: whether a request is in prefill.
            new: where new outputs go.
        """
        num_reqs = len(rows)
        room = self.rooms[0] if num_reqs <= self.rooms[0] else self.rooms[1]
        first = self.fields_at - room - 1
        words = self._array[first : first + num_reqs + 1]
        words[:] = cu_num_logits
        words <<= LOGIT_BITS.value
        words |= starts
        words[:num_reqs] |= rows.astype(np.int64, copy=False) << ROW_BITS.value
        self._array[self.fields_at : self.fields_at + 7] = (
            *new,
            num_tokens_padded,
            has_prefill,
        )
        return room

    def run_alone(self, room: int, num_reqs: int, num_tokens_padded: int) -> bool:
        """Launch the preparation of inputs alone; return whether that was possible."""
        binary = InputBinary(room, FEW, INPUTS_ALONE, aligned=False)
        if not self._has(binary):
            return False
        grid = (self._num_input_parts(num_reqs, num_tokens_padded), 1, 1)
        numbers = (0, 0, 0, 0, 1, num_reqs, 0, 0, 0, 0, 0, 0, 0)
        self._launch(binary, grid, numbers, None)
        return True

    def run(self, tables: OneLaunch, room: int, batch: Batch, num_tokens_padded: int) -> bool:
        """Launch a whole step with the staged writes; return whether that was possible.

        The tensors of `batch` are not read.
        """
        staged, ring = tables._staged, tables._ring
        packed = staged.pack_words(self._bitmap, self._payload)
        if packed is None:
            return False
        num_words, num_pieces, head, size, apart, longest = packed
        kind = self._carrying.kind_of(num_pieces, head, size, longest)
        cut = tables.cut_of(batch)
        binary = InputBinary(room, cut.shape, kind, tables.rows_are_aligned)
        if not self._has(binary):
            return False
        staging = None
        if kind in IN_HOST_MEMORY:
            first = -(-head // 2) * 4 if kind == IN_MEMORY else 0  # a multiple of 16 bytes
            # To advance runs other code, such as the garbage collector's.
            view = ring.advance(first + 2 * apart)
            payload = view[:first] if kind == IN_MEMORY else self._payload
            if staged.pack_words(self._bitmap, payload, view[first:]) != packed:
                raise RuntimeError("what is staged has changed during the step")
            staging = ring.current
        num_slots = tables.slot_mappings.shape[1]
        num_pads = pads_for(num_slots)
        numbers = (
            *(self.computed, 0, 0, num_slots, 1, batch.num_reqs, batch.num_rows),
            *(num_words, num_pieces, *cut.numbers, num_pads),
        )
        num_parts = self._num_input_parts(batch.num_reqs, num_tokens_padded)
        num_parts += -(-num_words // cut.shape.sizes.words) + num_pieces
        num_parts += self._groups * (cut.num_programs + num_pads)
        self._launch(binary, (num_parts, 1, 1), numbers, staging)
        if staging is not None:
            ring.note_reader()
        return True

    def make_steps(
        self, tables: OneLaunch, launcher: Launcher, device_type: int, device: Device | None
    ) -> tuple[Step, ...]:
        """Return a `launcher.Step` for each room, with all kernels that are loaded now or later.

        Empty: they are not possible.
        """
        steps = []
        for room in self.rooms:
            first = self.fields_at - room - 1
            words, begin = self.words[first:], self.bitmap_at - first
            step = make_step(tables, self._carrying, launcher, device_type, device, words, begin)
            if step is None:
                return ()
            steps.append(step)
        self._steps = tuple(steps)
        for binary, launch in self._binaries.items():
            self._add(binary, launch)
        return self._steps

    def _add(self, binary: InputBinary, launch: Launch | None) -> None:
        # The code in C passes on the address of host memory.
        is_read = self._place.pinned or binary.kind not in IN_HOST_MEMORY
        if launch is not None and self._steps and is_read:
            has_options = binary.kind != INPUTS_ALONE and self._has_options
            place = SHAPES.index(binary.shape), binary.kind, has_options, binary.aligned
            self._steps[self.rooms.index(binary.room)].add(*place, launch)

    @property
    def _has_options(self) -> bool:
        return self._has_window or self._sharded

    @property
    def sizes(self) -> list[int]:
        """Return the constants of `launcher.Inputs`."""
        layout = self._layout
        return [
            *self.rooms,
            self._few,
            self._span,
            layout.max_num_reqs,
            layout.max_num_tokens,
            layout.num_speculative_steps,
            layout.num_new_sampled_tokens,
            self.computed,
        ]

    @property
    def _few(self) -> int:
        return FEW_REQUESTS if launches.COMPILES else FEW_INTERPRETED

    @property
    def _span(self) -> int:
        return SPAN if launches.COMPILES else SPAN_INTERPRETED

    def _num_input_parts(self, num_reqs: int, num_tokens_padded: int) -> int:
        """Return the number of programs that prepare inputs; see `_num_input_parts` there."""
        return -(-num_reqs // self._few) + 1 + -(-num_tokens_padded // self._span)

    def binaries(self, *, aligned: bool) -> list[InputBinary]:
        """Return all binaries that batches of the layouts can need."""
        most = min(self._layout.max_num_reqs, MOST_REQUESTS)
        rooms = self.rooms if most > self.rooms[0] else self.rooms[:1]
        others = self._carrying.binaries(aligned=aligned)
        kinds = dict.fromkeys((each.shape, each.kind) for each in others if each.kind in KINDS)
        return [
            *(InputBinary(room, FEW, INPUTS_ALONE, aligned=False) for room in rooms),
            *(InputBinary(room, *kind, aligned) for room in rooms for kind in kinds),
        ]

    def load(self, binary: InputBinary) -> None:
        """Compile and load a binary, unless that was done."""
        if self._place.launcher is None and launches.COMPILES:
            launched = one_launch_carrying_kernel, (0, 1, 1), *self._to_load(binary)
            self._place.run(launches.launch_jit, *launched)
        else:
            self._has(binary)

    def _has(self, binary: InputBinary) -> bool:
        """Return whether a binary can be launched, after loading it if need be."""
        if self._place.launcher is None:
            return True
        if binary not in self._binaries:
            launch = self._load(binary)
            if launch is None and self._place.is_capturing():
                return False  # outside of the capture it may load
            self._binaries[binary] = launch
            self._add(binary, launch)
        return self._binaries[binary] is not None

    def _words_of(self, binary: InputBinary) -> slice:
        """Return which words are parameters of a binary."""
        first = self.fields_at - binary.room - 1
        if binary.kind == INPUTS_ALONE:
            return slice(first, self.bitmap_at)
        return slice(first, self.payload_at + self.payloads[binary.kind])

    def _num_words(self, binary: InputBinary) -> int:
        words = self._words_of(binary)
        return int(words.stop - words.start)

    def _launch(
        self,
        binary: InputBinary,
        grid: launches.Grid,
        numbers: tuple[int, ...],
        staging: torch.Tensor | None,
    ) -> None:
        words = self._words_of(binary)
        read = self._int64 if staging is None else staging
        if self._place.launcher is None and launches.COMPILES:
            # In a process that compiles ahead, and runs nothing.
            launches.launch_jit(one_launch_carrying_kernel, grid, *self._to_load(binary))
            return
        unread = (self._int32, self._int32, self._int64)
        if self._place.launcher is None:
            self._place.python_launches += 1
            size = read.numel() // 2 * 2
            one_launch_carrying_kernel[grid](
                *(self._int64, *unread, *numbers),
                *(read.view(-1)[:size].view(torch.int64), self._in_memory[words]),
                *self._constants_of(binary),
            )
            return
        launch = self._binaries[binary]
        assert launch is not None
        arguments: tuple[torch.Tensor | int, ...] = (self._int64, *unread, *numbers, read)
        launch(self._current_stream(self._place.index), grid, arguments, self.words[words])

    def _constants_of(self, binary: InputBinary) -> tuple[Any, ...]:
        alone = binary.kind == INPUTS_ALONE
        first = self.fields_at - binary.room - 1
        layout = self._layout
        most_logits = layout.num_speculative_steps + layout.num_new_sampled_tokens
        features = Features(
            where=NOTHING.value if alone else WHERE[binary.kind],
            gathers=not alone,
            maps=not alone,
            ids=binary.kind not in (INPUTS_ALONE, SINGLE_IDS),
            indexed=launches.COMPILES,
            groups=0 if alone else self._groups,
            bitmap=0 if alone else self._per_group,
            payload=0 if alone else self.payload_at - first,
            options=not alone and self._has_options,
            sharded=not alone and self._sharded,
            aligned=binary.aligned,
            begin=self.bitmap_at - first,
            requests=self.fields_at - first,
            few=self._few,
            span=self._span,
            logits=triton.next_power_of_2(min(most_logits, MOST_LOGITS)),
            lookahead=triton.next_power_of_2(min(layout.num_lookahead, MOST_LOOKAHEAD)),
            bonus=layout.num_new_sampled_tokens,
        )
        return binary.shape.sizes, features

    def _to_load(self, binary: InputBinary) -> tuple[Any, ...]:
        """Return the arguments of `launch_jit` after kernel and grid that load a binary."""
        arguments = arguments_to_load(self._int64, self._int32, self._num_words(binary))
        return arguments, self._constants_of(binary), (), binary.shape.num_warps

    def _load(self, binary: InputBinary) -> Launch | None:
        return load_carrying(self._place, self._to_load(binary), self._num_words(binary), "batches")
