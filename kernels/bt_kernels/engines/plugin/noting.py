"""Notes of calls on block tables, from copies of their arguments on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bt_kernels.engines.recordings import Frame

_Host = npt.NDArray[Any]
_Known = tuple[Any, _Host | None, _Host | None, _Host | None]


class _Batches:
    """The runner's latest batches: a drafter's tables are called with its mapping, too.

    Attributes:
        latest: of each the `idx_mapping`, and on the host rows, computed tokens and starts.
        inside: is true within `prepare_attn`.
    """

    latest: tuple[_Known, ...] = ()
    inside = False


# An object, since setting attributes of a class takes long.
BATCHES = _Batches()


class Notes:
    """Calls on one object, collected in a frame.

    Attributes:
        in_step: is true within `execute_model`.
        frame_steps: steps after which they may become a frame.

    Args:
        may_wait: returns whether the GPU may be waited for now; all values are its own then. The
            default never waits: values come from the runner's batch, which it has on the host,
            too. Values that are on the GPU alone are left out.
    """

    def __init__(self, may_wait: Callable[[], bool] | None = None, *, frame_steps: int = 1) -> None:
        self.frame, self._may_wait = Frame(), may_wait
        self.in_step, self.frame_steps = False, frame_steps

    def begin_batch(self, runner: Any = None, batch: Any = None) -> None:
        """Take a batch's host arrays for the calls with its mapping."""
        BATCHES.latest, BATCHES.inside = _known(batch), True
        manager = getattr(runner, "pcp_manager", None)
        if manager is not None:
            BATCHES.latest += _known(getattr(manager, "_global_batch", None))

    def end_batch(self) -> None:
        """Take only the rows from now on, since drafts have other positions."""
        BATCHES.inside = False

    def gather(
        self,
        idx_mapping: Any,
        num_reqs_padded: int,
        out: Sequence[Any] | None,
        num_computed_tokens: Any,
    ) -> None:
        """Note a gather."""
        _, rows, computed, _ = self._of_batch(idx_mapping)
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
        _, rows, firsts, starts = self._of_batch(idx_mapping)
        num_reqs = idx_mapping.shape[0] if rows is None else len(rows)
        places = None
        if starts is None:
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

    def _of_batch(self, mapping: Any) -> _Known:
        """Return the host arrays of the batch with this mapping; `None` for unknown ones."""
        if self._may_wait is None:
            for known in BATCHES.latest:
                if known[0] is mapping:
                    return known if BATCHES.inside else (mapping, known[1], None, None)
        return mapping, self._host(mapping), None, None

    def _host(self, tensor: Any) -> _Host | None:
        """Return a copy of a tensor on the host; `None` if it would have to be waited for."""
        on_host = tensor.device.type == "cpu"
        if not on_host and (self._may_wait is None or not self._may_wait()):
            return None
        found: _Host = tensor.cpu().numpy().copy()
        return found


def _known(batch: Any) -> tuple[_Known, ...]:
    """Return mapping, rows, computed tokens and starts of a batch; empty if it lacks any."""
    try:
        rows, starts = batch.idx_mapping_np, batch.query_start_loc_np
        known = batch.idx_mapping, rows, batch.num_computed_tokens_np, starts[: len(rows) + 1]
    except (AttributeError, TypeError):
        return ()
    return (known,)


def forget_batches() -> None:
    """Keep no batch any more."""
    BATCHES.latest, BATCHES.inside = (), False


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
