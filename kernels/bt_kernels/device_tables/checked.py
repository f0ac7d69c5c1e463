"""The checks that operations make before they do anything."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

from bt_kernels.device_tables import arguments
from bt_kernels.device_tables.state import DeviceState


class CheckedState(DeviceState):
    """Block tables on a device, with the checks that their operations begin with."""

    def _check_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
        slots_out: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Makes all checks of gather and slots; returns `out_ptrs`."""
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        self._checked_dirty_rows()
        _, out_ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        return out_ptrs

    def _checked_dirty_rows(self) -> int:
        """`num_dirty_rows`, which a caller may have set, as an integer."""
        dirty, limit = index(self.num_dirty_rows), self.layout.max_num_reqs
        if not 0 <= dirty <= limit:
            raise ValueError(f"num_dirty_rows is {dirty}; expected 0 to {limit} (max_num_reqs)")
        return dirty

    def _options(
        self,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Checks the options of a gather, and returns what its kernels need of them.

        Returns:
            `num_computed_tokens` if any group has a sliding window, and the addresses of `out`.
        """
        if out is None and out_ptrs is None and num_computed_tokens is None:
            return None, None  # as most steps; nothing to check
        window = self._check_options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        if out is not None and out_ptrs is None:
            out_ptrs = torch.tensor([table.data_ptr() for table in out], device=self.device)
        return window, out_ptrs

    def _check_options(
        self,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Checks the options of a gather; returns `num_computed_tokens` if there is a window."""
        if num_computed_tokens is not None:
            arguments.check_computed(self.layout, self.device, num_computed_tokens)
            if not self._has_window:
                num_computed_tokens = None
        if out is not None:
            arguments.check_out(self.layout, self.device, out, out_ptrs, num_reqs_padded)
            arguments.check_outside(out, self._taken)
            if out_ptrs is not None and self.validate and not self.place.is_capturing():
                arguments.check_addresses(out, out_ptrs)
        elif out_ptrs is not None:
            raise ValueError("out_ptrs is given without out; expected both, or out alone")
        return num_computed_tokens

    def _check_slots(
        self,
        num_reqs: int,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        """Checks the arguments of slots; returns the view that they will be in."""
        arguments.check_tokens(
            self.layout,
            self.device,
            num_reqs,
            query_start_loc,
            positions,
            num_tokens_padded,
            out,
        )
        if self.validate and not self.place.is_capturing():
            slots = self.slot_mappings if out is None else out
            arguments.check_rows_exist(self.layout, idx_mapping)
            arguments.check_token_ranges(
                num_reqs, query_start_loc, positions, slots.shape[1], num_tokens_padded
            )
        if out is None:
            return self._views_of_slots(num_tokens_padded)
        return out[:, :num_tokens_padded]

    def _views(
        self, num_reqs_padded: int, out: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor, ...]:
        """The views that a gather returns."""
        if out is None:
            return self._views_of_tables(num_reqs_padded)
        return tuple([table[:num_reqs_padded] for table in out])

    def refuse_capture(self, method: str) -> None:
        """Raises during a capture: replays would read the same host buffer, whatever is in it."""
        if self.place.is_capturing():
            raise ValueError(
                f"{method} was called while a CUDA graph is captured; use capture_step for that"
            )
