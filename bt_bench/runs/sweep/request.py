"""The request for a sweep, and the plan in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bt_bench.config import SweepSpec, dump_config
from bt_bench.protocol import Operation
from bt_bench.results import (
    CONFIG_NAME,
    Division,
    Environment,
    RunFolder,
    write_division,
    write_run_file,
)
from bt_bench.variants import VariantEntry


@dataclass(frozen=True)
class SweepRequest:
    """The cases, variants and folder of a sweep.

    Args:
        spec: cases, operations and plan.
        entries: the variants, in the order of the report.
        environment: as read before the run; of several devices, the first one's.
        folder: where the results go; may hold an interrupted run's.
        command: the command line, for the record.
        native: by variant, whether it uses the helpers in C; see `VariantInfo`.
        division: if the cases are a shard of a sweep, the division of all of them.
    """

    spec: SweepSpec
    entries: Sequence[VariantEntry]
    environment: Environment
    folder: RunFolder
    command: list[str]
    native: Mapping[str, bool] = field(default_factory=dict)
    division: Division | None = None

    @property
    def arms(self) -> list[str]:
        """Names of the variants."""
        return [entry.name for entry in self.entries]

    @property
    def keys(self) -> list[str]:
        """Keys of all cases, in the config's order."""
        return [
            case_key(operation, case.name)
            for case in self.spec.cases
            for operation in self.spec.operations
        ]


def case_key(operation: Operation, case: str) -> str:
    """Return the key of a case in a result file."""
    return f"{operation}/{case}"


def write_plan(folder: RunFolder, spec: SweepSpec, division: Division | None) -> None:
    """Write the plan of a run into its folder: the config, and for a shard the whole division.

    Raises:
        UsageError: if a file cannot be written.
    """
    if division is not None:  # first: a config alone would be one of a whole sweep
        write_division(folder.path, division)
    write_run_file(folder.path / CONFIG_NAME, dump_config(spec, folder.path))
