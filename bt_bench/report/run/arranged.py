"""The results of a run by variant and case, as tables need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bt_bench.analysis import Judged, Judgement, baseline_index, judge_run, unique_labels
from bt_bench.names import Operation
from bt_bench.results import CaseResult, Series, Status, VariantResult, metric_of


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
    """All variants of a run, and all cases that any of them has, in the order of the files.

    `judged` has the verdicts on the others; `None` where there is only one variant.
    """

    baseline: Arm
    others: tuple[Arm, ...]
    case_ids: tuple[CaseId, ...]
    judged: Judged | None

    @cached_property
    def _judgements(self) -> dict[tuple[str, str, str], Judgement]:
        judgements = self.judged.judgements if self.judged else ()
        return {(each.other, each.key, each.metric): each for each in judgements}

    def judgement(self, other: Arm, case_id: CaseId, series: Series) -> Judgement | None:
        """The verdict on a series of an arm; `None` where a side lacks or failed the case."""
        if self.baseline.ok_case(case_id) is None or other.ok_case(case_id) is None:
            return None
        key = f"{case_id.operation}/{case_id.case}"
        return self._judgements.get((other.name, key, metric_of(series).name))

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
        return [case_id for case_id in self.case_ids if case_id.operation == operation]


def arrange(results: Sequence[VariantResult]) -> Arms:
    """Sorts results into the baseline arm and the others."""
    arms = [
        Arm(name, result, {_identify(case): case for case in result.cases})
        for name, result in zip(unique_labels(results), results, strict=True)
    ]
    baseline = arms.pop(baseline_index(results))
    case_ids = dict.fromkeys(case_id for arm in (baseline, *arms) for case_id in arm.cases)
    return Arms(baseline, tuple(arms), tuple(case_ids), judge_run(results))


def row_title(arms: Arms, other: Arm, case_id: CaseId) -> str:
    """Name of a row of changes; includes the variant if there are several."""
    return f"{case_id.case} · {other.name}" if len(arms.others) > 1 else case_id.case


def _identify(case: CaseResult) -> CaseId:
    return CaseId(case.operation, case.case, case.workload.digest)
