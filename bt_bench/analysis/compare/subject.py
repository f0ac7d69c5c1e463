"""The subject of a comparison: the config, the machine, and whether the results are right."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.analysis.agreement import Agreement, agreement
from bt_bench.analysis.compare.comparability import machine_text
from bt_bench.analysis.compare.entries import Matchup, sides_of
from bt_bench.base.errors import counted, listed


def subject_of(matchups: Sequence[Matchup], count: int) -> str:
    """Return a clause such as `origin, 5 cases on NVIDIA H200, AMD EPYC 9654, all equal to …`.

    Args:
        matchups: pairs of compared sides.
        count: how many cases are shown.

    Returns:
        The clause, without a full stop; empty if there is no result.
    """
    sides = sides_of(matchups).values()
    if not sides:
        return ""
    headers = [side.result.header for side in sides]
    configs = dict.fromkeys(header.config for header in headers)
    on_gpu = any(header.environment.device == "cuda" for header in headers)
    machines = dict.fromkeys(
        machine_text(environment) for header in headers for environment in header.environments
    )
    where = listed([*machines]) if on_gpu else "without a GPU"
    how = agreement(case for side in sides for case in side.result.cases)
    right = {
        None: "",
        Agreement.EXACT: ", all equal to the reference",
        Agreement.TOLERANT: f", all equal to the reference {Agreement.TOLERANT}",
    }
    return f"{listed([*configs])}, {counted(count, 'case')} {where}{right[how]}"
