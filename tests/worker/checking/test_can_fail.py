"""Whether checks can fail: those of suites that come with bt-bench, and of its examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import MismatchError, default_suite, find_suite, load_suite
from bt_bench.suites.block_tables.checking import trial
from bt_bench.variants import load_reference
from bt_bench.worker.checking import plain_trial
from bt_bench.worker.checking.can_fail import _Wrong, refuse_blind
from bt_bench.worker.tasks.arm import lacking

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/suites/page_indices"
BLIND = {
    "block_tables": [(trial, "compare_buffers"), (trial, "compare_results")],
    "page_indices": [(plain_trial, "compare")],
}


@pytest.fixture(params=BLIND)
def suite(request, suites_run_here):
    if request.param == "block_tables":
        return default_suite()
    return load_suite(find_suite(str(EXAMPLE), EXAMPLE))


def refuse(suite):
    reference = load_reference(suite)
    workloads = [
        each
        for each in suite.conformance(0).values()
        if not each.large and lacking(reference, each) is None
    ]
    refuse_blind(suite, workloads, suite.operations, 0)


def test_both_wrong_variants_fail_since_something_differs(suite, monkeypatch):
    why = []

    def noted(action):
        try:
            action()
        except MismatchError as mismatch:
            why.append(str(mismatch))
            return True
        return False

    monkeypatch.setattr(_Wrong, "_fails", staticmethod(noted))
    refuse(suite)
    paths = {operation.path for operation in suite.operations}
    assert len(why) == 2 * len(paths)
    assert all(" is " in each and ", expected " in each for each in why)


def test_without_what_compares_they_pass_and_the_suite_is_refused(suite, monkeypatch):
    for owner, name in BLIND[suite.name]:
        monkeypatch.setattr(owner, name, lambda *_: None)
    with pytest.raises(UsageError, match=r"\.py:\d+: its check cannot fail: a variant that does n"):
        refuse(suite)
