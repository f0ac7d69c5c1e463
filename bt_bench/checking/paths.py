"""Through which calls an operation is checked; needs no torch."""

from __future__ import annotations

from bt_bench.model import Operation

Path = tuple[Operation, ...]

_SEPARATE = (Operation.APPLY, Operation.GATHER, Operation.SLOTS)
# Operations that go through the same calls are checked together: a path is the sequence of calls
# that a whole step is made of.
PATHS: dict[Operation, Path] = {
    Operation.STAGE: _SEPARATE,
    Operation.APPLY: _SEPARATE,
    Operation.GATHER: _SEPARATE,
    Operation.SLOTS: _SEPARATE,
    Operation.GATHER_SLOTS: (Operation.APPLY, Operation.GATHER_SLOTS),
    Operation.STEP: (Operation.STEP,),
}
