"""The runs that a report is made from, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bt_bench.analysis import Judged
from bt_bench.report.run.arranged import Arms


@dataclass(frozen=True)
class ReportedRun:
    """Results of one run.

    Args:
        arms: the results by variant and case.
        planned_cases: number of cases of the complete run; `None` if unknown.
        absent: variants that its config names, and that have no result.
    """

    arms: Arms
    planned_cases: int | None = None
    absent: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Return whether the run did not finish, or is still under way."""
        return not all(arm.result.complete for arm in self.arms.all)


@dataclass(frozen=True)
class Evidence:
    """The input of every format of `bt-bench report`.

    Args:
        paths: the run folders and result files, as given.
        runs: their results by run, at least one.
        base_variant: the variant that the others are compared with; `None` if each variant is
            compared with itself in another run.
        judged: the comparison; `None` if there is only one result.
        not_compared: why too little of a side was compared, a clause for each reason.
    """

    paths: tuple[Path, ...]
    runs: tuple[ReportedRun, ...]
    base_variant: str | None
    judged: Judged | None
    not_compared: tuple[str, ...] = ()

    @property
    def is_one_run(self) -> bool:
        """Return whether all results are of one run, given as one folder or file."""
        return len(self.paths) == len(self.runs) == 1

    @property
    def on_cpu(self) -> bool:
        """Return whether nothing was measured on a GPU."""
        return all(run.arms.on_cpu for run in self.runs)
