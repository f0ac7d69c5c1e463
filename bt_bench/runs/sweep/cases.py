"""One case of a sweep on one device: checked, measured and stored."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation
from bt_bench.results import CaseResult, Reason, ReasonCode, Status
from bt_bench.runs.progress import CaseReport, Progress
from bt_bench.runs.sweep.request import SweepRequest, case_key
from bt_bench.runs.sweep.results import Results
from bt_bench.worker import (
    CheckCase,
    Checked,
    CheckOutcome,
    CheckOutcomes,
    MeasureCase,
    Measured,
    Runner,
)


@dataclass(frozen=True)
class CaseSweep:
    """One case of a sweep on one device.

    Args:
        request: the sweep.
        runner: has the variants and the device.
        progress: receives the progress.
        case: the case.
        failures: variants that have failed before it.
        part: the part of the results that the case is of.
    """

    request: SweepRequest
    runner: Runner
    progress: Progress
    case: CaseSpec
    failures: Mapping[str, Reason]
    part: int | None = None

    def run(self, operations: Sequence[Operation], results: Results) -> None:
        """Check and measure some operations, and store each when it is done."""
        self.progress.phase("checking", self.case.name)
        began = time.monotonic()
        checked = self._check(operations)
        share_s = (time.monotonic() - began) / len(operations)
        for remark in checked.workload.remarks:
            self.progress.say(f"{self.case.name}: {remark}")
        for operation in operations:
            key = case_key(operation, self.case.name)
            self.progress.phase("measuring", key)
            began = time.monotonic()
            measured = self._measure(operation, checked.outcomes)
            seconds = round(share_s + time.monotonic() - began, 3)
            outcomes = {arm: checked.outcomes[arm, operation] for arm in self.request.arms}
            stored = {
                arm: _case_result(self.case, operation, checked, outcome, measured[arm], seconds)
                for arm, outcome in outcomes.items()
            }
            is_new = not results.has(key)
            results.add(
                {arm: case.model_copy(update={"part": self.part}) for arm, case in stored.items()}
            )
            if is_new:
                self.progress.advance(_report(key, stored, self.failures))

    def _check(self, operations: Sequence[Operation]) -> Checked:
        """Check each variant and operation; variants that failed before are not run."""
        arms = [arm for arm in self.request.arms if arm not in self.failures]
        task = CheckCase(self.case, tuple(operations))
        finished = self.runner.run(task, arms, self.progress)
        failed = {
            (arm, operation): CheckOutcome(None, reason)
            for arm, reason in ({**self.failures, **finished.failed}).items()
            for operation in operations
        }
        return Checked(finished.value.workload, finished.value.outcomes | failed)

    def _measure(self, operation: Operation, outcomes: CheckOutcomes) -> dict[str, Measured]:
        """Measure the variants that passed the check; the others get no measurements."""
        passed = [arm for arm in self.request.arms if outcomes[arm, operation].reason is None]
        measured = {arm: Measured() for arm in self.request.arms}
        if passed:
            task = MeasureCase(self.case, operation)
            finished = self.runner.run(task, passed, self.progress)
            measured |= finished.value
            measured |= {arm: Measured(reason=why) for arm, why in finished.failed.items()}
        return measured


# The status of a case by its reason; any other reason means failed.
_STATUS = {
    None: Status.OK,
    ReasonCode.PROFILER_INCOMPLETE: Status.OK,
    ReasonCode.DISTURBED: Status.INSUFFICIENT,
    ReasonCode.UNSUPPORTED: Status.UNSUPPORTED,
}


def _case_result(
    case: CaseSpec,
    operation: Operation,
    checked: Checked,
    outcome: CheckOutcome,
    measured: Measured,
    seconds: float,
) -> CaseResult:
    reason = outcome.reason or measured.reason
    return CaseResult(
        key=case_key(operation, case.name),
        case=case.name,
        operation=operation,
        workload=checked.workload.of_operation(operation),
        status=_STATUS.get(reason.code if reason else None, Status.FAILED),
        reason=reason,
        check=outcome.report,
        launches=measured.launches,
        compiled=measured.compiled,
        rounds=measured.rounds,
        stopping=measured.stopping,
        measurements=measured.measurements,
        notes=measured.notes,
        control=measured.control,
        control_spreads=measured.control_spreads,
        seconds=seconds,
    )


def _report(key: str, stored: Mapping[str, CaseResult], left_out: Collection[str]) -> CaseReport:
    stoppings = [case.stopping for case in stored.values() if case.stopping is not None]
    widths = [w for stopping in stoppings for w in stopping.half_widths.values() if w is not None]

    def arms(status: Status) -> list[str]:
        return [arm for arm, case in stored.items() if case.status is status]

    return CaseReport(
        key=key,
        failed=[arm for arm in arms(Status.FAILED) if arm not in left_out],
        insufficient=arms(Status.INSUFFICIENT),
        rounds=stoppings[0].rounds if stoppings else None,
        stopped=stoppings[0].reason if stoppings else None,
        half_width_percent=100 * max(widths) if widths else None,
        unsupported=arms(Status.UNSUPPORTED),
        left_out=[arm for arm in stored if arm in left_out],
    )
