"""Mutants of launches that carry what is staged, as parameters or in pinned memory."""

from __future__ import annotations

from functools import partial

from support.mutants.mutant import Mutant

_in_staged_rows = partial(Mutant, "device_code/staged_rows.py", variant="one_launch")
_in_staged_packs = partial(Mutant, "native/staged_packs.h", variant="one_launch")
_in_one_launch_kernels = partial(Mutant, "device_code/one_launch_kernels.py", variant="one_launch")

MUTANTS = {
    # The bitmap of rows.
    "interval_without_those_before": _in_staged_rows(
        "a row has an interval of the first rows, whichever word of the bitmap it is in",
        "index = _before(word) + _count_bits(below, FEATURES.indexed)",
        "index = _count_bits(below, FEATURES.indexed)",
        "decoding",
    ),
    "interval_of_the_next_row": _in_staged_rows(
        "a row has the interval after its own, since it is counted among the rows before it",
        "below = word & ((tl.full(bit.shape, 1, tl.int64) << bit) - 1)",
        "below = word & ((tl.full(bit.shape, 1, tl.int64) << (bit + 1)) - 1)",
        "decoding",
    ),
    "bit_of_the_next_row": _in_staged_rows(
        "a row has an interval if the row after it has one",
        "bit = (known % BITMAP_ROWS).to(tl.int64)",
        "bit = (known % BITMAP_ROWS).to(tl.int64) + 1",
        "decoding",
    ),
    "later_rows_in_the_first_word": _in_staged_rows(
        "rows that are not in the first word of a group's bitmap are looked up there",
        "group * FEATURES.bitmap + known // BITMAP_ROWS",
        "group * FEATURES.bitmap + known // BITMAP_ROWS * 0",
        "decoding",
    ),
    "bitmap_of_the_last_group": _in_staged_rows(
        "all groups have the intervals of the last",
        "group * FEATURES.bitmap + known",
        "group * 0 + (FEATURES.groups - 1) * FEATURES.bitmap + known",
        "decoding",
    ),
    "bitmap_counts_nothing": Mutant(
        "staging/writes.py",
        "the words of a bitmap do not tell how many intervals come before them",
        "_signed(number << BITMAP_ROWS | word)",
        "_signed((number & 0) << BITMAP_ROWS | word)",
        "decoding",
        variant="one_launch",
        native=False,
    ),
    "bitmap_counts_nothing_in_c": _in_staged_packs(
        "the words of a bitmap do not tell how many intervals come before them",
        "bitmap[index] = before << BITMAP_ROWS | (",
        "bitmap[index] = (before & 0) << BITMAP_ROWS | (",
        "decoding",
    ),
    "later_rows_are_lost": Mutant(
        "staging/writes.py",
        "intervals of rows that are not in the first word of a group's bitmap are in it",
        "(group * per_group + row // BITMAP_ROWS, row, start, ids)",
        "(group * per_group, row, start, ids)",
        "decoding",
        variant="one_launch",
        native=False,
    ),
    "later_rows_are_lost_in_c": Mutant(
        "native/staged_changes.h",
        "rows that are not in the first word of a group's bitmap have no bit",
        "*word += ONE_ROW + bit_of(row);",
        "*word += ONE_ROW + (row < BITMAP_ROWS ? bit_of(row) : 0);",
        "decoding",
        variant="one_launch",
    ),
    "interval_of_the_next_row_indexed": _in_staged_rows(
        "a row has the interval after its own, where bits are counted by an instruction",
        '"popc.b64 $0, $1;"',
        '"popc.b64 $0, $1; add.s32 $0, $0, 1;"',
        "decoding",
    ),
    # Intervals.
    "carried_row_too_narrow": _in_staged_rows(
        "a carried row has six bits",
        "row = ((interval >> 48) & 0x7FFF)",
        "row = ((interval >> 48) & 0x3F)",
        "decoding",
    ),
    "carried_column_is_the_end": _in_staged_rows(
        "a row that a launch carries a write for is gathered without it",
        "tl.where(found, column + length, 0), value, found",
        "tl.where(found, column + length - 1, 0), value, found",
        "decoding",
    ),
    "carried_id_is_signed_in_c": _in_staged_packs(
        "a carried block id loses its sign",
        "payload[number] = word | (uint32_t)self->ids[",
        "payload[number] = word | 0x7FFFFFFF & (uint32_t)self->ids[",
        "",
    ),
    "overwrite_with_nothing_leaves_a_block": _in_staged_rows(
        "a row that is overwritten with nothing has a block",
        "length = tl.where(several, (value >> 16) & 0xFFFF, 1)",
        "length = tl.where(several, tl.maximum((value >> 16) & 0xFFFF, 1), 1)",
        "edges",
    ),
    "overwrite_with_nothing_is_not_found": _in_staged_rows(
        "a row that is overwritten with nothing is gathered as it was",
        "    return tl.where(found, column, 0), tl.where(found, column +",
        "    found = found & (length > 0)\n"
        "    return tl.where(found, column, 0), tl.where(found, column +",
        "edges",
    ),
    "overwrite_with_nothing_does_not_shorten": _in_staged_rows(
        "a row that is overwritten with nothing keeps the number of its blocks on the device",
        "+ row, column + length, mask=written)",
        "+ row, column + length, mask=written & (length > 0))",
        "edges",
    ),
    "slots_ignore_what_is_carried": Mutant(
        "device_code/mapping.py",
        "slots are from the source table, which the same launch is only now writing",
        "fresh = (column >= start) & (column < end)",
        "fresh = (column >= start) & (column < end) & (FEATURES.where == 0)",
        "decoding",
        variant="one_launch",
    ),
    # Writing them.
    "carried_count_is_the_column": _in_staged_rows(
        "a row that a launch carries a write for has a block fewer on the device",
        "+ row, column + length, mask=written)",
        "+ row, column + length - 1, mask=written)",
        "decoding",
    ),
    "half_of_the_carried_is_written": _in_staged_rows(
        "the fifth and later intervals of a program are gathered, but not written",
        "    written = index < staged.num_words\n",
        "    written = (index < staged.num_words) & (tl.arange(0, SIZES.words) < 4)\n",
        "decoding",
    ),
    "second_writer_is_the_first": Mutant(
        "device_code/one_launch_parts.py",
        "all programs that write carried ids write those of the first",
        "_write_words(descriptors, staged, part * SIZES.words,",
        "_write_words(descriptors, staged, part * 0,",
        "decoding",
        small=True,
        variant="one_launch",
    ),
    "written_to_the_first_group": _in_staged_rows(
        "all intervals are written to the first group",
        "group += (index >= first).to(tl.int64)",
        "group += (index >= first).to(tl.int64) * 0",
        "decoding",
    ),
    "first_is_written_to_the_group_before": _in_staged_rows(
        "the first interval of each group is written to the group before it",
        "group += (index >= first).to(tl.int64)",
        "group += (index > first).to(tl.int64)",
        "decoding",
    ),
    "groups_a_word_apart": _in_staged_rows(
        "a group's intervals are counted up to its number among the words of the bitmap",
        "following * FEATURES.bitmap",
        "following",
        "decoding",
    ),
    # Intervals of several ids.
    "first_piece_is_not_written": _in_staged_rows(
        "the list of pieces of intervals of several ids is read from its second entry on",
        "index, piece = _piece(staged, which, FEATURES)",
        "index, piece = _piece(staged, which + 1, FEATURES)",
    ),
    "ids_a_place_further": _in_staged_rows(
        "the ids of an interval are taken from the place after theirs",
        "value = tl.where(several, place, value)",
        "value = tl.where(several, place + 1, value)",
    ),
    "ids_a_place_further_in_parameters": _in_staged_rows(
        "ids are taken from the place after theirs where they are parameters",
        "_half(staged.words, tl.where(mask, first + places, 0), FEATURES.indexed)",
        "_half(staged.words, tl.where(mask, first + places + 1, 0), FEATURES.indexed)",
    ),
    "halves_a_place_further_indexed": _in_staged_rows(
        "ids and pieces are taken from the place after theirs where parameters are indexed",
        "[index.to(tl.int64) * 4],",
        "[index.to(tl.int64) * 4 + 4],",
    ),
    "every_piece_is_the_first": _in_staged_rows(
        "of a long interval only the first ids are written, once for each piece",
        "tl.sum(piece, axis=0) * PIECE_IDS",
        "tl.sum(piece, axis=0) * 0",
        "long_request",
    ),
    "gathered_row_is_not_written": Mutant(
        "device_code/gathering.py",
        "ids in memory are gathered, and left to nobody to be written",
        "tl.store(source, ids, mask=mask)",
        "tl.store(source, ids, mask=mask & (nth < 0))",
        "long_request",
        variant="one_launch",
    ),
    "only_what_a_window_shows_is_written": Mutant(
        "device_code/gathering.py",
        "of ids in memory those before the sliding window are not written",
        "tl.store(source, ids, mask=mask)",
        "tl.store(source, ids, mask=mask & (nth >= (first_column - first)[:, None]))",
        "window",
        variant="one_launch",
    ),
    "row_of_no_request_is_not_written": _in_staged_rows(
        "ids in memory are not written if no request of the batch has their row",
        "    return found == 0\n",
        "    return found < 0\n",
        "long_request",
    ),
    "written_twice": _in_staged_rows(
        "ids in memory are written by a gather, and by the program for their piece",
        "    return found == 0\n",
        "    return found >= 0\n",
        "edges",
    ),
    "pieces_in_place_of_ids": _in_staged_rows(
        "ids among the parameters are looked for where the list of pieces is",
        "first = 2 * (FEATURES.payload + _listed(staged))",
        "first = 2 * (FEATURES.payload + staged.num_words)",
    ),
    "ids_after_intervals_elsewhere": _in_staged_rows(
        "ids that are in memory of their own are looked for after the intervals",
        "if FEATURES.where == LISTED:\n        first +=",
        "if FEATURES.where >= 0:\n        first +=",
        "long_request",
    ),
    "ids_in_place_of_intervals": _in_staged_rows(
        "ids that follow intervals in memory are looked for where these begin",
        "first += (_listed(staged) + 1) // 2 * 2",
        "first += (_listed(staged) + 1) // 2 * 0",
        "edges",
    ),
    "ids_of_the_first_in_memory": _in_staged_rows(
        "the places of ids in memory are taken for elements",
        "place = place * ALIGNED_IDS",
        "place = place * 1",
        "edges",
    ),
    "intervals_after_a_payload": _in_staged_rows(
        "intervals that are in memory are looked for as far on as those among the parameters",
        "found = tl.load(staged.staging + index, mask=mask, other=0)",
        "found = tl.load(staged.staging + index + FEATURES.payload, mask=mask, other=0)",
        "decoding",
    ),
    "ids_a_place_before_in_c": _in_staged_packs(
        "ids of intervals are told to begin a place before theirs",
        "uint64_t place = (uint64_t)((ids - first) / aligned);",
        "uint64_t place = (uint64_t)((ids - first) / aligned) - 1;",
    ),
    # Options.
    "carried_tables_ignored": _in_one_launch_kernels(
        "a caller's tables are left alone, and the persistent ones written",
        "_group(descriptors, index, num_slots, target, slots, computed)",
        "_group(descriptors, index, num_slots, None, slots, computed)",
        "custom_outputs",
    ),
    "carried_tables_of_the_first_group": _in_one_launch_kernels(
        "all groups are gathered into the caller's table of the first",
        "place = tl.full([1], targets, tl.int64) + index",
        "place = tl.full([1], targets, tl.int64) + index * 0",
        "custom_outputs",
    ),
    "carried_slots_packed": _in_one_launch_kernels(
        "a group's slots are taken to follow those of the one before",
        "slots + index * slots_stride * 8",
        "slots + index * num_slots * 8",
        "custom_outputs",
    ),
    "carried_window_ignored": _in_one_launch_kernels(
        "columns before the sliding window are gathered",
        "computed = num_computed_tokens.to(tl.int64)\n",
        "computed = num_computed_tokens.to(tl.int64) * 0\n",
        "window",
    ),
    "carried_int64_mapping_as_int32": _in_one_launch_kernels(
        "the halves of an int64 mapping are taken for its entries",
        "idx_mapping, index_step, query_start_loc, positions, num_reqs, num_rows, in_memory",
        "idx_mapping, 1, query_start_loc, positions, num_reqs, num_rows, in_memory",
    ),
}
