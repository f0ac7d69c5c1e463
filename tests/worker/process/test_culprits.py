"""Tasks are repeated without the arm that broke them."""

from __future__ import annotations

from bt_bench.results import Reason, ReasonCode
from bt_bench.worker.process.culprits import run_without_culprits
from bt_bench.worker.tasks.runner import Failure, Success

TAMPERED = Reason(code=ReasonCode.TAMPERED, message="it has changed something")


def test_who_has_tampered_is_found_by_trying_each_alone():
    def attempt(arms):
        if "bad" in arms:
            place = 0 if len(arms) == 1 else None
            return Failure(TAMPERED, place, worker_is_spent=True)
        return Success(list(arms))

    finished = run_without_culprits(["good", "bad", "other"], attempt)
    assert finished.value == ["good", "other"]
    assert finished.failed == {"bad": TAMPERED}


def test_if_none_has_alone_all_fail():
    def attempt(arms):
        return Failure(TAMPERED, None, True) if len(arms) > 1 else Success(list(arms))

    finished = run_without_culprits(["one", "other"], attempt)
    assert set(finished.failed) == {"one", "other"}
