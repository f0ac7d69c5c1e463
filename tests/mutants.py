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
    """A defect: in `file` of `bt_kernels`, `old` becomes `new`; `variant` shows it."""

    what: str
    file: str
    old: str
    new: str
    variant: str = "fused"


MUTANTS = {
    "slots_from_gathered": Mutant(
        "slots from the gathered table, which the same launch is only now writing",
        "device_code.py",
        "block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)",
        "target = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 1)"
        ".to(tl.pointer_type(tl.int32))\n"
        "        block_id = tl.load("
        "target + batch_index * width + column, mask=mask & inside, other=0)",
    ),
    "no_padding": Mutant(
        "slots past the last token keep what they held",
        "device_code.py",
        "for first in range(num_tokens, max_num_tokens, BLOCK):",
        "for first in range(max_num_tokens, max_num_tokens, BLOCK):",
    ),
    "off_by_one_block": Mutant(
        "the next block instead of the position's own",
        "device_code.py",
        "column = position // block_size",
        "column = (position + 1) // block_size",
    ),
    "identity_mapping": Mutant(
        "the batch index taken for the request row",
        "device_code.py",
        "row = tl.load(idx_mapping + batch_index).to(tl.int64)\n    first_token",
        "row = batch_index\n    first_token",
    ),
    "first_groups_stride": Mutant(
        "rows of every group as wide as those of the first",
        "device_code.py",
        "width = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 2)\n"
        "    row = tl.load(idx_mapping",
        "width = tl.load(descriptors + 2)\n    row = tl.load(idx_mapping",
    ),
    "wrong_row": Mutant(
        "staged writes go to the next row",
        "device_code.py",
        "row = tl.load(staging + record + 1).to(tl.int64)",
        "row = tl.load(staging + record + 1).to(tl.int64) + 1",
    ),
    "dirty_rows_kept": Mutant(
        "rows that a larger batch left are not zeroed",
        "device_tables.py",
        "num_rows = max(num_reqs_padded, self.num_dirty_rows)",
        "num_rows = num_reqs_padded",
    ),
    "int32_slots": Mutant(
        "slots wrap at 2**31",
        "device_code.py",
        "slot = block_id.to(tl.int64) * block_size + position % block_size",
        "slot = (block_id * block_size.to(tl.int32)).to(tl.int64) + position % block_size",
    ),
    "unbounded_positions": Mutant(
        "positions outside of the row are looked up all the same",
        "device_code.py",
        "inside = (position >= 0) & (position < width * block_size)",
        "inside = (position >= 0)",
    ),
    "first_pass_only": Mutant(
        "columns past the first block of columns are not gathered",
        "device_code.py",
        "for first in range(0, length, BLOCK):\n        columns",
        "for first in range(0, min(length, BLOCK), BLOCK):\n        columns",
    ),
    "overwrite_appends": Mutant(
        "what was staged before an overwrite is still written",
        "staging.py",
        "if overwrite:\n            intervals.pop(row, None)",
        "if False:\n            intervals.pop(row, None)",
    ),
    "first_tokens_only": Mutant(
        "tokens past the first block of tokens of a request get no slot",
        "device_code.py",
        "for first in range(first_token, end_token, BLOCK):",
        "for first in range(first_token, min(first_token + BLOCK, end_token), BLOCK):",
    ),
    "first_ids_only": Mutant(
        "block ids past the first block of a staged write are not written",
        "device_code.py",
        "for first in range(0, length, BLOCK):\n        offsets",
        "for first in range(0, min(length, BLOCK), BLOCK):\n        offsets",
    ),
    "end_of_row_is_inside": Mutant(
        "the first position past a row is taken for one of the row",
        "device_code.py",
        "(position < width * block_size)",
        "(position <= width * block_size)",
    ),
    "negative_is_first": Mutant(
        "a negative position is taken for the row's first",
        "device_code.py",
        "inside = (position >= 0) & ",
        "position = tl.maximum(position, 0)\n        inside = ",
    ),
    "empty_batch_returns": Mutant(
        "an empty batch leaves rows and slots as they are",
        "fusions.py",
        "num_rows = self._rows_to_gather(idx_mapping, num_reqs_padded)\n",
        "num_rows = self._rows_to_gather(idx_mapping, num_reqs_padded)\n"
        "        if idx_mapping.shape[0] == 0:\n"
        "            return (\n"
        "                tuple(table[:num_reqs_padded] for table in self.input_block_tables),\n"
        "                self.slot_mappings[:, :num_tokens_padded],\n"
        "            )\n",
    ),
    "pads_from_positions": Mutant(
        "padding starts where the positions buffer ends, not where the tokens do",
        "device_code.py",
        "num_tokens = tl.load(query_start_loc + num_reqs)\n",
        "num_tokens = tl.load(query_start_loc + num_reqs) + 5\n",
    ),
    "staging_extends_the_callers_list": Mutant(
        "the caller's list of ids is kept and extended",
        "staging.py",
        "(start, list(ids))",
        "(start, ids)",
    ),
    "row_may_overflow": Mutant(
        "a row may become a column wider than its table",
        "staging.py",
        "if starts[group] + len(ids) > layout.widths[group]:",
        "if starts[group] + len(ids) > layout.widths[group] + 1:",
    ),
    "restore_forgets_blocks": Mutant(
        "restore does not put the number of blocks back",
        "device_tables.py",
        "self.num_blocks[:] = state.num_blocks\n",
        "pass\n",
    ),
    "slots_move": Mutant(
        "slots are in a new buffer at every step",
        "fusions.py",
        "num_rows = self._rows_to_gather(idx_mapping, num_reqs_padded)\n",
        "num_rows = self._rows_to_gather(idx_mapping, num_reqs_padded)\n"
        "        self.slot_mappings = self.slot_mappings.clone()\n",
    ),
    "slots_view_of_another_shape": Mutant(
        "the returned slots are packed, not rows of the buffer",
        "fusions.py",
        "            self.slot_mappings[:, :num_tokens_padded],\n",
        "            self.slot_mappings.view(-1).as_strided(\n"
        "                (self.layout.num_groups, num_tokens_padded), (num_tokens_padded, 1)\n"
        "            ),\n",
    ),
    "separate_slots_keep_padding": Mutant(
        "the same as no_padding, seen through the separate launches",
        "device_code.py",
        "pad = tl.full([BLOCK], PAD, dtype=tl.int64)",
        "pad = tl.full([BLOCK], 0, dtype=tl.int64)",
        variant="baseline",
    ),
}


def write_mutant(folder: Path, name: str) -> Path:
    """Writes a mutant's variant file, `<name>.py`, and its package; returns `folder`.

    Raises:
        AssertionError: when the text to replace does not occur exactly once.
    """
    mutant = MUTANTS[name]
    package = f"bt_kernels_{name}"
    for path in SOURCE.rglob("*.py"):
        target = folder / "_mutants" / package / path.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path.relative_to(SOURCE).as_posix() == mutant.file:
            assert text.count(mutant.old) == 1, (name, text.count(mutant.old))
            text = text.replace(mutant.old, mutant.new)
        target.write_text(text.replace("bt_kernels", package), encoding="utf-8")
    (folder / f"{name}.py").write_text(
        f'"""Mutant: {mutant.what}."""\n\n'
        "import sys\nfrom pathlib import Path\n\n"
        'sys.path.insert(0, str(Path(__file__).parent / "_mutants"))\n'
        f"from {package}.variants.{mutant.variant} import Variant\n",
        encoding="utf-8",
    )
    return folder
