"""The operations that can be timed; `docs/block-tables.md` defines each, in this order."""

from __future__ import annotations

from bt_bench.base.names import Operation

_SEPARATE = ("apply", "gather", "slots")

STAGE = Operation(
    "stage",
    title="Stage writes (host only)",
    method="append_block_ids",
    path=_SEPARATE,
    rank=0,
    on_host=True,
    stages=True,
)
APPLY = Operation(
    "apply",
    title="Apply staged writes",
    method="apply_staged_writes",
    path=_SEPARATE,
    rank=1,
    stages=True,
    consumes_staged=True,
)
GATHER = Operation(
    "gather",
    title="Gather block tables",
    method="gather_block_tables",
    path=_SEPARATE,
    rank=2,
    stages=True,
)
SLOTS = Operation(
    "slots",
    title="Compute slot mappings",
    method="compute_slot_mappings",
    path=_SEPARATE,
    rank=3,
    stages=True,
)
GATHER_SLOTS = Operation(
    "gather_slots",
    title="Gather + slots",
    method="gather_and_compute_slot_mappings",
    path=("apply", "gather_slots"),
    rank=4,
    stages=True,
)
STEP = Operation(
    "step",
    title="Whole step",
    method="prepare_step",
    path=("step",),
    rank=5,
    stages=True,
    consumes_staged=True,
)

OPERATIONS = (STAGE, APPLY, GATHER, SLOTS, GATHER_SLOTS, STEP)
BY_NAME = {str(operation): operation for operation in OPERATIONS}
DEFAULTS = (GATHER_SLOTS, STEP)
"""The operations that a config measures if it names none; reports list them first."""
