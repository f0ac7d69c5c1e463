"""The types of the module that `launcher.c` defines; the docstrings are there."""

from collections.abc import Callable, Sequence
from typing import Protocol, final

import torch
from typing_extensions import Buffer

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
    def __call__(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        num_dirty_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        slots_out: torch.Tensor | None,
        /,
    ) -> int | None: ...
    def apply(self) -> bool: ...
    def gather(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        num_dirty_rows: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
        /,
    ) -> int | None: ...
    def slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None,
        /,
    ) -> int | None: ...
    def gather_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        num_dirty_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        slots_out: torch.Tensor | None,
        /,
    ) -> int | None: ...
