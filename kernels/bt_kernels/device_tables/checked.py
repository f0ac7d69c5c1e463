"""The checks that operations make before they change anything."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

from bt_kernels.device_tables import arguments
from bt_kernels.device_tables.state import DeviceState


class CheckedState(DeviceState):
    """Block tables on a device, with the checks at the start of their operations."""

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
        """Make all checks of gather and slots; return `out_ptrs`."""
        num_reqs = arguments.check_mapping(
            self.layout, self.device, idx_mapping, wide=out is not None
        )
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded, wide=out is not None)
        self._checked_dirty_rows()
        _, out_ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        return out_ptrs

    def _checked_dirty_rows(self) -> int:
        """Return `num_dirty_rows`, which a caller may have set, as a checked integer."""
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
        """Check the options of a gather, and return the ones its kernels need.

        Returns:
            `num_computed_tokens` if any group has a sliding window, and the addresses of `out`.
        """
        if out is None and out_ptrs is None and num_computed_tokens is None:
            return None, None  # most steps: nothing to check
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
        """Check the options of a gather; return `num_computed_tokens` if there is a window."""
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
        """Check the arguments of slots; return the view that they will be in."""
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
        return self._slot_views(num_tokens_padded, out)

    def _slot_views(self, num_tokens_padded: int, out: torch.Tensor | None) -> torch.Tensor:
        """Return the view that slots are in."""
        if out is None:
            return self._views_of_slots(num_tokens_padded)
        return out[:, :num_tokens_padded]

    def _views(
        self, num_reqs_padded: int, out: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor, ...]:
        """Return the views that a gather returns."""
        if out is None:
            return self._views_of_tables(num_reqs_padded)
        return tuple([table[:num_reqs_padded] for table in out])

    def refuse_capture(self, method: str) -> None:
        """Raise during a capture: replays would reread the same host buffer, whatever it holds."""
        if self.place.is_capturing():
            raise ValueError(
                f"{method} was called while a CUDA graph is captured; use capture_step for that"
            )
