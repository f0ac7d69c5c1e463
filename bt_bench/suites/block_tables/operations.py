"""The operations that can be timed; `docs/block-tables.md` defines each, in this order."""

from __future__ import annotations

from bt_bench.base.names import Operation

_SEPARATE = ("apply", "gather", "slots")

_TOGETHER = ("apply", "gather_slots")
# Name, title, method, path, and further traits.
_ROWS: tuple[tuple[str, str, str, tuple[str, ...], dict[str, bool]], ...] = (
    ("stage", "Stage writes (host only)", "append_block_ids", _SEPARATE, {"on_host": True}),
    ("apply", "Apply staged writes", "apply_staged_writes", _SEPARATE, {"consumes_staged": True}),
    ("gather", "Gather block tables", "gather_block_tables", _SEPARATE, {}),
    ("slots", "Compute slot mappings", "compute_slot_mappings", _SEPARATE, {}),
    ("gather_slots", "Gather + slots", "gather_and_compute_slot_mappings", _TOGETHER, {}),
    ("step", "Whole step", "prepare_step", ("step",), {"consumes_staged": True}),
)
OPERATIONS = tuple(
    Operation(name, title=title, method=method, path=path, rank=rank, stages=True, **traits)
    for rank, (name, title, method, path, traits) in enumerate(_ROWS)
)
STAGE, APPLY, GATHER, SLOTS, GATHER_SLOTS, STEP = OPERATIONS
BY_NAME = {str(operation): operation for operation in OPERATIONS}
DEFAULTS = (GATHER_SLOTS, STEP)
"""The operations that a config measures if it names none; reports list them first."""
