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
        headers = [side.result.header for side in sides.values()]
        for part in headers[0].part_numbers:
            # A run, or a part of a merged one, has one calibration, for all its variants.
            calibrations = (header.calibration_of(part) for header in headers)
            calibration = next(filter(None, calibrations), None)
            missed = missed_promises(calibration) if calibration is not None else []
            if missed:
                found = "; ".join(f"{each.promise} (found {each.found})" for each in missed)
                run = _name_of([*sides]) if len(runs) > 1 else None
                where = ", ".join(filter(None, [headers[0].part_name(part), run]))
                of_run = f" of {where}" if where else ""
                yield f"Failed self-check{'s' * (len(missed) > 1)}{of_run}: {found}."


def _name_of(labels: Sequence[str]) -> str:
    """Return the run that labels such as `fused@first` share after the `@`; else list them all."""
    runs = {label.partition("@")[2] for label in labels}
    return runs.pop() if len(runs) == 1 and "" not in runs else listed(labels)
