"""The types of the module that `launcher.c` defines; the docstrings are there."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import Buffer

from bt_kernels.batch_inputs.interface import PreparedBatch

class _Ring(Protocol):
    """Buffers for what does not fit into the parameters of a launch."""

    def advance(self, size: int, /) -> Buffer: ...

def repeat(view: Buffer, first: int, count: int, words: tuple[int, ...], /) -> None: ...
def lacking() -> str | None: ...

@final
class Device:
    @property
    def launches(self) -> int: ...
    def __new__(cls, index: int) -> Device: ...
    def is_current(self) -> bool: ...
    def is_captured(self, stream: int, /) -> bool: ...
    def record(self, event: int, stream: int, /) -> None: ...
    def replay(self, executable: int, stream: int, /) -> None: ...
    def wait_for(self, event: int, /) -> None: ...
    def push(self) -> None: ...
    def pop(self) -> None: ...

@final
class Launch:
    @property
    def side_by_side(self) -> int: ...
    def __new__(
        cls,
        owner: object,
        function: int,
        device: Device,
        threads: int,
        shared: int,
        num_arguments: int,
    ) -> Launch: ...
    def __call__(
        self,
        stream: int,
        grid: tuple[int, int, int],
        arguments: tuple[torch.Tensor | int | None, ...],
        words: Buffer = ...,
        /,
    ) -> None: ...

@final
class Step:
    def __new__(
        cls,
        tensor_type: type[torch.Tensor],
        staged: object,
        ring: _Ring,
        words: Buffer,
        device_type: int,
        index: int,
        device: Device | None,
        widths: Buffer,
        taken: Buffer,
        constants: Buffer,
    ) -> Step: ...
    def add(
        self,
        shape: int,
        kind: int,
        has_options: bool,
        is_aligned: bool,
        launch: Launch | Callable[[int, tuple[int, ...]], object],
        /,
    ) -> None: ...

@final
class Inputs:
    """Has the operations of an object that prepares batches; see `BatchInputOperations`."""

    def __new__(
        cls,
        owner: object,
        tables: object,
        steps: tuple[Step, Step],
        constants: Buffer,
        helpers: tuple[object, ...],
    ) -> Inputs: ...
    def prepare_inputs(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch: ...
    def prepare(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch: ...

@final
class Calls:
    """Has the operations of tables, with their arguments; see `BlockTableOperations`."""

    def __new__(cls, tables: object) -> Calls: ...
    def apply_staged_writes(self) -> None: ...
    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]: ...
    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor: ...
    def gather_and_compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]: ...
    def prepare_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]: ...

@final
class Waiting:
    """Has the attributes of `Waiting` of the plugin, and the calls of an engine in a step."""

    in_step: bool
    in_batch: bool
    applies: bool
    is_short: bool
    times: bool
    has_applied: bool
    spent_ns: int
    noting: Noting | None
    gather: tuple[torch.Tensor, int, torch.Tensor | None] | None

    def __new__(cls, tables: object, append: Callable[..., object], owner: object) -> Waiting: ...
    @property
    def waits(self) -> bool: ...
    def belong_to(self, owner: object, /) -> None: ...
    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None: ...
    def apply_staged_writes(self) -> None: ...
    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]: ...
    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor: ...

@final
class Around:
    """A method of a runner within which its tables may wait."""

    def __new__(
        cls, method: Callable[..., Any], by_python: Callable[..., Any], is_batch: bool
    ) -> Around: ...
    def __call__(self, *args: Any, **names: Any) -> Any: ...

@final
class Noting:
    """Notes of calls that C makes, where those of Python go."""

    def __new__(
        cls,
        notes: object,
        frame: object,
        batches: object,
        ints: list[int],
        arrays: list[Any],
        end_frame: Callable[..., None],
        fail: Callable[[Any, Exception], None],
        frame_steps: int,
    ) -> Noting: ...

def counts() -> tuple[int, int, int]: ...
def step_times() -> tuple[int, int, int, dict[int, int]]: ...
def forget_counts() -> None: ...
