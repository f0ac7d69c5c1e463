"""`bt-bench profile --tool nsys`."""

from __future__ import annotations

from support.commands import run


def test_the_command_is_printed_and_not_run():
    outcome = run("profile", "quick", "--tool", "nsys", "-k", "uniform_1grp", "--variants", "fused")
    assert outcome.code == 0
    (line,) = outcome.out.splitlines()
    assert line.startswith("nsys profile --trace=cuda,nvtx --output=quick-uniform_1grp ")
    assert line.endswith(
        " sweep quick -k uniform_1grp --variants fused --operations gather_slots,step "
        "--set plan.profile_rounds=0 --set plan.case_seconds=1"
    )
