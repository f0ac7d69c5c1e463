"""Shadow mode: both classes do the same calls, and whole buffers are compared after each.

The engine has vLLM's tables, so all results are vLLM's. Before an operation, ours gets a copy of
vLLM's buffers, into which other kernels may have written. After the last step to compare,
ours takes over the same tensors, and the engine's object becomes ours. At the first difference, or
failure of ours, the engine's object becomes an ordinary one of vLLM's class again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bt_kernels.engines.plugin.counting import COUNTS
from bt_kernels.engines.plugin.deferring import DeferringTables, become, dirty_rows, given
from bt_kernels.engines.plugin.messages import LOGGER, describe, warn_once
from bt_kernels.engines.plugin.recorded import recorded
from bt_kernels.engines.plugin.repro import Repro
from bt_kernels.engines.recordings import Difference

_Pair = tuple[str, torch.Tensor, torch.Tensor]

PREPARES = "prepare_inputs"
"""The name of a call on ours that prepares a whole batch."""

if TYPE_CHECKING:

    class _Base:
        """The methods of vLLM's class."""

        _shadow: _Shadow

        def begin_step(self, *args: Any) -> None: ...
        def end_step(self) -> None: ...
        def append_block_ids(self, *args: Any, **kwargs: Any) -> None: ...
        def apply_staged_writes(self) -> None: ...
        def gather_block_tables(self, *args: Any, **kwargs: Any) -> Any: ...
        def compute_slot_mappings(self, *args: Any, **kwargs: Any) -> Any: ...
        def get_dummy_block_tables(self, num_reqs: int) -> Any: ...
        def get_dummy_slot_mappings(self, num_tokens: int) -> Any: ...
        def init_block_table_layout_tensors(self) -> None: ...

else:
    _Base = object


class _DifferenceError(Exception):
    """A buffer of ours differs from vLLM's.

    Args:
        buffer: its name.
        place: the index of the first element that differs.
        found: its value in ours.
        expected: its value in vLLM's.
    """

    def __init__(self, buffer: str, place: Sequence[int], found: int, expected: int) -> None:
        super().__init__(f"{buffer}{list(place)} is {found} in ours, and {expected} in vLLM's")
        self.fields = buffer, tuple(place), found, expected


class _Shadowed(_Base):
    """Calls of vLLM's class, each made on ours as well; to be combined with that class."""

    def begin_step(self, *args: Any) -> None:
        shadow = self._shadow
        shadow.repro.begin(self)
        super().begin_step(*args)
        shadow.ours.begin_step()

    def end_step(self) -> None:
        shadow = self._shadow
        super().end_step()
        shadow.prepare(self)
        shadow.run(self, "execute_model", DeferringTables.end_step)
        if "_shadow" in vars(self):
            shadow.repro.begin(self)

    def begin_batch(self, *_: Any) -> None:
        self._shadow.ours.begin_batch()

    def end_batch(self) -> None:
        shadow = self._shadow
        shadow.prepare(self)
        shadow.run(self, "prepare_attn", DeferringTables.end_batch)

    def give_back(self) -> None:
        self._shadow.stop(self)

    def append_block_ids(self, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, _Shadowed):  # no more, and called by a bound method
            self.append_block_ids(*args, **kwargs)
            return
        super().append_block_ids(*args, **kwargs)
        redirect = _redirects(self)

        def append(ours: DeferringTables) -> None:
            ours.redirect_writes_to_null_block = redirect
            ours.append_block_ids(*args, **kwargs)

        self._shadow.run(self, "append_block_ids", append, compares=False)

    def apply_staged_writes(self) -> None:
        if not isinstance(self, _Shadowed):
            self.apply_staged_writes()
            return
        shadow, apply = self._shadow, super().apply_staged_writes
        if shadow.steps_left == 0:
            shadow.finish(self).apply_staged_writes(self)
            return
        shadow.steps_left -= 1
        shadow.prepare(self, sources=True)
        apply()
        shadow.run(self, "apply_staged_writes", DeferringTables.apply_staged_writes)
        COUNTS.compared += 1

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> Any:
        if not isinstance(self, _Shadowed):
            options = given(out, out_ptrs, num_computed_tokens)
            return self.gather_block_tables(idx_mapping, num_reqs_padded, *options)
        shadow, gather = self._shadow, super().gather_block_tables
        shadow.prepare(self)
        own = shadow.copies(self, out)
        options = given(out, out_ptrs, num_computed_tokens)
        found = gather(idx_mapping, num_reqs_padded, *options)
        shadow.run(
            self,
            "gather_block_tables",
            lambda ours: ours.gather_block_tables(
                idx_mapping, num_reqs_padded, own, None, num_computed_tokens
            ),
            [
                (f"out[{group}]", copy, table)
                for group, (copy, table) in enumerate(zip(own or (), out or (), strict=False))
            ],
        )
        return found

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> Any:
        tokens = (query_start_loc, positions, num_tokens_padded)
        if not isinstance(self, _Shadowed):
            return self.compute_slot_mappings(idx_mapping, *tokens, *given(out))
        shadow, compute = self._shadow, super().compute_slot_mappings
        shadow.prepare(self)
        own = shadow.copies(self, None if out is None else (out,))
        found = compute(idx_mapping, *tokens, *given(out))
        shadow.run(
            self,
            "compute_slot_mappings",
            lambda ours: ours.compute_slot_mappings(
                idx_mapping, *tokens, None if own is None else own[0]
            ),
            [] if own is None or out is None else [("out", own[0], out)],
        )
        return found

    def get_dummy_block_tables(self, num_reqs: int) -> Any:
        if not isinstance(self, _Shadowed):
            return self.get_dummy_block_tables(num_reqs)
        shadow, get = self._shadow, super().get_dummy_block_tables
        shadow.prepare(self)
        found = get(num_reqs)
        shadow.run(
            self, "get_dummy_block_tables", lambda ours: ours.get_dummy_block_tables(num_reqs)
        )
        return found

    def get_dummy_slot_mappings(self, num_tokens: int) -> Any:
        if not isinstance(self, _Shadowed):
            return self.get_dummy_slot_mappings(num_tokens)
        shadow, get = self._shadow, super().get_dummy_slot_mappings
        shadow.prepare(self)
        found = get(num_tokens)
        shadow.run(
            self, "get_dummy_slot_mappings", lambda ours: ours.get_dummy_slot_mappings(num_tokens)
        )
        return found

    def init_block_table_layout_tensors(self) -> None:
        if not isinstance(self, _Shadowed):
            self.init_block_table_layout_tensors()
            return
        super().init_block_table_layout_tensors()
        self._shadow.prepare(self, sources=True)


class _Shadow:
    """Ours beside tables of vLLM's class, and the comparison.

    Args:
        ours: tables of ours with the same layout, and tensors of their own.
        theirs: vLLM's class.
        steps: how many steps are compared, 1 or more.
    """

    def __init__(self, ours: DeferringTables, theirs: type[Any], steps: int) -> None:
        self.ours, self.theirs, self.steps, self.steps_left = ours, theirs, steps, steps
        self.repro = Repro(ours.layout, ours.device, lambda: not is_capturing())
        self._stopped = False
        self.pauses = False
        """Tell whether only vLLM's class gets the calls, since ours has done that work already."""

    @property
    def rests(self) -> bool:
        """Return whether nothing is done on ours now, nor compared."""
        # Nothing runs in a capture, and ours must leave nothing in the graph.
        return self._stopped or self.pauses or is_capturing()

    def prepare(self, tables: Any, *, sources: bool = False) -> None:
        """Copy vLLM's buffers into ours, since other kernels write into them.

        A buffer is left alone if vLLM's class has written into it and ours has not yet.
        """
        if self.rests:
            return
        try:
            self._prepare(tables, sources)
        except Exception as error:
            self.fail(tables, "copying tables", error)

    def copies(
        self, tables: Any, outputs: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor, ...] | None:
        """Return copies of a caller's buffers for ours; `None` if ours will not be called."""
        if outputs is None or self.rests:
            return None
        try:
            return tuple([table.clone() for table in outputs])
        except Exception as error:
            self.fail(tables, "copying outputs", error)
            return None

    def _prepare(self, tables: Any, sources: bool) -> None:
        ours = self.ours
        pairs = _slots(ours, tables)
        if not ours.gather_waits:
            pairs += _inputs(ours, tables)
            ours.num_dirty_rows = dirty_rows(tables)
        if sources and not ours.waits:
            pairs += _sources(ours, tables)
        with torch.inference_mode():
            for _, own, table in pairs:
                own.copy_(table)

    def run(
        self,
        tables: Any,
        name: str,
        call: Callable[[DeferringTables], object],
        outputs: Iterable[_Pair] = (),
        *,
        compares: bool = True,
    ) -> None:
        """Make a call on ours, and compare if nothing waits; stop at a difference or failure."""
        if self.rests:
            return
        try:
            call(self.ours)
            if compares and not self.ours.waits:
                self._compare(tables, outputs)
        except _DifferenceError as difference:
            COUNTS.differences += 1
            step = self.steps - self.steps_left
            written = "A repro file has calls on block tables alone, so none was written"
            if name != PREPARES:
                written = self.repro.write(Difference(step, name, *difference.fields))
            warn_once(
                f"a difference in shadow mode, in step {step}, after {name}: {difference}. The "
                "engine goes on with its own block tables, and has used no result of ours. "
                f"{written}"
            )
            self.stop(tables)
        except Exception as error:
            self.fail(tables, name, error)

    def fail(self, tables: Any, name: str, error: Exception) -> None:
        """Stop after a failure of ours, with a warning."""
        COUNTS.failures += 1
        warn_once(
            f"{name} failed in shadow mode ({describe(error)}). The engine goes on with its own "
            "block tables, and has used no result of ours"
        )
        self.stop(tables)

    def stop(self, tables: Any) -> None:
        """Make the engine's tables ordinary ones of vLLM's class for good."""
        self._stopped = True
        del tables._shadow
        vars(tables).pop("_inputs", None)
        become(tables, self.theirs, vars(tables))

    def finish(self, tables: Any) -> Any:
        """Make the engine's tables ours, with the same tensors; nothing may wait.

        Return the class that they have now: ours, or vLLM's if that failed.
        """
        ours = self.ours
        try:
            spare = object.__new__(self.theirs)
            spare.__dict__ = tables.__dict__
            del tables._shadow
            vars(tables).pop("_inputs", None)  # ours has its own
            ours.take_over(spare, self.theirs)
            ours.redirect_writes_to_null_block = _redirects(tables)
            for table in spare.block_tables:  # ours has the same, and will write it
                table.clear_staged_writes()
        except Exception as error:
            COUNTS.failures += 1
            warn_once(f"{describe(error)}. The engine goes on with its own block tables")
            become(tables, self.theirs, vars(tables))
            return self.theirs
        become(tables, type(ours), ours.__dict__)
        vars(spare).pop("_recorder", None)
        ours.belong_to(tables)
        LOGGER.info(
            "bt_kernels: %s steps were compared without a difference; ours goes on alone",
            f"{self.steps:,}",
        )
        return type(ours)

    def _compare(self, tables: Any, outputs: Iterable[_Pair]) -> None:
        """Compare all buffers.

        Raises:
            _DifferenceError: with the first place that differs.
        """
        host = self.ours._variant.num_blocks, tables.num_blocks.np
        if (host[0] != host[1]).any():
            at = tuple(np.argwhere(host[0] != host[1])[0].tolist())
            raise _DifferenceError("num_blocks.np", at, int(host[0][at]), int(host[1][at]))
        counts = self.ours._variant.num_blocks_on_device
        own_tables = (
            *_sources(self.ours, tables),
            *_inputs(self.ours, tables),
            *_slots(self.ours, tables),
            ("num_blocks", counts, tables.num_blocks.gpu),
        )
        for name, own, table in chain(own_tables, outputs):
            if not torch.equal(own, table):
                place = (own != table).nonzero()[0].tolist()
                found, expected = int(own[tuple(place)]), int(table[tuple(place)])
                raise _DifferenceError(name, place, found, expected)


def shadow(tables: Any, ours: DeferringTables, steps: int) -> None:
    """Let ours do all calls on tables of vLLM's class as well, for so many steps.

    Args:
        tables: tables of vLLM's class that nothing was done with.
        ours: tables of ours with the same layout.
        steps: calls of `apply_staged_writes`, 1 or more.
    """
    theirs = type(tables)
    tables._shadow = shadow = _Shadow(ours, theirs, steps)
    # Elements that neither class writes are the same in both from the beginning.
    shadow.prepare(tables, sources=True)
    shadow.repro.begin(tables)
    # The layout in the file has kernels' blocks.
    frame = shadow.repro.notes.frame
    note_append: Callable[..., None] = frame.append
    frame.append = lambda row, ids, overwrite: (  # type: ignore[method-assign]
        note_append(row, ours.kernel_ids(ids), overwrite)
    )
    # vLLM's calls are noted before ours are made and compared.
    noted = recorded(theirs, shadow.repro.notes, lambda _: None, shadow.repro.fail)
    tables.__class__ = type(theirs.__name__, (_Shadowed, noted), {"__module__": theirs.__module__})


# From the variant, since reading them from ours would settle the waiting work.


def _sources(ours: DeferringTables, tables: Any) -> list[_Pair]:
    pairs = zip(ours._variant.block_tables, tables.block_tables, strict=True)
    return [(f"block_tables[{g}].gpu", own, table.gpu) for g, (own, table) in enumerate(pairs)]


def _inputs(ours: DeferringTables, tables: Any) -> list[_Pair]:
    pairs = zip(ours._variant.input_block_tables, tables.input_block_tables, strict=True)
    return [(f"input_block_tables[{g}]", own, table) for g, (own, table) in enumerate(pairs)]


def _slots(ours: DeferringTables, tables: Any) -> list[_Pair]:
    return [("slot_mappings", ours._variant.slot_mappings, tables.slot_mappings)]


def _redirects(tables: Any) -> bool:
    found: bool = getattr(tables, "redirect_writes_to_null_block", False)
    return found


def is_capturing() -> bool:
    """Return whether the current stream is being captured into a CUDA graph."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
