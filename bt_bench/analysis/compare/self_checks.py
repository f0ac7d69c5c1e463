"""The self-checks that failed in the runs of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bt_bench.analysis.compare.entries import Matchup, Side, sides_of
from bt_bench.analysis.promises import missed_promises
from bt_bench.base.errors import listed


def failed_self_checks(matchups: Sequence[Matchup]) -> Iterator[str]:
    """Yield a sentence for each run whose calibration failed self-checks, with the values found.

    Args:
        matchups: the sides of all runs.
    """
    runs: dict[str, dict[str, Side]] = {}
    for label, side in sides_of(matchups).items():
        runs.setdefault(side.result.header.run_id, {})[label] = side
    for sides in runs.values():
        # A run has one calibration, for all its variants.
        calibrations = (side.result.header.calibration for side in sides.values())
        calibration = next(filter(None, calibrations), None)
        missed = missed_promises(calibration) if calibration is not None else []
        if missed:
            found = "; ".join(f"{each.promise} (found {each.found})" for each in missed)
            of_run = f" of {_name_of([*sides])}" if len(runs) > 1 else ""
            yield f"Failed self-check{'s' * (len(missed) > 1)}{of_run}: {found}."


def _name_of(labels: Sequence[str]) -> str:
    """Return the run that labels such as `fused@first` share after the `@`; else list them all."""
    runs = {label.partition("@")[2] for label in labels}
    return runs.pop() if len(runs) == 1 and "" not in runs else listed(labels)
