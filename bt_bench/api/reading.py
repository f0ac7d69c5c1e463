"""Results as objects: a run, its cases, and their samples as arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bt_bench.analysis import Judgement, baseline_index, median
from bt_bench.api.comparing import compare
from bt_bench.base import STDIN, like
from bt_bench.base.errors import UsageError, names_hint
from bt_bench.config import planned_variants
from bt_bench.report import brief_document, render_document, render_run
from bt_bench.results import (
    CaseResult,
    Environment,
    FloatArray,
    Measurement,
    RunFolder,
    Status,
    VariantResult,
    WorkloadRecord,
    metric_of,
    read_result,
    read_run,
)

if TYPE_CHECKING:
    import pandas as pd


def load(path: str | os.PathLike[str]) -> Run:
    """Read a run. Needs neither torch nor a GPU.

    Args:
        path: a run folder, or one result file, packed by `xz` or `gzip` or not.

    Raises:
        UsageError: if it is no such thing, or is damaged.
    """
    return Run(Path(path), tuple(read_results(path)))


def read_results(run: str | os.PathLike[str]) -> list[VariantResult]:
    """Read a run folder in the order of its config, or a result file; `-` is standard input.

    Raises:
        UsageError: as `load` does.
    """
    path = Path(run)
    if run != STDIN and not path.exists():
        raise UsageError(
            f"{path} does not exist; expected a run folder or a result file{like(path)}"
        )
    if not path.is_dir():
        return [read_result(os.fspath(run))]
    results = read_run(RunFolder.open(path), planned_variants(path) or ())
    if not results:
        raise UsageError(f"{path} holds no result file; expected a run folder")
    return results


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of one metric of a case, from the rounds that count; `numpy.asarray` takes it.

    Args:
        metric: its name, as in a comparison: `host_us`, `event_us/busy/cold`.
        quantity: the measured quantity, such as `host_us`.
        unit: unit of the values, `us` for microseconds.
        per: the extent of a sample: `step`, or `window` for all steps together.
        rounds: numbers of the rounds, ascending; variants of a run share them. [R] int64
        values: the samples. [R, S] float64, with S steps, or 1 for a window
    """

    metric: str
    quantity: str
    unit: str
    per: str
    rounds: npt.NDArray[np.int64]
    values: FloatArray

    @property
    def median(self) -> float:
        """The median over the steps of each step's median over the rounds, as in reports."""
        return median(np.median(self.values, axis=0))

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Return the values."""
        return np.array(self.values, dtype) if copy else np.asarray(self.values, dtype)

    def __repr__(self) -> str:
        """Return the metric, the shape and the median."""
        shape = "{} rounds × {} {}".format(*self.values.shape, self.per)
        return f"<Samples {self.metric}: {shape}, median {self.median:.6g} {self.unit}>"


@dataclass(frozen=True, eq=False)
class Case:
    """One operation on one workload, for one variant.

    Args:
        variant: name of the variant.
        result: all that the result file has of it.
    """

    variant: str
    result: CaseResult

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.result.case

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return str(self.result.operation)

    @property
    def status(self) -> Status:
        """Tell how it ended: `ok`, `insufficient`, `failed` or `unsupported`."""
        return self.result.status

    @property
    def reason(self) -> str | None:
        """Why it is not `ok`, or why a part was not measured; `None` otherwise."""
        return self.result.reason.message if self.result.reason else None

    @property
    def workload(self) -> WorkloadRecord:
        """The kind, parameters, sizes and digest of the workload."""
        return self.result.workload

    @property
    def launches(self) -> tuple[int, ...] | None:
        """Device operations of each step of the window; `None` if they were not counted."""
        return None if self.result.launches is None else tuple(self.result.launches.totals())

    @cached_property
    def samples(self) -> Mapping[str, Samples]:
        """The samples by name of the metric; empty if nothing was measured."""
        taken = map(_samples, self.result.measurements)
        return {samples.metric: samples for samples in taken}

    def __repr__(self) -> str:
        """Return variant, operation, name and status."""
        return f"<Case {self.operation}/{self.name} of {self.variant}: {self.status}>"


@dataclass(frozen=True, eq=False)
class Run:
    """A run: its variants, cases and verdicts. `str` is the report that `bt-bench show` prints.

    Args:
        path: the folder of the run, or a result file.
        results: all that its files have, one result per variant, the baseline first.
    """

    path: Path
    results: tuple[VariantResult, ...]

    @property
    def id(self) -> str:
        """The run's id. Variants that share it were measured side by side."""
        return self.results[0].run_id

    @property
    def config(self) -> str:
        """Name of the config."""
        return self.results[0].config

    @property
    def complete(self) -> bool:
        """Tell whether it has come to its end; otherwise some cases are not there."""
        return all(result.complete for result in self.results)

    @property
    def environment(self) -> Environment:
        """The machine and the software that it was measured with; if merged, of its first part."""
        return self.results[0].environment

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in the order of reports."""
        return tuple(result.variant.name for result in self.results)

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.variants[baseline_index(self.results)]

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases of all variants, variant by variant."""
        return tuple(
            Case(result.variant.name, case) for result in self.results for case in result.cases
        )

    @property
    def failed(self) -> tuple[Case, ...]:
        """The cases that failed; a command that measures them exits with code 5."""
        return tuple(case for case in self.cases if case.status is Status.FAILED)

    def case(self, name: str, *, variant: str | None = None, operation: str | None = None) -> Case:
        """Return one case.

        Args:
            name: name of the workload.
            variant: name of the variant; may be left out if only one has the case.
            operation: name of the operation; may be left out if there is only one.

        Raises:
            UsageError: if there is no such case, or more than one.
        """
        found = list(self.cases)
        for what, wanted in (("name", name), ("variant", variant), ("operation", operation)):
            known = dict.fromkeys(str(getattr(case, what)) for case in found)
            if wanted is None and len(known) > 1:
                raise UsageError(
                    f"{name} was measured with {len(known)} {what}s; expected {what}= one of "
                    f"{', '.join(known)}"
                )
            if wanted is not None and wanted not in known:
                noun = "case" if what == "name" else what
                raise UsageError(
                    f"no {noun} {wanted!r} in {self.path}; {names_hint(wanted, known)}"
                )
            found = [case for case in found if wanted in (None, getattr(case, what))]
        return found[0]

    @cached_property
    def verdicts(self) -> tuple[Judgement, ...]:
        """The verdicts of `bt_bench.compare` on this run; empty with a single variant.

        Those of a run that did not finish are on the cases that are there.

        Raises:
            NotComparableError: if the folder has results that must not be compared.
        """
        return compare(self, allow_partial=True).verdicts if len(self.results) > 1 else ()

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row per variant, case and metric; `docs/api.md` has its columns.

        Raises:
            UsageError: if pandas is not installed.
        """
        from bt_bench.report.frames import summary_frame

        return summary_frame(self.results)

    def __fspath__(self) -> str:
        """Return its path: a run can be given wherever the path of one can be."""
        return str(self.path)

    def __str__(self) -> str:
        """Return the report that `bt-bench show` prints."""
        return render_run(self.results)

    def __repr__(self) -> str:
        """Return the path, and counts of variants and cases."""
        cases = len({case.result.key for case in self.cases})
        names = ", ".join(self.variants)
        return f"<Run {self.path}: {cases} case{'s' * (cases != 1)} of {names}>"

    def _repr_markdown_(self) -> str:
        """Return the same report for a notebook."""
        return render_document(brief_document(self.results))


def _samples(measurement: Measurement) -> Samples:
    return Samples(
        metric=metric_of(measurement.series).name,
        quantity=measurement.quantity.value,
        unit=measurement.unit,
        per=measurement.per,
        rounds=np.array(measurement.rounds, np.int64),
        values=np.array(measurement.samples, np.float64),
    )
