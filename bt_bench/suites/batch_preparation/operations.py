"""The operations that can be timed; `docs/batch-preparation.md` defines each."""

from __future__ import annotations

from bt_bench.protocol import Operation

STAGE = Operation(
    "stage",
    title="Stage writes (host only)",
    method="append_block_ids",
    path=("prepare",),
    stages=True,
    on_host=True,
)
INPUTS = Operation("inputs", title="Prepare inputs", method="prepare_inputs")
PREPARE = Operation(
    "prepare",
    title="Prepare a batch: writes, inputs, tables and slots",
    method="prepare",
    stages=True,
    consumes_staged=True,
)
OPERATIONS = (STAGE, INPUTS, PREPARE)
DEFAULTS = (INPUTS, PREPARE)
"""The operations that a config measures if it names none; reports list them first."""
