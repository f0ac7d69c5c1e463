"""The results of a run by variant and case, as tables need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bt_bench.analysis import SeriesPair, baseline_index, pair_series, unique_labels
from bt_bench.names import Operation
from bt_bench.results import CaseResult, Series, Status, VariantResult


@dataclass(frozen=True)
class CaseId:
    """Identifies a case across variants."""

    operation: Operation
    case: str
    digest: str


@dataclass(frozen=True)
class Arm:
    """One variant of the run, with its cases at hand."""

    name: str
    result: VariantResult
    cases: dict[CaseId, CaseResult]

    def ok_case(self, case_id: CaseId) -> CaseResult | None:
        """The case if it is `ok`, else `None`."""
        case = self.cases.get(case_id)
        return case if case is not None and case.status is Status.OK else None


@dataclass(frozen=True)
class Arms:
    """All variants of a run, and all cases that any of them has, in the order of the files."""

    baseline: Arm
    others: tuple[Arm, ...]
    case_ids: tuple[CaseId, ...]

    @property
    def all(self) -> tuple[Arm, ...]:
        """The baseline, then the others."""
        return (self.baseline, *self.others)

    @property
    def on_cpu(self) -> bool:
        """Whether nothing was measured on a GPU."""
        return all(arm.result.environment.device == "cpu" for arm in self.all)

    def cases_of(self, operation: Operation) -> list[CaseId]:
        """Cases of one operation."""
        return [case_id for case_id in self.case_ids if case_id.operation is operation]


def arrange(results: Sequence[VariantResult]) -> Arms:
    """Sorts results into the baseline arm and the others."""
    arms = [
        Arm(name, result, {_identify(case): case for case in result.cases})
        for name, result in zip(unique_labels(results), results, strict=True)
    ]
    baseline = arms.pop(baseline_index(results))
    case_ids = dict.fromkeys(case_id for arm in (baseline, *arms) for case_id in arm.cases)
    return Arms(baseline, tuple(arms), tuple(case_ids))


def pair_of(arms: Arms, other: Arm, case_id: CaseId, series: Series) -> SeriesPair | None:
    """A series of the baseline and another arm, or `None` where one lacks or failed the case."""
    left, right = arms.baseline.ok_case(case_id), other.ok_case(case_id)
    if left is None or right is None:
        return None
    base = arms.baseline.result
    one_run = base.run_id == other.result.run_id
    return pair_series(left, right, series, base.calibration, one_run=one_run)


def config_of(arms: Arms, other: Arm, case_id: CaseId) -> str:
    """Name of a row of savings; includes the variant if there are several."""
    return f"{case_id.case} · {other.name}" if len(arms.others) > 1 else case_id.case


def _identify(case: CaseResult) -> CaseId:
    return CaseId(case.operation, case.case, case.workload.digest)
