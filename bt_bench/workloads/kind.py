"""What the harness asks of a kind of workload; the kinds themselves are in `kinds/`."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Self

from bt_bench.workloads.assemble import layout_of
from bt_bench.workloads.describe import Description, describe_built
from bt_bench.workloads.parameters import TableParameters
from bt_bench.workloads.steps import Workload
from bt_kernels.layout import CUSTOM_OUTPUTS


class WorkloadParameters(TableParameters):
    """Validated parameters of a workload, which is built from nothing else.

    A subclass per kind. It gives its name as the only value of `workload`, its parameters as
    fields, and at least `build`.
    """

    workload: str

    def check(self) -> None:
        """Refuses parameters that do not go together, cheaply: nothing is built or read.

        Raises:
            UsageError: naming parameter, value and limit.
        """

    def check_by_reading(self) -> None:
        """Refuses before a run what only shows when the files of the user are read.

        Raises:
            UsageError: naming parameter, value and limit.
        """

    @abstractmethod
    def build(self) -> Workload:
        """Builds the workload; equal parameters give equal workloads.

        Raises:
            UsageError: for what `check` cannot see.
        """

    def features(self) -> frozenset[str]:
        """The `features` of the workload, which need not be built for it."""
        features = set(layout_of(self).features)
        return frozenset(features | {CUSTOM_OUTPUTS} if self.custom_outputs else features)

    def num_prefills(self) -> int | None:
        """Requests in prefill in each step; `None` where they are not told from decodes."""
        return None

    def describe(self) -> Description:
        """Describes the workload before anything is timed.

        Raises:
            UsageError: as `build`.
        """
        return describe_built(self, self.build())

    def files(self) -> tuple[Path, ...]:
        """Paths of the user's files that the workload is made of."""
        return ()

    def with_absolute_files(self) -> Self:
        """The same workload from any working directory."""
        return self
