"""Wrong kernels: copies of `bt_kernels` with one defect each, which `check` must reject.

A mutant is the shipped package under another name with one piece of text replaced, and a variant
file beside it, in a folder as `--kernels` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import bt_kernels

SOURCE = Path(bt_kernels.__file__).parent


@dataclass(frozen=True)
class Mutant:
    """A defect: in `file` of `bt_kernels`, `old` becomes `new`.

    Args:
        what: the defect, as a user would see it.
        file: where it is.
        old: text that occurs `times` times.
        new: what stands in its place.
        workload: the conformance workload that shows it; empty where `check` cannot see it, and
            a test of its own does.
        variant: the variant that shows it.
        times: how often the text occurs; all are replaced.
        native: whether helpers in C are used where they can be had. `False` for a defect of Python
            code that they take the place of.
    """

    what: str
    file: str
    old: str
    new: str
    workload: str = "corners"
    variant: str = "fused"
    times: int = 1
    native: bool = True


_LAUNCH_BOTH = "        launches.gather_slots(\n"
_COPY_LIVE = """\
            block_ids = tl.load(
                source + row * width + columns, mask=mask & (columns >= first_column), other=0
            )
            tl.store(target + columns, block_ids, mask=mask)
"""
_CP_FIELDS = """\
                layout.cp_sizes[group],
                layout.cp_rank if layout.dcp_sharded[group] else 0,
                layout.cp_interleave if layout.dcp_sharded[group] else 1,
"""
_LOOK_UP = "block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)"
_TO_APPLY = "        if self._staged:\n"
_REFUSE = (
    "            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)\n"
)

MUTANTS = {
    # What has gone wrong in engines: the rows of HISTORY.
    "stale_slots": Mutant(
        "slots past the last token keep what the step before left there",
        "device_code/parts.py",
        "for first in range(num_tokens, end, BLOCK):",
        "for first in range(end, end, BLOCK):",
        "shrinking",
    ),
    "dirty_rows_kept": Mutant(
        "rows that a larger batch left are not zeroed",
        "device_tables/tables.py",
        "num_rows = max(num_reqs_padded, dirty)",
        "num_rows = num_reqs_padded",
        "shrinking",
    ),
    "first_column_zeroed": Mutant(
        "only column 0 of a row without a request is zeroed",
        "device_code/parts.py",
        "tl.store(target + columns, tl.zeros([BLOCK], dtype=tl.int32), mask=columns < length)",
        "tl.store(target + columns, tl.zeros([BLOCK], dtype=tl.int32), mask=columns < 1)",
        "shrinking",
    ),
    "tail_written": Mutant(
        "columns of a live row past its blocks are written, from what freed blocks left there",
        "device_code/parts.py",
        "length = tl.load(num_blocks + row)",
        "length = width",
    ),
    "dummy_gathers_row_before": Mutant(
        "a dummy request gathers row -1: the last of the group before",
        "device_code/parts.py",
        "    if row < 0:\n",
        "    if row < -1:\n",
        "dummies",
    ),
    "dummy_gathers_row_0": Mutant(
        "a dummy request gathers the blocks of row 0",
        "device_code/parts.py",
        "    if row < 0:\n",
        "    row = tl.maximum(row, 0)\n    if row < 0:\n",
        "dummies",
    ),
    "dummy_writes_through_row_before": Mutant(
        "tokens of a dummy request have slots of row -1",
        "device_code/parts.py",
        "capacity = tl.where(row < 0, 0, capacity)",
        "capacity = tl.where(row < -1, 0, capacity)",
        "dummies",
    ),
    "dummy_writes_through_row_0": Mutant(
        "tokens of a dummy request have slots of row 0",
        "device_code/parts.py",
        "    capacity = tl.where(row < 0, 0, capacity)\n",
        "    row = tl.maximum(row, 0)\n",
        "dummies_int32",
    ),
    "window_keeps_freed_ids": Mutant(
        "columns before the sliding window keep the ids of freed blocks",
        "device_code/parts.py",
        "mask=mask & (columns >= first_column), other=0",
        "mask=mask, other=0",
        "window",
    ),
    "unsharded_group_is_sharded": Mutant(
        "context parallelism is applied to a group that is not sharded",
        "device_tables/state.py",
        _CP_FIELDS,
        "layout.cp_size, layout.cp_rank, layout.cp_interleave,\n",
        "cp2_rank0",
    ),
    "ring_group_looked_up": Mutant(
        "a one-column ring group is met by the generic formula, at any position",
        "device_tables/state.py",
        "layout.widths[group] * layout.tokens_per_block[group] * enabled,",
        "layout.widths[group] * layout.tokens_per_block[group] if enabled else 2**40,",
        "disabled",
    ),
    "ring_never_waits": Mutant(
        "a host buffer is filled again although the device has yet to read it",
        "staging/host_ring.py",
        "            self._events.wait_for(self._current)\n",
        "            pass\n",
        "",
    ),
    "ring_forgets_readers": Mutant(
        "nothing marks when the readers of a host buffer are done",
        "staging/host_ring.py",
        "            self._events.record(self._current)\n",
        "            pass\n",
        "",
    ),
    "ring_a_buffer_short": Mutant(
        "as many host buffers as may be in flight, so that none is free",
        "staging/host_ring.py",
        "self.depth = 2 if in_flight is None else in_flight + 1",
        "self.depth = 2 if in_flight is None else in_flight",
        "",
    ),
    "graph_freezes_a_pointer": Mutant(
        "each step's number of blocks has another address, of which a captured graph knows one",
        "device_tables/tables.py",
        _TO_APPLY,
        _TO_APPLY + "            old = (self.num_blocks_on_device, self.descriptors)\n"
        "            self.old = (*getattr(self, 'old', ()), *old)  # a graph still reads it\n"
        "            self.num_blocks_on_device = old[0].clone()\n"
        "            self.descriptors = old[1].clone()\n"
        "            self.init_block_table_layout_tensors()\n",
        "",
    ),
    "compiles_for_sizes": Mutant(
        "sizes of 1 and multiples of 16 have kernels of their own",
        "device_code/fields.py",
        'STEP_SIZES = ["first_record", "num_reqs", "num_rows", "out_stride", "out_size"]',
        "STEP_SIZES = []",
        "",
    ),
    "row_may_overflow": Mutant(
        "a row may become a column wider than its table",
        "staging/writes.py",
        "if end > width:",
        "if end > width + 1:",
        native=False,
    ),
    "row_may_overflow_in_c": Mutant(
        "a row may become a column wider than its table, by the helper in C",
        "native/staged.c",
        "if (end > self->groups[group].width)",
        "if (end > self->groups[group].width + 1)",
    ),
    "int64_mapping_gathered_as_int32": Mutant(
        "a gather takes the halves of an int64 mapping for its entries",
        "device_code/parts.py",
        "row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    if row < 0",
        "idx_mapping = idx_mapping.to(tl.pointer_type(tl.int32), bitcast=True)\n"
        "    row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    if row < 0",
    ),
    "int64_mapping_in_slots_as_int32": Mutant(
        "slots take the halves of an int64 mapping for its entries",
        "device_code/parts.py",
        "row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    first_token",
        "idx_mapping = idx_mapping.to(tl.pointer_type(tl.int32), bitcast=True)\n"
        "    row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    first_token",
    ),
    "int32_mapping_as_int64": Mutant(
        "two entries of an int32 mapping are taken for one",
        "device_code/parts.py",
        "row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    first_token",
        "idx_mapping = idx_mapping.to(tl.pointer_type(tl.int64), bitcast=True)\n"
        "    row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    first_token",
        "corners_int32",
    ),
    # Other defects, in features and in the plain path.
    "window_off_by_one": Mutant(
        "the sliding window begins a token too late",
        "device_code/parts.py",
        "first_token = tl.load(num_computed_tokens + row) - reach",
        "first_token = tl.load(num_computed_tokens + row) - reach + 1",
        "window",
    ),
    "window_by_batch_index": Mutant(
        "computed tokens are looked up by batch index instead of row",
        "device_code/parts.py",
        "first_column = _first_column(descriptor, num_computed_tokens, row)",
        "first_column = _first_column(descriptor, num_computed_tokens, batch_index)",
        "window",
    ),
    "window_with_context_parallelism": Mutant(
        "the sliding window stays on with context parallelism",
        "device_tables/state.py",
        "layout.reaches",
        "layout.sliding_window_reach",
        "cp2_rank0",
        times=2,
    ),
    "interleave_ignored": Mutant(
        "tokens go to the ranks one by one whatever the interleave",
        "device_tables/state.py",
        "layout.cp_interleave if layout.dcp_sharded[group] else 1,",
        "1,",
        "cp4_rank1",
    ),
    "every_rank_has_all": Mutant(
        "a rank has slots for the tokens of the others",
        "device_code/parts.py",
        "            inside &= mine\n",
        "",
        "cp2_rank1",
    ),
    "custom_rows_past_the_padded": Mutant(
        "rows of a caller's tables are zeroed past what the caller reads",
        "device_tables/tables.py",
        "return num_reqs_padded, dirty\n",
        "return out[0].shape[0], dirty\n",
        "custom_outputs",
    ),
    "custom_slots_not_padded": Mutant(
        "a caller's slots are padded as far as the caller reads, not to their end",
        "launches/kernels.py",
        "(out, out.stride(0), out.shape[1])",
        "(out, out.stride(0), out.shape[1] - 2)",
        "custom_outputs",
    ),
    "custom_slots_packed": Mutant(
        "rows of a caller's slots are taken to be as long as those of the persistent ones",
        "launches/kernels.py",
        "(out, out.stride(0), out.shape[1])",
        "(out, out.shape[1] + 1, out.shape[1])",
        "custom_outputs",
    ),
    "custom_outputs_ignored": Mutant(
        "a caller's tables are left alone, and the persistent ones written",
        "device_code/parts.py",
        "address = tl.load(descriptor + TARGET) if out_ptrs is None else tl.load(out_ptrs + group)",
        "address = tl.load(descriptor + TARGET)",
        "custom_outputs",
    ),
    "slots_from_gathered": Mutant(
        "slots from the gathered table, which the same launch is only now writing",
        "device_code/parts.py",
        _LOOK_UP,
        "gathered = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))\n        "
        + _LOOK_UP.replace("source + row", "gathered + batch_index"),
    ),
    "every_program_pads": Mutant(
        "each request pads behind its tokens, where the programs of others write theirs",
        "device_code/parts.py",
        "            PAD,\n            BLOCK,\n        )\n    else:\n        _pad_slots(\n",
        "            PAD,\n            BLOCK,\n        )\n"
        "        _pad_slots(\n"
        "            descriptors, query_start_loc, out, out_stride, out_size, batch_index + 1,\n"
        "            group, PAD, BLOCK\n"
        "        )\n"
        "    else:\n        _pad_slots(\n",
    ),
    "off_by_one_block": Mutant(
        "the next block instead of the position's own",
        "device_code/parts.py",
        "column = position // block_size",
        "column = (position + 1) // block_size",
    ),
    "identity_mapping": Mutant(
        "the batch index taken for the request row",
        "device_code/parts.py",
        "row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    first_token",
        "row = batch_index\n    first_token",
    ),
    "first_groups_stride": Mutant(
        "rows of every group as wide as those of the first",
        "device_code/parts.py",
        "width = tl.load(descriptor + WIDTH)\n    block_size",
        "width = tl.load(descriptors + WIDTH)\n    block_size",
    ),
    "wrong_row": Mutant(
        "staged writes go to the next row",
        "device_code/parts.py",
        "row = tl.load(staging + record + 1).to(tl.int64)",
        "row = tl.load(staging + record + 1).to(tl.int64) + 1",
    ),
    "int32_slots": Mutant(
        "slots wrap at 2**31",
        "device_code/parts.py",
        "slot = block_id.to(tl.int64) * block_size + position % block_size",
        "slot = (block_id * block_size.to(tl.int32)).to(tl.int64) + position % block_size",
    ),
    "unbounded_positions": Mutant(
        "positions outside of the row are looked up all the same",
        "device_code/parts.py",
        "inside = (position >= 0) & (position < capacity)",
        "inside = (position >= 0)",
    ),
    "first_pass_only": Mutant(
        "columns past the first block of columns are not gathered",
        "device_code/parts.py",
        "        for first in range(0, length, BLOCK):\n            columns",
        "        for first in range(0, min(length, BLOCK), BLOCK):\n            columns",
        "long",
    ),
    "zeroed_once": Mutant(
        "columns past the first block of columns are not zeroed",
        "device_code/parts.py",
        "    for first in range(0, length, BLOCK):\n        columns",
        "    for first in range(0, min(length, BLOCK), BLOCK):\n        columns",
        "long",
    ),
    "overwrite_appends": Mutant(
        "what was staged before an overwrite is still written",
        "staging/writes.py",
        "            if overwrite:\n                intervals",
        "            if overwrite and row not in intervals:\n                intervals",
        "edges",
        native=False,
    ),
    "overwrite_appends_in_c": Mutant(
        "what was staged before an overwrite is still written, by the helper in C",
        "native/staged.c",
        "        if (write->overwrite) {\n            self->num_ids",
        "        if (0 && write->overwrite) {\n            self->num_ids",
        "edges",
    ),
    "ids_a_place_further_in_c": Mutant(
        "records name the place after that of their ids, by the helper in C",
        "native/staged.c",
        "to[4] = (int32_t)(first + (ids - start));",
        "to[4] = (int32_t)(first + (ids - start) + 1);",
    ),
    "refused_call_counts_in_c": Mutant(
        "of a call that is refused, requests before the wrong one count, by the helper in C",
        "native/staged.c",
        "    while (index-- > 0) {\n        const Write *write",
        "    while (0 && index-- > 0) {\n        const Write *write",
    ),
    "first_tokens_only": Mutant(
        "tokens past the first block of tokens of a request get no slot",
        "device_code/parts.py",
        "for first in range(first_token, end_token, BLOCK):",
        "for first in range(first_token, min(first_token + BLOCK, end_token), BLOCK):",
        "long_request",
    ),
    "first_ids_only": Mutant(
        "block ids past the first block of a staged write are not written",
        "device_code/parts.py",
        "for first in range(0, length, BLOCK):\n        offsets",
        "for first in range(0, min(length, BLOCK), BLOCK):\n        offsets",
        "long_request",
    ),
    "end_of_row_is_inside": Mutant(
        "the first position past a row is taken for one of the row",
        "device_code/parts.py",
        "(position < capacity)",
        "(position <= capacity)",
        "edges",
    ),
    "negative_is_first": Mutant(
        "a negative position is taken for the row's first",
        "device_code/parts.py",
        "inside = (position >= 0) & ",
        "position = tl.maximum(position, 0)\n        inside = ",
        "edges",
    ),
    "empty_batch_returns": Mutant(
        "an empty batch leaves rows and slots as they are",
        "fusions.py",
        _LAUNCH_BOTH,
        "        if not num_reqs:\n            return views, slots\n" + _LAUNCH_BOTH,
        "edges",
    ),
    "pads_late": Mutant(
        "padding starts behind garbage after the tokens, not where they end",
        "device_code/parts.py",
        "num_tokens = tl.load(query_start_loc + num_reqs)\n",
        "num_tokens = tl.load(query_start_loc + num_reqs) + 5\n",
    ),
    "staging_extends_the_callers_list": Mutant(
        "the caller's list of ids is kept and extended",
        "staging/writes.py",
        'contents.append(array("i", ids) if type(ids) is list else _int32_of(ids))',
        "contents.append(type('Kept', (array,), {'extend': lambda self, more, ids=ids:"
        " array.extend(self, more) or ids.extend(more)})('i', ids))",
        native=False,
    ),
    "restore_forgets_blocks": Mutant(
        "restore does not put the number of blocks back",
        "device_tables/state.py",
        "self.num_blocks[:] = state.num_blocks\n",
        "pass\n",
    ),
    "dummy_tables_keep_dirty_rows": Mutant(
        "dummy tables are zeroed as far as they are read, but not where a batch was",
        "device_tables/tables.py",
        "num_rows, dirty = self._rows_to_gather(0, num_reqs, None)",
        "num_rows, dirty = num_reqs, 0",
    ),
    "slots_move": Mutant(
        "slots are in a new buffer at every step",
        "fusions.py",
        _LAUNCH_BOTH,
        "        self.slot_mappings = self.slot_mappings.clone()\n" + _LAUNCH_BOTH,
    ),
    "slots_view_of_another_shape": Mutant(
        "the returned slots are packed, not rows of the buffer",
        "device_tables/state.py",
        "lambda num_tokens: slots[:, :num_tokens]",
        "lambda num_tokens: slots.as_strided((slots.shape[0], num_tokens), (num_tokens, 1))",
    ),
    "separate_slots_keep_padding": Mutant(
        "padding is 0, seen through the separate launches",
        "device_code/parts.py",
        "tl.full([BLOCK], PAD, dtype=tl.int64)",
        "tl.full([BLOCK], 0, dtype=tl.int64)",
        variant="baseline",
    ),
    # What only a random sequence of calls meets.
    "gather_sees_what_is_staged": Mutant(
        "a gather between staging and applying takes blocks that have not been written",
        "device_tables/tables.py",
        _REFUSE,
        _REFUSE + "        self.num_blocks_on_device.copy_(torch.from_numpy(self.num_blocks))\n",
        "",
    ),
    "restore_forgets_applied_blocks": Mutant(
        "restore does not put back the number of blocks that a gather sees",
        "device_tables/state.py",
        "        self._staged.clear()\n        self._upload_num_blocks()\n",
        "        self._staged.clear()\n",
        "",
    ),
    "redirect_does_not_count": Mutant(
        "ids redirected to the null block are not staged",
        "staging/writes.py",
        'return [array("i", [NULL_BLOCK_ID]) * len(ids) for ids in contents]',
        'return [array("i") for _ in contents]',
        "",
        native=False,
    ),
    "redirect_ignored_in_c": Mutant(
        "ids are staged as they are although they are redirected, by the helper in C",
        "native/staged.c",
        "if (redirect && arguments->num_ids > 0)",
        "if (0 && redirect && arguments->num_ids > 0)",
        "",
    ),
    # A step in one launch: marks, and writes that the launch carries.
    "mark_of_an_older_step": Mutant(
        "a row that is not written has the columns of a mark that an older step left",
        "device_code/one_launch_parts.py",
        "staged = marked & (_pick(marks, 3) == step)",
        "staged = marked & (_pick(marks, 3) > 0)",
        variant="one_launch_graph",
    ),
    "ids_of_a_step_a_place_further_in_c": Mutant(
        "marks and records of a step name the place after that of their ids",
        "native/staged.c",
        "to[4] = (int32_t)(ids - start);",
        "to[4] = (int32_t)(ids - start) + 1;",
        variant="one_launch",
    ),
    "span_begins_late": Mutant(
        "a long prompt has a token between what its tile maps and its first span",
        "device_code/one_launch_parts.py",
        "place = begin + TOKENS + (span",
        "place = begin + TOKENS + 1 + (span",
        "long",
        variant="one_launch",
    ),
    "span_of_the_next_tile": Mutant(
        "a span is looked for among the tiles after its own",
        "device_code/one_launch_parts.py",
        "tile = tl.sum(tl.where(here, tiles, 0), axis=0)",
        "tile = tl.sum(tl.where(here, tiles + 1, 0), axis=0)",
        "long",
        variant="one_launch",
    ),
    "span_runs_on": Mutant(
        "the last span of a request maps tokens of the next one by its row",
        "device_code/one_launch_parts.py",
        "past_last = tl.sum(tl.where(here, end, 0), axis=0)",
        "past_last = tl.sum(tl.where(here, end + 1, 0), axis=0)",
        "long",
        variant="one_launch",
    ),
    "fours_of_what_is_written": Mutant(
        "columns that the same launch is only now writing are copied from the source table",
        "device_code/one_launch_parts.py",
        "tl.where(staged, tl.minimum(start, length), length) // 4",
        "length // 4",
        "decoding",
        variant="one_launch",
    ),
    "columns_between_programs": Mutant(
        "four columns of a long row are those of no program",
        "device_code/one_launch_parts.py",
        "tl.where(shared, tl.minimum(length, OWN_COLUMNS), length)",
        "tl.where(shared, tl.minimum(length, OWN_COLUMNS - 4), length)",
        "long",
        variant="one_launch",
    ),
    "rest_of_a_piece": Mutant(
        "what is left of a piece of a long row after its fours is not copied",
        "device_code/one_launch_parts.py",
        "tl.minimum(length, past_last),",
        "tl.minimum(num_fours * 4, past_last),",
        "long",
        variant="one_launch",
    ),
    "offset_by_the_shift": Mutant(
        "a slot lies in its block at the remainder of twice the block's size",
        "device_code/one_launch_parts.py",
        "offset = position & (block_size - 1)",
        "offset = position & (2 * block_size - 1)",
        variant="one_launch",
    ),
    "ids_of_the_first_stay": Mutant(
        "the first of the writes of several ids that a launch carries is not made",
        "device_code/one_launch_parts.py",
        "(tl.cumsum(apart, axis=0) == which + 1)",
        "(tl.cumsum(apart, axis=0) == which + 2)",
        variant="one_launch",
    ),
    "ids_a_place_further": Mutant(
        "the ids of a write that a launch carries are taken from the place after theirs",
        "device_code/one_launch_parts.py",
        "value = tl.where(apart, value & 0xFFFF, value)",
        "value = tl.where(apart, (value & 0xFFFF) + 1, value)",
        variant="one_launch",
    ),
    "carried_row_too_narrow": Mutant(
        "a bit of a carried row is cut off, also of the row that means that nothing is written",
        "device_code/one_launch_parts.py",
        "return (place >> 15) & 0x7FFF, ",
        "return (place >> 15) & 0x3FFF, ",
        "decoding",
        variant="one_launch",
    ),
    "carried_count_is_the_column": Mutant(
        "a row that a launch carries a write for has a block fewer on the device",
        "device_code/one_launch_parts.py",
        "tl.store(num_blocks + row, column + length, mask=written)",
        "tl.store(num_blocks + row, column + length - 1, mask=written)",
        "decoding",
        variant="one_launch",
    ),
    "slots_ignore_what_is_carried": Mutant(
        "slots are from the source table, which the same launch is only now writing",
        "device_code/one_launch_parts.py",
        "fresh = (column >= its_start) & (column < its_end)",
        "fresh = (column >= its_start) & (column < its_end) & (SLOTS == 0)",
        "decoding",
        variant="one_launch",
    ),
    "half_of_the_carried_is_written": Mutant(
        "writes in the second half of a group's are gathered, but not written",
        "device_code/one_launch_parts.py",
        "    written = row != NO_ROW\n",
        "    half: tl.constexpr = words.shape[0] // 2\n"
        "    written = (row != NO_ROW) & (tl.arange(0, words.shape[0]) < half)\n",
        "decoding",
        variant="one_launch",
    ),
    "carried_of_the_last_group": Mutant(
        "all groups have the writes of the last",
        "device_code/one_launch_parts.py",
        "            if group == which:",
        "            if which == GROUPS - 1:",
        "decoding",
        variant="one_launch",
    ),
    "carried_of_the_first_group_indexed": Mutant(
        "all groups have the writes of the first, where parameters are indexed",
        "device_code/one_launch_parts.py",
        "[(group * SLOTS + slot) * 8],",
        "[(group * 0 + slot) * 8],",
        "decoding",
        variant="one_launch",
    ),
    "carried_column_is_the_end": Mutant(
        "a row that a launch carries a write for is gathered without it",
        "device_code/one_launch_parts.py",
        "return column, tl.where(word == 0, 0, column + length), value",
        "return column, tl.where(word == 0, 0, column + length - 1), value",
        "decoding",
        variant="one_launch",
    ),
    "carried_id_is_signed_in_c": Mutant(
        "a carried block id loses its sign",
        "native/staged.c",
        "return word | (uint32_t)self->ids[",
        "return word | 0x7FFFFFFF & (uint32_t)self->ids[",
        "",
        variant="one_launch",
    ),
    # A launch that never changes.
    "last_program_has_an_old_header": Mutant(
        "the last program does what an older step had for it",
        "one_launch/fixed.py",
        "found.reshape(self.num_programs, size)[:] = words",
        "found.reshape(self.num_programs, size)[:-1] = words",
        variant="one_launch_graph",
        native=False,
    ),
    "no_step_has_marks": Mutant(
        "marks that were never made are taken for those of a step that stages nothing",
        "device_code/one_launch_parts.py",
        "marked = tl.where(step > 0, row, -1) >= 0",
        "marked = row >= 0",
        "shrinking",
        variant="one_launch_graph",
    ),
    "num_records_not_shifted": Mutant(
        "bits that lie below the number of records are taken for some of it",
        "device_code/one_launch_kernels.py",
        "num_records = ((last >> 1) & 0x7FFFFFFF)",
        "num_records = (last & 0x7FFFFFFF)",
        variant="one_launch_graph",
    ),
    "int64_mapping_of_headers_as_int32": Mutant(
        "the halves of an int64 mapping are taken for its entries, where headers tell of it",
        "device_code/one_launch_kernels.py",
        "index_step = 1 + (last & 1).to(tl.int32)",
        "index_step = 1 + (last & 0).to(tl.int32)",
        variant="one_launch_graph",
    ),
    "options_of_an_older_step": Mutant(
        "options are written to a buffer once, and then those of an older step are taken",
        "one_launch/fixed.py",
        "        if options:\n",
        "        if options and not view[self.num_programs * HEADER_FIELDS * WORDS + 2]:\n",
        "window",
        variant="one_launch_graph",
    ),
    # A whole step in a caller's graph.
    "never_replayed_is_forgotten": Mutant(
        "writes that were published and never replayed are not applied before those that follow",
        "one_launch/captured.py",
        "if self._applied.item() != step:",
        "if self._applied.item() is None:",
        "",
        variant="one_launch",
    ),
    "publish_does_not_wait": Mutant(
        "what a replay has yet to read is written over by the next publication",
        "staging/host_ring.py",
        "            self._read.synchronize()\n",
        "            pass\n",
        "",
        variant="one_launch",
    ),
    "dirty_rows_left_to_a_replay": Mutant(
        "rows that a larger batch left are zeroed by the next replay alone, which may never be",
        "one_launch/tables.py",
        "        self._zero_dirty_rows(num_reqs_padded)\n"
        "        writes.publish_step(self, self._staged, batch, num_reqs_padded, options)\n",
        "        num_rows = max(num_reqs_padded, self.num_dirty_rows)\n"
        "        self.num_dirty_rows = num_reqs_padded\n"
        "        writes.publish_step(self, self._staged, batch, num_rows, options)\n",
        "",
        variant="one_launch",
    ),
}

HISTORY = {
    "slots between the real and the padded token count keep the last step's": ("stale_slots",),
    "rows left by a larger batch, or only column 0 of them cleared": (
        "dirty_rows_kept",
        "first_column_zeroed",
    ),
    "the tail of a live row is stale: as documented, it is not written": ("tail_written",),
    "batch index -1 used as a row": (
        "dummy_gathers_row_before",
        "dummy_gathers_row_0",
        "dummy_writes_through_row_before",
        "dummy_writes_through_row_0",
    ),
    "columns before the sliding window keep freed ids": ("window_keeps_freed_ids",),
    "context parallelism in a group that is not sharded": ("unsharded_group_is_sharded",),
    "a one-column ring group met by the generic formula": ("ring_group_looked_up",),
    "a pinned buffer rewritten before the device has read it": (
        "ring_never_waits",
        "ring_forgets_readers",
        "ring_a_buffer_short",
    ),
    "a captured graph froze one of a ring's pointers": ("graph_freezes_a_pointer",),
    "a second specialization at R == 1 or T % 16 == 0": ("compiles_for_sizes",),
    "appending past the row's width": ("row_may_overflow", "row_may_overflow_in_c"),
    "int32 and int64 idx_mapping taken for one another": (
        "int64_mapping_gathered_as_int32",
        "int64_mapping_in_slots_as_int32",
        "int32_mapping_as_int64",
    ),
}
"""What has gone wrong in engines, and the mutants that have it again."""

# Mutants that `check` cannot see, by who does.
IN_A_SEQUENCE = (
    "gather_sees_what_is_staged",
    "restore_forgets_applied_blocks",
    "redirect_does_not_count",
    "redirect_ignored_in_c",
    "carried_id_is_signed_in_c",
)
"""Found by the random sequences of `test_state_machine`."""

LATE = ("ring_never_waits", "ring_forgets_readers")
"""Found where the device is late, in `test_host_ring`."""

LATE_AS_PROMISED = ("ring_a_buffer_short",)
"""Found there where the device is as late as was promised."""

UNREPLAYED = ("never_replayed_is_forgotten", "dirty_rows_left_to_a_replay")
"""Found where publications are not replayed, in `test_captured_writes`."""

OVERWRITTEN = ("publish_does_not_wait",)
"""Found where the device is late, in `test_host_ring`, and in `test_late_device` on a GPU."""

FROZEN = ("graph_freezes_a_pointer",)
"""Found by replays, and by the addresses that launches are given, in `test_addresses`."""

SPECIALIZED = ("compiles_for_sizes",)
"""Found by the kernels that a sweep of sizes compiles, in `test_compiled_variants`."""

RACES = {
    "every_program_pads": "slot_mappings[",
    "slots_ignore_what_is_carried": "block_tables[",
    "fours_of_what_is_written": "block_tables[",
    "span_runs_on": "slot_mappings[",
}
"""Mutants whose values are right as long as programs run one after another, and where they race."""

INTERPRETED = {"half_of_the_carried_is_written", "carried_of_the_last_group"}
"""Mutants that a GPU does not have: it carries more writes than are made, and indexes them."""

COMPILED = {"carried_of_the_first_group_indexed"}
"""Mutants that only a GPU has."""

# A kernel that reads or writes past its table may end the CUDA context of the whole process, so
# these run under the interpreter only, where every access is checked before it is made.
OUT_OF_BOUNDS = {
    "dummy_gathers_row_before",
    "dummy_writes_through_row_before",
    "ring_group_looked_up",
    "row_may_overflow",
    "row_may_overflow_in_c",
    "ids_a_place_further_in_c",
    "ids_of_a_step_a_place_further_in_c",
    "carried_row_too_narrow",
    "last_program_has_an_old_header",
    "num_records_not_shifted",
    "options_of_an_older_step",
    "int32_mapping_as_int64",
    "custom_slots_packed",
    "first_groups_stride",
    "wrong_row",
    "unbounded_positions",
}


def write_mutant(folder: Path, name: str) -> Path:
    """Writes a mutant's variant file, `<name>.py`, and its package; returns `folder`.

    Raises:
        AssertionError: when the text to replace does not occur as often as it is said to.
    """
    mutant = MUTANTS[name]
    package = f"bt_kernels_{name}"
    for path in (*SOURCE.rglob("*.py"), *SOURCE.rglob("*.c")):
        target = folder / "_mutants" / package / path.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path.relative_to(SOURCE).as_posix() == mutant.file:
            assert text.count(mutant.old) == mutant.times, (name, text.count(mutant.old))
            text = text.replace(mutant.old, mutant.new)
        target.write_text(text.replace("bt_kernels", package), encoding="utf-8")
    (folder / f"{name}.py").write_text(
        f'"""Mutant: {mutant.what}."""\n\n'
        "import sys\nfrom pathlib import Path\n\n"
        'sys.path.insert(0, str(Path(__file__).parent / "_mutants"))\n'
        f"from {package}.variants.{mutant.variant} import Variant as Shipped\n\n\n"
        "class Variant(Shipped):\n"
        f"    native = {mutant.native}\n",
        encoding="utf-8",
    )
    return folder
