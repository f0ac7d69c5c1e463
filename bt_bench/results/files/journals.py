"""The journal of a run under way: one line per case, beside the result file.

The first line identifies the variant and the run; journals of earlier versions lack it. The file
of a complete result has all cases, and a journal beside it is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from bt_bench.base import STDIN, compact_json, limited, no_collection, open_own, unpacked_path
from bt_bench.base.errors import UsageError
from bt_bench.results.files.parsing import CaseParser
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.soundness import case_problems
from bt_bench.results.run.suites import context_of

RESULT_SUFFIX = ".json"
JOURNAL_SUFFIX = ".cases.jsonl"


def has_journal(path: Path | str) -> bool:
    """Return whether a journal lies beside a result file; it counts only for a partial result."""
    return str(path) != STDIN and os.path.lexists(journal_beside(Path(path)))


def stale_journal(path: Path | str) -> str:
    """Return a warning, as a clause, about a journal beside a complete result."""
    journal = journal_beside(Path(path))
    return f"{journal} was ignored, since {path} is complete without it; delete the journal"


def journal_beside(path: Path) -> Path:
    name = unpacked_path(path).name.removesuffix(RESULT_SUFFIX)
    return path.with_name(name + JOURNAL_SUFFIX)


def journal_header(result: VariantResult) -> bytes:
    return compact_json(header_fields(result)).encode() + b"\n"


def header_fields(result: VariantResult) -> dict[str, str]:
    return {"journal_of": result.run_id, "variant": result.variant.name}


def lines_of(path: Path) -> list[bytes] | None:
    """Return the lines of a journal, without an unfinished last one; `None` if there is none."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            return limited(file, str(path), "the journal of a run").split(b"\n")[:-1]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def with_journal(
    result: VariantResult, name: str, path: Path, lines: Sequence[bytes]
) -> VariantResult:
    """Return a result with the cases of its journal.

    While a run is being closed, a case may be in both; then both must be equal.
    """
    number = _check_header(result, name, path, lines)
    context = context_of(result.suite)
    cases_read = _read_cases(path, lines[number:], number + 1, context)
    journal = {case.key: case for case in cases_read}
    for case in result.cases:
        if case != journal.get(case.key, case):
            raise UsageError(
                f"{name} is damaged: {path.name} beside it has a different case {case.key!r}, and "
                "it is not known which one this run measured. Delete the wrong one"
            )
    cases = {case.key: case for case in result.cases} | journal
    return result.model_copy(update={"cases": list(cases.values())})


def _check_header(result: VariantResult, name: str, path: Path, lines: Sequence[bytes]) -> int:
    """Return the number of header lines: 0 in journals of earlier versions, else 1."""
    try:
        found = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return 0  # not a case either, which `_read_cases` reports
    if not isinstance(found, dict) or "journal_of" not in found:
        return 0
    wanted = header_fields(result)
    if found != wanted:
        raise UsageError(
            f"{path} is of variant {found.get('variant')!r} of run {found['journal_of']!r}, but "
            f"{name} of variant {wanted['variant']!r} of run {wanted['journal_of']!r}; delete the "
            "journal, and --resume measures its cases again"
        )
    return 1


def _read_cases(
    path: Path, lines: Sequence[bytes], first: int, context: dict[str, object]
) -> list[CaseResult]:
    cases = []
    parser = CaseParser(context)
    with no_collection(collect_first=False):
        for number, line in enumerate(lines, start=first):
            try:
                case, repeated = parser.parse(line)
            except ValidationError as error:
                what = error.errors(include_url=False)[0]["msg"]
                raise _damaged_line(path, f"line {number} is not a case: {what}") from None
            if repeated is not None:
                raise _damaged_line(path, f"line {number} {repeated}")
            for problem in case_problems("$", case):
                raise _damaged_line(path, f"line {number}: {problem}")
            cases.append(case)
    return cases


def _damaged_line(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is damaged: {what}. Delete that line to go on; its case is measured again"
    )
