"""Notes of calls on block tables, from what is known of their arguments on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bt_kernels.engines.recordings import Frame

_Host = npt.NDArray[Any]


class _Batches:
    """The runner's latest batches: a drafter's tables are called with its mapping, too."""

    latest: tuple[Any, ...] = ()
    inside = False
    """Is true within `prepare_attn`."""


class Notes:
    """Calls on one object, collected in a frame.

    Args:
        waits: whether to wait for values that are on the GPU alone. If not, they are left out, but
            for those of the runner's batch, which it has on the host, too.
    """

    def __init__(self, *, waits: bool = False) -> None:
        self.frame, self._waits = Frame(), waits

    def begin_batch(self, runner: Any = None, batch: Any = None) -> None:
        """Take a batch's host arrays for the calls with its mapping."""
        split = getattr(runner, "pcp_manager", None)
        whole = None if split is None else getattr(split, "_global_batch", None)
        _Batches.latest, _Batches.inside = (batch, whole), True

    def end_batch(self) -> None:
        """Take only the rows from now on, since drafts have other positions."""
        _Batches.inside = False

    def gather(
        self,
        idx_mapping: Any,
        num_reqs_padded: int,
        out: Sequence[Any] | None,
        num_computed_tokens: Any,
    ) -> None:
        """Note a gather."""
        rows, computed, _ = self._of_batch(idx_mapping)
        masks = num_computed_tokens is not None
        if not masks:
            computed = None
        elif computed is None and rows is not None:
            computed = self._host(num_computed_tokens)
            computed = None if computed is None else computed[rows]
        num_reqs = idx_mapping.shape[0] if rows is None else len(rows)
        out_rows = None if out is None else out[0].shape[0]
        self.frame.gather(num_reqs, num_reqs_padded, rows, masks, computed, out_rows)

    def slots(
        self,
        idx_mapping: Any,
        query_start_loc: Any,
        positions: Any,
        num_tokens_padded: int,
        out: Any,
    ) -> None:
        """Note a slot mapping."""
        rows, firsts, starts = self._of_batch(idx_mapping)
        num_reqs = idx_mapping.shape[0] if rows is None else len(rows)
        places = None
        if starts is not None:
            starts = starts[: num_reqs + 1]
        else:
            starts, places = self._host(query_start_loc), self._host(positions)
            if starts is not None:
                starts = starts[: num_reqs + 1]
                firsts, places = _firsts(starts, places)
        self.frame.slots(
            *(num_reqs, num_tokens_padded, rows, starts),
            firsts=firsts,
            positions=places,
            out_columns=None if out is None else out.shape[1],
        )

    def _of_batch(self, mapping: Any) -> tuple[_Host | None, _Host | None, _Host | None]:
        """Return rows, computed tokens and starts of the batch with this mapping."""
        if not self._waits:
            for batch in _Batches.latest:
                if batch is not None and batch.idx_mapping is mapping:
                    if not _Batches.inside:
                        return batch.idx_mapping_np, None, None
                    return (
                        batch.idx_mapping_np,
                        batch.num_computed_tokens_np,
                        batch.query_start_loc_np,
                    )
        return self._host(mapping), None, None

    def _host(self, tensor: Any) -> _Host | None:
        """Return a copy of a tensor on the host; `None` if it would have to be waited for."""
        if not self._waits and tensor.device.type != "cpu":
            return None
        found: _Host = tensor.cpu().numpy().copy()
        return found


def forget_batches() -> None:
    """Keep no batch any more."""
    _Batches.latest, _Batches.inside = (), False


def _firsts(starts: _Host, places: _Host | None) -> tuple[_Host | None, _Host | None]:
    """Return the first position of each request where tokens are consecutive; else all positions.

    Args:
        starts: `[R + 1]`.
        places: positions, `[starts[R]]` or more; `None` if they are on the GPU alone.
    """
    if places is None:
        return None, None
    places = places[: starts[-1]]
    lengths = np.diff(starts)
    firsts = np.zeros(len(lengths), places.dtype)
    firsts[lengths > 0] = places[starts[:-1][lengths > 0]]
    consecutive = np.repeat(firsts - starts[:-1], lengths) + np.arange(len(places))
    return (firsts, None) if (consecutive == places).all() else (None, places)
