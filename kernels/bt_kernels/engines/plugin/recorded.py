"""Classes whose calls are noted; nothing else about them changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from bt_kernels.engines.plugin.noting import Notes
from bt_kernels.engines.recordings import Frame

REDIRECT = "redirect_writes_to_null_block"

_OUTSIDE = 2**12
"""Integers after which calls outside of steps are a frame."""


def recorded(
    kind: type[Any],
    notes: Notes,
    end_frame: Callable[..., None],
    fail: Callable[[Any, Exception], None],
) -> type[Any]:
    """Return a class derived from `kind` whose calls are noted once they have returned.

    Args:
        kind: a class of block tables.
        notes: where calls are noted.
        end_frame: called with the object after each step, and after many calls outside of steps.
            Where C makes the calls and notes, it is called after several steps, with their number.
        fail: called with the object and the reason when a call cannot be noted.
    """
    # Not by `super()` or attributes, which take longer than a note.
    frame = notes.frame
    note_append, note_gather, note_slots = frame.append, notes.gather, notes.slots
    note_batch, note_end_batch = notes.begin_batch, notes.end_batch
    note_apply, note_begin, note_end = frame.apply, frame.begin_step, frame.end_step
    append, apply = kind.append_block_ids, kind.apply_staged_writes
    gather, map_slots = kind.gather_block_tables, kind.compute_slot_mappings
    # Older releases have fewer options, at most these of ours.
    num_gather, num_slots = (
        len(inspect.signature(each).parameters) for each in (gather, map_slots)
    )
    num_gather, num_slots = num_gather - 3, num_slots - 5
    begin_step, end_step, begin_batch, end_batch = (
        getattr(kind, name, _nothing)
        for name in ("begin_step", "end_step", "begin_batch", "end_batch")
    )

    class Recorded(kind):  # type: ignore[misc]
        _bt_kernels_records = notes, end_frame, fail

        def append_block_ids(
            self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
        ) -> None:
            append(self, req_index, new_block_ids, overwrite)
            try:
                note_append(req_index, new_block_ids, overwrite)
            except Exception as error:
                fail(self, error)

        def apply_staged_writes(self) -> None:
            apply(self)
            note_apply()
            if not notes.in_step and len(frame) > _OUTSIDE:
                end_frame(self)

        def gather_block_tables(
            self,
            idx_mapping: Any,
            num_reqs_padded: int,
            out: Any = None,
            out_ptrs: Any = None,
            num_computed_tokens: Any = None,
        ) -> Any:
            options = (out, out_ptrs, num_computed_tokens)[:num_gather]
            found = gather(self, idx_mapping, num_reqs_padded, *options)
            try:
                note_gather(idx_mapping, num_reqs_padded, out, num_computed_tokens)
            except Exception as error:
                fail(self, error)
            return found

        def compute_slot_mappings(
            self,
            idx_mapping: Any,
            query_start_loc: Any,
            positions: Any,
            num_tokens_padded: int,
            out: Any = None,
        ) -> Any:
            tokens = query_start_loc, positions, num_tokens_padded
            found = map_slots(self, idx_mapping, *tokens, *(out,)[:num_slots])
            try:
                note_slots(idx_mapping, *tokens, out)
            except Exception as error:
                fail(self, error)
            return found

        def get_dummy_block_tables(self, num_reqs: int) -> Any:
            found = kind.get_dummy_block_tables(self, num_reqs)
            frame.dummy_tables(num_reqs)
            return found

        def get_dummy_slot_mappings(self, num_tokens: int) -> Any:
            found = kind.get_dummy_slot_mappings(self, num_tokens)
            frame.dummy_slots(num_tokens)
            return found

        def begin_step(self, *args: Any) -> None:
            begin_step(self, *args)
            notes.in_step = True
            note_begin()

        def end_step(self) -> None:
            end_step(self)
            notes.in_step = False
            note_end()
            end_frame(self)

        def begin_batch(self, runner: Any = None, batch: Any = None, *_: Any) -> None:
            begin_batch(self, runner, batch)
            note_batch(runner, batch)

        def end_batch(self) -> None:
            end_batch(self)
            note_end_batch()

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Recorded, name, getattr(kind, name))
    _note_redirects(Recorded, kind, frame)
    return Recorded


def _note_redirects(recorded: type[Any], kind: type[Any], frame: Frame) -> None:
    """Note when the attribute for redirected writes is set.

    Ours has a property, and sets many attributes in a step. vLLM's class sets few, and reads this
    one with each append, which a property would slow down.
    """
    found = getattr(kind, REDIRECT, None)
    put = found.fset if isinstance(found, property) else None
    set_attribute: Callable[..., None] = kind.__setattr__

    def redirect(tables: Any, redirects: bool) -> None:
        assert put is not None
        put(tables, redirects)
        frame.redirect(redirects)

    def set_and_note(tables: Any, name: str, value: Any) -> None:
        set_attribute(tables, name, value)
        if name == REDIRECT:
            frame.redirect(value)

    if isinstance(found, property):
        setattr(recorded, REDIRECT, found.setter(redirect))
    else:
        recorded.__setattr__ = set_and_note  # type: ignore[assignment]


def _nothing(*_: Any) -> None:
    """Do nothing, as vLLM's class has no such method."""
