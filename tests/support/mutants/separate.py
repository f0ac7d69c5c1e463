"""Mutants of the separate kernels, and of host code that all variants share."""

from __future__ import annotations

from functools import partial

from support.mutants.mutant import Mutant

_LAUNCH_BOTH = "        launches.gather_slots(\n"
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

_in_parts = partial(Mutant, "device_code/parts.py")
_in_tables = partial(Mutant, "device_tables/tables.py")
_in_state = partial(Mutant, "device_tables/state.py")
_in_host_ring = partial(Mutant, "staging/host_ring.py")
_in_writes = partial(Mutant, "staging/writes.py", native=False)
_in_staged_changes = partial(Mutant, "native/staged_changes.h")

MUTANTS = {
    # What has gone wrong in engines: the rows of HISTORY.
    "stale_slots": _in_parts(
        "slots past the last token keep what the step before left there",
        "for first in range(num_tokens, end, BLOCK):",
        "for first in range(end, end, BLOCK):",
        "shrinking",
    ),
    "dirty_rows_kept": _in_tables(
        "rows that a larger batch left are not zeroed",
        "num_rows = max(num_reqs_padded, dirty)",
        "num_rows = num_reqs_padded",
        "shrinking",
    ),
    "first_column_zeroed": _in_parts(
        "only column 0 of a row without a request is zeroed",
        "written = tl.where(row < 0, width.to(tl.int32), length)",
        "written = tl.where(row < 0, 1, length)",
        "shrinking",
    ),
    "tail_written": _in_parts(
        "columns of a live row past its blocks are written, from what freed blocks left there",
        "length = tl.load(num_blocks + row, mask=row >= 0, other=0)",
        "length = tl.where(row < 0, 0, width)",
    ),
    "dummy_gathers_row_before": _in_parts(
        "a dummy request gathers row -1: the last of the group before",
        "mask=row >= 0, other=0)\n    written = tl.where(row < 0",
        "mask=row >= -1, other=0)\n    written = tl.where(row < -1",
        "dummies",
    ),
    "dummy_gathers_row_0": _in_parts(
        "a dummy request gathers the blocks of row 0",
        "    length = tl.load(num_blocks",
        "    row = tl.maximum(row, 0)\n    length = tl.load(num_blocks",
        "dummies",
    ),
    "dummy_writes_through_row_before": _in_parts(
        "tokens of a dummy request have slots of row -1",
        "capacity = tl.where(row < 0, 0, capacity)",
        "capacity = tl.where(row < -1, 0, capacity)",
        "dummies",
    ),
    "dummy_writes_through_row_0": _in_parts(
        "tokens of a dummy request have slots of row 0",
        "    capacity = tl.where(row < 0, 0, capacity)\n",
        "    row = tl.maximum(row, 0)\n",
        "dummies_int32",
    ),
    "window_keeps_freed_ids": _in_parts(
        "columns before the sliding window keep the ids of freed blocks",
        "(columns < length) & (columns >= first_column)",
        "columns < length",
        "window",
    ),
    "unsharded_group_is_sharded": _in_state(
        "context parallelism is applied to a group that is not sharded",
        _CP_FIELDS,
        "layout.cp_size, layout.cp_rank, layout.cp_interleave,\n",
        "cp2_rank0",
    ),
    "ring_group_looked_up": _in_state(
        "a one-column ring group is met by the generic formula, at any position",
        "layout.widths[group] * layout.tokens_per_block[group] * enabled,",
        "layout.widths[group] * layout.tokens_per_block[group] if enabled else 2**40,",
        "disabled",
    ),
    "ring_never_waits": _in_host_ring(
        "a host buffer is filled again although the device has yet to read it",
        "            self._events.wait_for(entered)\n",
        "            pass\n",
        "",
    ),
    "ring_forgets_readers": _in_host_ring(
        "nothing marks when the readers of a host buffer are done",
        "            self._events.record(left)\n",
        "            pass\n",
        "",
    ),
    "ring_a_buffer_short": _in_host_ring(
        "as many host buffers as may be in flight, so that none is free",
        "(depth, per_set) if in_flight is None else (in_flight + 1, 1)",
        "(depth, per_set) if in_flight is None else (in_flight, 1)",
        "",
    ),
    "graph_freezes_a_pointer": _in_tables(
        "each step's number of blocks has another address, of which a captured graph knows one",
        _TO_APPLY,
        _TO_APPLY + "            old = (self.num_blocks_on_device, self.descriptors)\n"
        "            self.old = (*getattr(self, 'old', ()), *old)  # a graph still reads it\n"
        "            self.num_blocks_on_device = old[0].clone()\n"
        "            self.descriptors = old[1].clone()\n"
        "            self.init_block_table_layout_tensors()\n",
        "",
    ),
    "compiles_for_sizes": Mutant(
        "device_code/fields.py",
        "sizes of 1 and multiples of 16 have kernels of their own",
        'STEP_SIZES = ["first_record", "num_reqs", "num_rows", "out_stride", "out_size"]',
        "STEP_SIZES = []",
        "",
    ),
    "row_may_overflow": _in_writes(
        "a row may become a column wider than its table",
        "if end > width:",
        "if end > width + 1:",
    ),
    "row_may_overflow_in_c": _in_staged_changes(
        "a row may become a column wider than its table, by the helper in C",
        "if (end > self->groups[group].width)",
        "if (end > self->groups[group].width + 1)",
    ),
    "int64_mapping_gathered_as_int32": _in_parts(
        "a gather takes the halves of an int64 mapping for its entries",
        "row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    length",
        "idx_mapping = idx_mapping.to(tl.pointer_type(tl.int32), bitcast=True)\n"
        "    row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    length",
    ),
    "int64_mapping_in_slots_as_int32": _in_parts(
        "slots take the halves of an int64 mapping for its entries",
        "row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    first_token",
        "idx_mapping = idx_mapping.to(tl.pointer_type(tl.int32), bitcast=True)\n"
        "    row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    first_token",
    ),
    "int32_mapping_as_int64": _in_parts(
        "two entries of an int32 mapping are taken for one",
        "row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    first_token",
        "idx_mapping = idx_mapping.to(tl.pointer_type(tl.int64), bitcast=True)\n"
        "    row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    first_token",
        "corners_int32",
    ),
    # Other defects, in features and in the plain path.
    "window_off_by_one": _in_parts(
        "the sliding window begins a token too late",
        "tl.maximum(computed - reach, 0)",
        "tl.maximum(computed - reach + 1, 0)",
        "window",
    ),
    "window_by_batch_index": _in_parts(
        "computed tokens are looked up by batch index instead of row",
        "first_column = _first_column(descriptor, num_computed_tokens, row)",
        "first_column = _first_column(descriptor, num_computed_tokens, batch_index)",
        "window",
    ),
    "window_with_context_parallelism": _in_state(
        "the sliding window stays on with context parallelism",
        "layout.reaches",
        "layout.sliding_window_reach",
        "cp2_rank0",
        times=2,
    ),
    "interleave_ignored": _in_state(
        "tokens go to the ranks one by one whatever the interleave",
        "layout.cp_interleave if layout.dcp_sharded[group] else 1,",
        "1,",
        "cp4_rank1",
    ),
    "every_rank_has_all": _in_parts(
        "a rank has slots for the tokens of the others",
        "            inside &= mine\n",
        "",
        "cp2_rank1",
    ),
    "custom_rows_past_the_padded": _in_tables(
        "rows of a caller's tables are zeroed past what the caller reads",
        "return num_reqs_padded, dirty\n",
        "return out[0].shape[0], dirty\n",
        "custom_outputs",
    ),
    "custom_slots_not_padded": Mutant(
        "launches/kernels.py",
        "a caller's slots are padded as far as the caller reads, not to their end",
        "(out, out.stride(0), out.shape[1])",
        "(out, out.stride(0), out.shape[1] - 2)",
        "custom_outputs",
    ),
    "custom_slots_packed": Mutant(
        "launches/kernels.py",
        "rows of a caller's slots are taken to be as long as those of the persistent ones",
        "(out, out.stride(0), out.shape[1])",
        "(out, out.shape[1] + 1, out.shape[1])",
        "custom_outputs",
    ),
    "custom_outputs_ignored": _in_parts(
        "a caller's tables are left alone, and the persistent ones written",
        "address = tl.load(descriptor + TARGET) if out_ptrs is None else tl.load(out_ptrs + group)",
        "address = tl.load(descriptor + TARGET)",
        "custom_outputs",
    ),
    "slots_from_gathered": _in_parts(
        "slots from the gathered table, which the same launch is only now writing",
        _LOOK_UP,
        "gathered = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))\n        "
        + _LOOK_UP.replace("source + row", "gathered + batch_index"),
    ),
    "every_program_pads": _in_parts(
        "each request pads behind its tokens, where the programs of others write theirs",
        "            PAD,\n            BLOCK,\n        )\n    else:\n        _pad_slots(\n",
        "            PAD,\n            BLOCK,\n        )\n"
        "        _pad_slots(\n"
        "            descriptors, query_start_loc, out, out_stride, out_size, batch_index + 1,\n"
        "            group, PAD, BLOCK\n"
        "        )\n"
        "    else:\n        _pad_slots(\n",
    ),
    "off_by_one_block": _in_parts(
        "the next block instead of the position's own",
        "column = position // block_size",
        "column = (position + 1) // block_size",
    ),
    "identity_mapping": _in_parts(
        "the batch index taken for the request row",
        "row = _row(descriptor, idx_mapping, num_reqs, batch_index)\n    first_token",
        "row = batch_index\n    first_token",
    ),
    "first_groups_stride": _in_parts(
        "rows of every group as wide as those of the first",
        "width = tl.load(descriptor + WIDTH)\n    block_size",
        "width = tl.load(descriptors + WIDTH)\n    block_size",
    ),
    "wrong_row": _in_parts(
        "staged writes go to the next row",
        "row = tl.load(staging + record + 1).to(tl.int64)",
        "row = tl.load(staging + record + 1).to(tl.int64) + 1",
    ),
    "int32_slots": _in_parts(
        "slots wrap at 2**31",
        "slot = block_id.to(tl.int64) * block_size + position % block_size",
        "slot = (block_id * block_size.to(tl.int32)).to(tl.int64) + position % block_size",
    ),
    "unbounded_positions": _in_parts(
        "positions outside of the row are looked up all the same",
        "inside = (position >= 0) & (position < capacity)",
        "inside = (position >= 0)",
    ),
    "first_pass_only": _in_parts(
        "columns past the first block of columns are not gathered",
        "written = tl.where(row < 0, width.to(tl.int32), length)",
        "written = tl.where(row < 0, width.to(tl.int32), tl.minimum(length, BLOCK))",
        "long",
    ),
    "zeroed_once": _in_parts(
        "columns past the first block of columns are not zeroed",
        "written = tl.where(row < 0, width.to(tl.int32), length)",
        "written = tl.where(row < 0, tl.minimum(width.to(tl.int32), BLOCK), length)",
        "long",
    ),
    "overwrite_appends": _in_writes(
        "what was staged before an overwrite is still written",
        "            if overwrite:\n                intervals",
        "            if overwrite and row not in intervals:\n                intervals",
        "edges",
    ),
    "overwrite_appends_in_c": _in_staged_changes(
        "what was staged before an overwrite is still written, by the helper in C",
        "        if (overwrite) {\n            self->num_ids",
        "        if (0 && overwrite) {\n            self->num_ids",
        "edges",
    ),
    "ids_a_place_further_in_c": Mutant(
        "native/staged_packs.h",
        "records name the place after that of their ids, by the helper in C",
        "to[4] = (int32_t)(first + (ids - start));",
        "to[4] = (int32_t)(first + (ids - start) + 1);",
    ),
    "refused_call_counts_in_c": _in_staged_changes(
        "of a call that is refused, requests before the wrong one count, by the helper in C",
        "    while (index-- > 0) {\n        const Write *write",
        "    while (0 && index-- > 0) {\n        const Write *write",
    ),
    "first_tokens_only": _in_parts(
        "tokens past the first block of tokens of a request get no slot",
        "for first in range(0, tl.maximum(end_token - first_token, 1), BLOCK):",
        "for first in range(0, BLOCK, BLOCK):",
        "long_request",
    ),
    "first_ids_only": _in_parts(
        "block ids past the first block of a staged write are not written",
        "for first in range(0, length, BLOCK):\n        offsets",
        "for first in range(0, min(length, BLOCK), BLOCK):\n        offsets",
        "long_request",
    ),
    "end_of_row_is_inside": _in_parts(
        "the first position past a row is taken for one of the row",
        "(position < capacity)",
        "(position <= capacity)",
        "edges",
    ),
    "negative_is_first": _in_parts(
        "a negative position is taken for the row's first",
        "inside = (position >= 0) & ",
        "position = tl.maximum(position, 0)\n        inside = ",
        "edges",
    ),
    "empty_batch_returns": Mutant(
        "fusions.py",
        "an empty batch leaves rows and slots as they are",
        _LAUNCH_BOTH,
        "        if not num_reqs:\n            return views, slots\n" + _LAUNCH_BOTH,
        "edges",
    ),
    "pads_late": _in_parts(
        "padding starts behind garbage after the tokens, not where they end",
        "num_tokens = tl.load(query_start_loc + num_reqs)\n",
        "num_tokens = tl.load(query_start_loc + num_reqs) + 5\n",
    ),
    "staging_extends_the_callers_list": _in_writes(
        "the caller's list of ids is kept and extended",
        'contents.append(array("i", ids) if type(ids) is list else _int32_of(ids))',
        "contents.append(type('Kept', (array,), {'extend': lambda self, more, ids=ids:"
        " array.extend(self, more) or ids.extend(more)})('i', ids))",
    ),
    "restore_forgets_blocks": _in_state(
        "restore does not put the number of blocks back",
        "self.num_blocks[:] = state.num_blocks\n",
        "pass\n",
    ),
    "dummy_tables_keep_dirty_rows": _in_tables(
        "dummy tables are zeroed as far as they are read, but not where a batch was",
        "num_rows, dirty = self._rows_to_gather(0, num_reqs, None)",
        "num_rows, dirty = num_reqs, 0",
    ),
    "slots_move": Mutant(
        "fusions.py",
        "slots are in a new buffer at every step",
        _LAUNCH_BOTH,
        "        self.slot_mappings = self.slot_mappings.clone()\n" + _LAUNCH_BOTH,
    ),
    "slots_view_of_another_shape": _in_state(
        "the returned slots are packed, not rows of the buffer",
        "lambda num_tokens: slots[:, :num_tokens]",
        "lambda num_tokens: slots.as_strided((slots.shape[0], num_tokens), (num_tokens, 1))",
    ),
    "separate_slots_keep_padding": Mutant(
        "device_code/parts.py",
        "padding is 0, seen through the separate launches",
        "tl.full([BLOCK], PAD, dtype=tl.int64)",
        "tl.full([BLOCK], 0, dtype=tl.int64)",
        variant="baseline",
    ),
    # What only a scenario meets.
    "gather_sees_what_is_staged": Mutant(
        "device_tables/tables.py",
        "a gather between staging and applying takes blocks that have not been written",
        _REFUSE,
        _REFUSE + "        self.num_blocks_on_device.copy_(torch.from_numpy(self.num_blocks))\n",
        "",
        native=False,
    ),
    "restore_forgets_applied_blocks": _in_state(
        "restore does not put back the number of blocks that a gather sees",
        "        self._staged.clear()\n        self._upload_num_blocks()\n",
        "        self._staged.clear()\n",
        "",
    ),
    "redirect_does_not_count": _in_writes(
        "ids redirected to the null block are not staged",
        'return [array("i", [NULL_BLOCK_ID]) * len(ids) for ids in contents]',
        'return [array("i") for _ in contents]',
        "",
    ),
    "redirect_ignored_in_c": _in_staged_changes(
        "ids are staged as they are although they are redirected, by the helper in C",
        "if (redirect)",
        "if (0 && redirect)",
        "",
    ),
}
