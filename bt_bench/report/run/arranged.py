"""The results of a run by variant and case, as tables need them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from bt_bench.analysis import (
    EVERYTHING,
    Judged,
    Judgement,
    Selection,
    Verdict,
    baseline_index,
    judge_run,
    typical_us,
    unique_labels,
)
from bt_bench.base.errors import UsageError
from bt_bench.base.names import DeviceKind, Operation
from bt_bench.results import (
    CaseResult,
    Quantity,
    Series,
    Status,
    VariantResult,
    metric_of,
    series_of,
)

_NO_CHANGE = (Verdict.SAME, Verdict.INCONCLUSIVE)


@dataclass(frozen=True)
class CaseId:
    """Identifies a case across variants."""

    operation: Operation
    case: str
    digest: str

    @property
    def key(self) -> str:
        """Operation and case, as in judgements."""
        return f"{self.operation}/{self.case}"


@dataclass(frozen=True)
class ArrangedArm:
    """One variant of the run, with its cases at hand."""

    name: str
    result: VariantResult
    cases: dict[CaseId, CaseResult]

    def ok_case(self, case_id: CaseId) -> CaseResult | None:
        """Return the case if it is `ok`, else `None`."""
        case = self.cases.get(case_id)
        return case if case is not None and case.status is Status.OK else None

    @cached_property
    def _times(self) -> dict[tuple[CaseId, Series], float | None]:
        return {}

    def typical_us(self, case_id: CaseId, series: Series) -> float | None:
        """Return the typical time of a series in a case in µs; `None` if there is none.

        Each is computed once: several tables and charts show it.
        """
        key = (case_id, series)
        if key not in self._times:
            case = self.ok_case(case_id)
            self._times[key] = None if case is None else typical_us(case, series)
        return self._times[key]


@dataclass(frozen=True)
class Arms:
    """All variants of a run, and all cases that any of them has, in the order of the files.

    `judged` has the verdicts on all other variants, selected or not; it is `None` if there is only
    one variant. `selected` describes the selection of cases; `None` if all are shown.
    """

    baseline: ArrangedArm
    others: tuple[ArrangedArm, ...]
    case_ids: tuple[CaseId, ...]
    judged: Judged | None
    selected: str | None = None

    @cached_property
    def _judgements(self) -> dict[tuple[str, str, str], Judgement]:
        judgements = self.judged.judgements if self.judged else ()
        return {(each.other, each.key, each.metric): each for each in judgements}

    def judgement(self, other: ArrangedArm, case_id: CaseId, series: Series) -> Judgement | None:
        """Return the verdict on a series of an arm; `None` if a side lacks or failed the case."""
        if self.baseline.ok_case(case_id) is None or other.ok_case(case_id) is None:
            return None
        return self.judgement_on(other, case_id, metric_of(series).name)

    def judgement_on(self, other: ArrangedArm, case_id: CaseId, metric: str) -> Judgement | None:
        """Return the verdict on a metric of an arm, whatever the case's status; else `None`."""
        return self._judgements.get((other.name, case_id.key, metric))

    @cached_property
    def known_primary(self) -> dict[Operation, tuple[Series, ...]]:
        """The series that decide an operation, as far as `primary_series` has found them."""
        return {}

    @cached_property
    def all(self) -> tuple[ArrangedArm, ...]:
        """The baseline, then the others."""
        return (self.baseline, *self.others)

    @property
    def on_cpu(self) -> bool:
        """Return whether nothing was measured on a GPU."""
        return all(arm.result.environment.device == "cpu" for arm in self.all)

    def cases_of(self, operation: Operation) -> list[CaseId]:
        """Return the cases of one operation."""
        return [case_id for case_id in self.case_ids if case_id.operation == operation]


def arrange(results: Sequence[VariantResult], selection: Selection = EVERYTHING) -> Arms:
    """Sort results into the baseline arm and the others.

    Args:
        results: results of the run's variants.
        selection: the part to show. Verdicts do not depend on it.

    Raises:
        UsageError: without results, and for a selection that matches nothing.
    """
    if not results:
        raise UsageError("expected at least one result to report, got none")
    arms = [
        ArrangedArm(name, result, {_identify(case): case for case in result.cases})
        for name, result in zip(unique_labels(results), results, strict=True)
    ]
    found = list(dict.fromkeys(case_id for arm in arms for case_id in arm.cases))
    shown, rest = selection.of_cases(found)
    if rest:
        arms = [_only(arm, set(shown)) for arm in arms]
    baseline = arms.pop(baseline_index(results))
    variants = {arm.name: arm.result.variant.name for arm in arms}
    labels = selection.labels(variants, {baseline.result.variant.name})
    others = tuple(arm for arm in arms if arm.name in labels)
    case_ids = dict.fromkeys(case_id for arm in (baseline, *arms) for case_id in arm.cases)
    selected = selection.told(shown, found) if rest else None
    return Arms(baseline, others, tuple(case_ids), judge_run(results), selected)


def _only(arm: ArrangedArm, shown: Collection[CaseId]) -> ArrangedArm:
    cases = {case_id: case for case_id, case in arm.cases.items() if case_id in shown}
    return ArrangedArm(arm.name, arm.result.model_copy(update={"cases": [*cases.values()]}), cases)


def primary_series(arms: Arms, operation: Operation) -> list[Series]:
    """Return the series that decide an operation on the run's device, measured or not."""
    found = arms.known_primary.get(operation)
    if found is None:
        device: DeviceKind = "cpu" if arms.on_cpu else "cuda"
        every = map(series_of, Quantity)
        found = tuple(each for each in every if metric_of(each).is_primary(operation, device))
        arms.known_primary[operation] = found
    return list(found)


def is_resolved(arms: Arms, operation: Operation, series: Series) -> bool:
    """Return whether any variant has a verdict other than SAME or INCONCLUSIVE in any case."""
    found = (
        arms.judgement(other, case_id, series)
        for case_id in arms.cases_of(operation)
        for other in arms.others
    )
    return any(each is not None and each.verdict not in _NO_CHANGE for each in found)


def row_title(arms: Arms, other: ArrangedArm, case_id: CaseId) -> str:
    """Return the name of a row of changes, with the variant if there are several."""
    return f"{case_id.case} · {other.name}" if len(arms.others) > 1 else case_id.case


def _identify(case: CaseResult) -> CaseId:
    return CaseId(case.operation, case.case, case.workload.digest)
