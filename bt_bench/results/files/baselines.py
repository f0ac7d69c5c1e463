"""Baselines: results stored by name for later comparisons, in `<reports>/baselines/<name>.json`."""

from __future__ import annotations

from pathlib import Path

from bt_bench.base import write_text
from bt_bench.base.errors import UsageError, names_hint
from bt_bench.results.files.compact import CompactCase, CompactResult
from bt_bench.results.files.folders import FILE_NAME, file_name
from bt_bench.results.run.nouns import Status

FOLDER = "baselines"
_SUFFIX = ".json"


def baseline_path(reports: Path, name: str) -> Path:
    """Return the path of a baseline, whether it exists or not.

    Raises:
        UsageError: for a name that cannot be a file name.
    """
    return reports / FOLDER / file_name("baseline", name, _SUFFIX)


def baseline_names(reports: Path) -> list[str]:
    """Return the names of the stored baselines, sorted."""
    paths = (reports / FOLDER).glob(f"*{_SUFFIX}")
    return sorted(path.stem for path in paths if FILE_NAME.fullmatch(path.stem))


def find_baseline(reports: Path, name: str) -> Path:
    """Return the file of an existing baseline.

    Raises:
        UsageError: if it does not exist; lists the existing ones.
    """
    path = baseline_path(reports, name)
    if path.is_file():
        return path
    names = baseline_names(reports)
    hint = (
        names_hint(name, names)
        if names
        else "there are no baselines yet; --save-baseline NAME makes one"
    )
    there = f" It holds {', '.join(names)}." if names else ""
    raise UsageError(f"--baseline {name}: no such baseline in {path.parent}; {hint}{there}")


def why_no_baseline(result: CompactResult) -> str | None:
    """Return why a result cannot be a baseline, as a clause after its name; `None` if it can.

    Later results cannot be compared with cases that failed or were never measured: a gate with
    such a baseline would have nothing to judge.
    """
    if not result.header.complete:
        return "is a partial result; finish its run with `bt-bench sweep --resume`"
    if not result.cases:
        return "has no cases; expected a result with cases that are ok"
    for case in result.cases:
        if case.status in (Status.FAILED, Status.INSUFFICIENT):
            reason = f" ({case.reason})" if case.reason else ""
            return (
                f"has case {case.key}, which is {case.status.value}{reason}; expected all to be "
                "ok. Fix it, or leave it out, and sweep again"
            )
        if case.status is Status.OK and not _has_figures(case):
            return (
                f"has case {case.key}, for which nothing was measured or counted; expected figures "
                "to compare with. Sweep again where they can be taken, or leave it out"
            )
    if all(case.status is not Status.OK for case in result.cases):
        first = result.cases[0]
        return (
            f"has no case that was measured; the first, {first.key}, is {first.status.value} "
            f"({first.reason})"
        )
    return None


def _has_figures(case: CompactCase) -> bool:
    return bool(case.taken) or case.launches is not None or case.compiled is not None


def save_baseline(reports: Path, name: str, text: str) -> Path:
    """Store the text of a result file as a baseline, replacing an earlier one of that name.

    Args:
        reports: the folder of run folders.
        name: name of the baseline.
        text: text of a result that `why_no_baseline` accepts with `None`.

    Raises:
        UsageError: if it cannot be written.
    """
    path = baseline_path(reports, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {path.parent}: {error.strerror}") from None
    write_text(path, text)
    return path
