"""Mutants of a step in one launch: how it is cut into programs, and what graphs replay."""

from __future__ import annotations

from functools import partial

from support.mutants.mutant import Mutant

_PUBLISH = """\
        batch = Batch(idx_mapping, query_start_loc, positions, num_reqs, num_reqs_padded)
        options = Options(num_computed_tokens if self._has_window else None)
        # Not left to the replay, which may never happen.
        self._zero_dirty_rows(num_reqs_padded)
"""
_WHICH = "which = tl.sum((token[None, :] >= past[:, None]).to(tl.int32), axis=0)"

_in_one_launch_parts = partial(Mutant, "device_code/one_launch_parts.py", variant="one_launch")
_in_mapping = partial(Mutant, "device_code/mapping.py", variant="one_launch")
_in_gathering = partial(Mutant, "device_code/gathering.py", variant="one_launch")

MUTANTS = {
    "span_begins_late": _in_one_launch_parts(
        "a long prompt has a token between what its tile maps and what spans do",
        "(token - its_tile >= SIZES.tokens)",
        "(token - its_tile > SIZES.tokens)",
        "unequal",
    ),
    "span_of_the_request_before": _in_mapping(
        "the first token of a request in a span is mapped by the request before it",
        "found = tl.where(end <= token, further, found)",
        "found = tl.where(end < token, further, found)",
        "unequal",
        small=True,
    ),
    "bisection_begins_too_low": _in_mapping(
        "the requests of a span are looked for among the first half of the batch",
        "while step <= others:",
        "while step * 2 <= others:",
        "unequal",
    ),
    "end_in_a_span_is_not_seen": _in_mapping(
        "a span is left out if the only long request in it ends there",
        "ended = end <= first\n",
        "ended = end <= first + SIZES.span\n",
        "unequal",
    ),
    "two_requests_are_as_long_as_one": _in_one_launch_parts(
        "a span is left out where only the two requests of a tile have many tokens together",
        "if farthest > SIZES.tokens:",
        "if farthest > SIZES.tokens * SIZES.tile:",
        "unequal",
        small=True,
    ),
    "span_maps_what_its_tile_does": _in_one_launch_parts(
        "a span maps all of its tokens, also those that tiles map",
        "mask = (token < num_tokens) & (token - its_tile >= SIZES.tokens)",
        "mask = token < num_tokens",
        "unequal",
    ),
    "last_tile_is_skipped": _in_one_launch_parts(
        "the last tile is left out where it has fewer requests than others",
        "    num_tiles = (batch.num_rows + TILE - 1) // TILE\n",
        "    num_tiles = batch.num_rows // TILE\n",
        "shrinking",
        small=True,
    ),
    "second_of_a_tile_is_the_first": _in_mapping(
        "all tokens of a tile are mapped by its first request",
        _WHICH,
        _WHICH + " * 0",
        "decoding",
        small=True,
    ),
    "empty_request_in_a_tile": _in_mapping(
        "a request without tokens is not counted, so those after it in its tile have its row",
        _WHICH,
        "starts = tl.load(ends - 1, mask=batch_index < batch.num_reqs, other=0)\n"
        "    over = (token[None, :] >= past[:, None]) & (past > starts)[:, None]\n"
        "    which = tl.sum(over.to(tl.int32), axis=0)",
        "decoding",
        small=True,
    ),
    "fours_of_what_is_written": _in_gathering(
        "columns that the same launch is only now writing are copied from the source table",
        "tl.where(rows.staged, tl.minimum(rows.start, length), length) // 4",
        "length // 4",
        "decoding",
    ),
    "columns_between_programs": _in_gathering(
        "four columns of a long row are those of no program",
        "tl.where(shared, tl.minimum(length, SIZES.own_columns), length)",
        "tl.where(shared, tl.minimum(length, SIZES.own_columns - 4), length)",
        "long",
    ),
    "rest_of_a_piece": _in_gathering(
        "what is left of a piece of a long row after its fours is not copied",
        "past_last = tl.minimum(length, first + SIZES.wide_columns)",
        "past_last = tl.minimum(num_fours * 4, first + SIZES.wide_columns)",
        "long",
    ),
    "offset_by_the_shift": _in_mapping(
        "a slot lies in its block at the remainder of twice the block's size",
        "offset = position & (block_size - 1)",
        "offset = position & (2 * block_size - 1)",
    ),
    # A launch that never changes, and marks.
    "mark_of_an_older_step": Mutant(
        "device_code/staged_rows.py",
        "a row that is not written has the columns of a mark that an older step left",
        "found = marked & (_pick(marks, 3) == staged.step)",
        "found = marked & (_pick(marks, 3) > 0)",
        variant="one_launch_graph",
    ),
    "ids_of_a_step_a_place_further_in_c": Mutant(
        "native/staged_packs.h",
        "marks and records of a step name the place after that of their ids",
        "to[4] = (int32_t)(ids - start);",
        "to[4] = (int32_t)(ids - start) + 1;",
        variant="one_launch_graph",
    ),
    "rows_in_any_order_in_c": Mutant(
        "native/staged_changes.h",
        "rows that were staged in another order than theirs are packed as if in order",
        "self->is_ordered &= row > self->records[of->tail].row;",
        "self->is_ordered &= 1;",
        "decoding",
        variant="one_launch",
    ),
    "places_of_the_first_group_in_c": Mutant(
        "native/staged_packs.h",
        "intervals of each group are packed from the first place on",
        "self->groups[group].next_place = (int32_t)(bitmap[group * per_group] >> BITMAP_ROWS);",
        "self->groups[group].next_place = 0;",
        "decoding",
        variant="one_launch",
    ),
    "last_program_has_an_old_header": Mutant(
        "one_launch/fixed.py",
        "the last program does what an older step had for it",
        "found.reshape(self.num_programs, size)[:] = words",
        "found.reshape(self.num_programs, size)[:-1] = words",
        variant="one_launch_graph",
        native=False,
    ),
    "no_step_has_marks": Mutant(
        "device_code/staged_rows.py",
        "marks that were never made are taken for those of a step that stages nothing",
        "marked = tl.where(staged.step > 0, row, -1) >= 0",
        "marked = row >= 0",
        "shrinking",
        variant="one_launch_graph",
    ),
    "num_records_not_shifted": Mutant(
        "device_code/one_launch_kernels.py",
        "bits that lie below the number of records are taken for some of it",
        "num_records = ((last >> 1) & 0x7FFFFFFF)",
        "num_records = (last & 0x7FFFFFFF)",
        variant="one_launch_graph",
    ),
    "int64_mapping_of_headers_as_int32": Mutant(
        "device_code/one_launch_kernels.py",
        "the halves of an int64 mapping are taken for its entries, where headers tell of it",
        "1 + (last & 1).to(tl.int32),",
        "1 + (last & 0).to(tl.int32),",
        variant="one_launch_graph",
    ),
    "options_of_an_older_step": Mutant(
        "one_launch/fixed.py",
        "the options of the first step that has any are taken in all steps",
        "        if options:\n",
        # They are kept, or a new step's could be at the same place.
        '        if options:\n            options = vars(self).setdefault("older", options)\n',
        "window",
        variant="one_launch_graph",
    ),
    # A whole step in a caller's graph.
    "never_replayed_is_forgotten": Mutant(
        "one_launch/captured.py",
        "writes that were published and never replayed are not applied before those that follow",
        "if self._applied.read() != step:",
        "if self._applied.read() is None:",
        "",
        variant="one_launch",
    ),
    "publish_does_not_wait": Mutant(
        "staging/host_ring.py",
        "what a replay has yet to read is written over by the next publication",
        "            self._read.synchronize()\n",
        "            pass\n",
        "",
        variant="one_launch",
    ),
    "dirty_rows_left_to_a_replay": Mutant(
        "one_launch/tables.py",
        "rows that a larger batch left are zeroed by the next replay alone, which may never be",
        _PUBLISH,
        "        num_rows = max(num_reqs_padded, self.num_dirty_rows)\n"
        "        batch = Batch(idx_mapping, query_start_loc, positions, num_reqs, num_rows)\n"
        "        options = Options(num_computed_tokens if self._has_window else None)\n"
        "        self.num_dirty_rows = num_reqs_padded\n",
        "",
        variant="one_launch",
    ),
}
