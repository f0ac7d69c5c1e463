"""Repetition of tasks without the arm that broke them, and reports of crashes that do not recur."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bt_bench.results import Crash, Reason, ReasonCode
from bt_bench.worker.tasks.runner import (
    Attempt,
    Failure,
    Finished,
    Runner,
    Setback,
    Success,
    Watcher,
    WorkerError,
)
from bt_bench.worker.tasks.tasks import ResultT, Task


class Noticing:
    """A runner that reports crashes that did not recur.

    Args:
        runner: the runner that does the tasks.
        tell: called with the arm that crashed, or all arms that took part if it is unknown, and
            with the crash.
    """

    def __init__(self, runner: Runner, tell: Callable[[Sequence[str], Crash], None]) -> None:
        self._runner = runner
        self._tell = tell

    def run(
        self, task: Task[ResultT], arms: Sequence[str], watcher: Watcher | None = None
    ) -> Finished[ResultT]:
        """Do a task with some arms; see `Runner`."""
        finished = self._runner.run(task, arms, watcher)
        for setback in finished.setbacks:
            known = setback.arm is not None
            whose = [arm for arm in arms if arm == setback.arm or not known]
            self._tell(whose, Crash(during=task.title, reason=setback.reason, known=known))
        return finished

    def renew(self) -> None:
        """See `Runner`."""
        self._runner.renew()

    def abandon(self) -> None:
        """See `Runner`."""
        self._runner.abandon()

    @property
    def calls_made(self) -> int:
        """See `Runner`."""
        return self._runner.calls_made


def run_without_culprits(
    arms: Sequence[str], attempt: Callable[[Sequence[str]], Attempt]
) -> Finished[Any]:
    """Repeat a task, each time without the arm that broke it, until it succeeds.

    All remaining arms are then measured in the same rounds. A failure that cannot be attributed
    fails every arm. The first failure that may come from outside, such as a kill, is retried before
    any arm is left out for it. There are at most two more attempts than arms, not counting those
    that run each arm alone to find the ones that tamper.

    Raises:
        WorkerError: if the task fails even without any arm.
    """
    remaining = list(arms)
    failed: dict[str, Reason] = {}
    unconfirmed: Setback | None = None
    while True:
        outcome = attempt(remaining)
        if isinstance(outcome, Success):
            finished = Finished(outcome.value, failed)
            return finished if unconfirmed is None else finished.after([unconfirmed])
        place = outcome.place
        if outcome.may_pass and unconfirmed is None:
            unconfirmed = Setback(outcome.reason, None if place is None else remaining[place])
            continue
        if not remaining:
            raise WorkerError(_without_arms(outcome))
        if outcome.reason.code is ReasonCode.TAMPERED and place is None and len(remaining) > 1:
            # An arm that changes shared state does so alone, too.
            alone = {name: attempt([name]) for name in remaining}
            found = {name: _blamed(one) for name, one in alone.items() if isinstance(one, Failure)}
            if found:
                failed |= found
                remaining = [name for name in remaining if name not in found]
                continue
        culprits = remaining if place is None else remaining[place : place + 1]
        failed |= dict.fromkeys(culprits, _blamed(outcome))
        remaining = [name for name in remaining if name not in culprits]


def _without_arms(failure: Failure) -> str:
    if failure.defect is not None:
        return f"{failure.defect}internal error in the worker; please report it"
    return failure.reason.message


def _blamed(failure: Failure) -> Reason:
    """Return the reason for leaving an arm out."""
    reason = failure.reason
    if reason.code is ReasonCode.CRASHED and failure.place is None:
        return Reason(
            code=reason.code, message=f"{reason.message}; it is not known in which variant"
        )
    return reason
