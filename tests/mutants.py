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
