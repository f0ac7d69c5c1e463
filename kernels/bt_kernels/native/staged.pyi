"""The types of the module that `staged.c` defines: `StagedWrites` of `bt_kernels.staging`, in C."""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, CapsuleType

@final
class StagedWrites:
    """Has what `StagedWrites` of `bt_kernels.staging` has, and some methods for engines.

    `append_block_ids` and `append_requests` need no Python function around them: they raise what
    `refuse` and `refuse_many` raise, which are called with the arguments of a refused call.
    """

    longest: int
    redirects: bool
    refuse: Callable[[int, Sequence[Sequence[int]], bool], object]  # cannot be read
    refuse_many: Callable[  # cannot be read
        [Sequence[int], Sequence[Sequence[Sequence[int]]], Sequence[bool]], object
    ]
    def __new__(
        cls, widths: Sequence[int], num_blocks: npt.NDArray[np.int32], /
    ) -> StagedWrites: ...
    def __bool__(self) -> bool: ...
    @property
    def num_records(self) -> int: ...
    @property
    def num_ids(self) -> int: ...
    @property
    def packing(self) -> CapsuleType: ...
    def append(
        self, row: int, block_ids: Sequence[Sequence[int]], overwrite: bool, redirect: bool, /
    ) -> bool: ...
    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None: ...
    def append_many(
        self,
        rows: Sequence[int],
        block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
        redirect: bool,
        /,
    ) -> bool: ...
    def append_requests(
        self,
        req_indices: Sequence[int],
        new_block_ids: Sequence[Sequence[Sequence[int]]],
        overwrite: Sequence[bool],
    ) -> None: ...
    def pack(self, view: Buffer, first: int, /) -> list[int]: ...
    def pack_step(self, view: Buffer, first_record: int, step: int, /) -> None: ...
    def pack_words(
        self, bitmap: Buffer, payload: Buffer, ids_apart: Buffer | None = None, /
    ) -> tuple[int, int, int, int, int, int] | None: ...
    def intervals(self) -> list[tuple[int, int, int, list[int]]]: ...
    def clear(self) -> None: ...
