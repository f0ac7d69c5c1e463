"""Wrong kernels: copies of `bt_kernels` with one defect each, which `check` must reject.

A mutant is the shipped package under another name with one piece of text replaced, and a variant
file beside it, in a folder as `--kernels` takes it.
"""

from __future__ import annotations

from pathlib import Path

import bt_kernels
from support.mutants import carried, one_launch, separate
from support.mutants.mutant import Mutant

SOURCE = Path(bt_kernels.__file__).parent

MUTANTS: dict[str, Mutant] = {
    **separate.MUTANTS,
    **one_launch.MUTANTS,
    **carried.MUTANTS,
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

# Mutants that no workload of `check` shows, by who does.
IN_A_SEQUENCE = (
    "gather_sees_what_is_staged",
    "restore_forgets_applied_blocks",
    "redirect_does_not_count",
    "redirect_ignored_in_c",
    "carried_id_is_signed_in_c",
)
"""Found by the scenarios of `test_scenarios`."""

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
    "overwrite_with_nothing_is_not_found": "num_blocks",
    "fours_of_what_is_written": "block_tables[",
    "span_maps_what_its_tile_does": "slot_mappings[",
    "written_twice": "block_tables[",
}
"""Mutants whose values are right as long as programs run one after another, and where they race."""

INTERPRETED = {
    "bitmap_counts_nothing",
    "later_rows_are_lost",
    "ids_a_place_further_in_parameters",
    "ids_after_intervals_elsewhere",
    "ids_in_place_of_intervals",
    "pieces_in_place_of_ids",
    "ids_of_the_first_in_memory",
    "intervals_after_a_payload",
}
"""Mutants that a GPU does not have: only C packs parameters, more of them, which are indexed."""

COMPILED = {"interval_of_the_next_row_indexed", "halves_a_place_further_indexed"}
"""Mutants that only a GPU has."""

# A kernel that reads or writes past its table may end the CUDA context of the whole process, so
# these run under the interpreter only, where every access is checked before it is made.
OUT_OF_BOUNDS = {
    "dummy_gathers_row_before",
    "dummy_writes_through_row_before",
    "ring_group_looked_up",
    "row_may_overflow",
    "row_may_overflow_in_c",
    "ids_a_place_before_in_c",
    "ids_a_place_further_in_c",
    "ids_of_a_step_a_place_further_in_c",
    "interval_of_the_next_row",
    "first_piece_is_not_written",
    "last_program_has_an_old_header",
    "num_records_not_shifted",
    "options_of_an_older_step",
    "int32_mapping_as_int64",
    "custom_slots_packed",
    "first_groups_stride",
    "wrong_row",
    "unbounded_positions",
}


SMALL = {
    "MANY_ROWS = 1024 ": "MANY_ROWS = 0 ",
    "MANY_ROWS_INTERPRETED = 12 ": "MANY_ROWS_INTERPRETED = 0 ",
    "WORDS_WRITTEN = 64 ": "WORDS_WRITTEN = 4 ",
}
"""Sizes in `shapes.py` of mutants that are `small`."""


def write_mutant(folder: Path, name: str) -> Path:
    """Writes a mutant's variant file, `<name>.py`, and its package; returns `folder`.

    Raises:
        AssertionError: when the text to replace does not occur as often as it is said to.
    """
    mutant = MUTANTS[name]
    package = f"bt_kernels_{name}"
    for path in (path for kind in ("py", "c", "h") for path in SOURCE.rglob(f"*.{kind}")):
        target = folder / "_mutants" / package / path.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path.relative_to(SOURCE).as_posix() == mutant.file:
            assert text.count(mutant.old) == mutant.times, (name, text.count(mutant.old))
            text = text.replace(mutant.old, mutant.new)
        if mutant.small and path.name == "shapes.py":
            for old, new in SMALL.items():
                assert text.count(old) == 1, old
                text = text.replace(old, new)
        if path.suffix == ".py":  # helpers in C stay as they are, so they are compiled once for all
            text = text.replace("bt_kernels", package)
        target.write_text(text, encoding="utf-8")
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
