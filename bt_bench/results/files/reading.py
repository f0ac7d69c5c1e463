"""Reading of result files and whole runs; damaged ones are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from bt_bench.base import STDIN, name_of, no_collection, read_text, unpacked_path
from bt_bench.base.errors import OtherSchemaError, UsageError
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.invalid import describe_invalid, has_other_version, repeated_key
from bt_bench.results.files.journals import journal_beside, lines_of, with_journal
from bt_bench.results.files.parsing import CaseParser, KnownTexts
from bt_bench.results.files.writing import changed_meanwhile
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.result import BASELINE, SCHEMA_VERSION, VariantResult
from bt_bench.results.run.soundness import case_problems, header_problems, part_problems
from bt_bench.results.run.suites import SuiteInfo, context_of

Read = TypeVar("Read")
Kept = TypeVar("Kept")


def read_result(path: Path | str, known: KnownTexts | None = None) -> VariantResult:
    """Read a result file, or standard input for `-`, with the journal of a run under way.

    Args:
        path: the file.
        known: the texts that were read in other files of the run.

    Raises:
        OtherSchemaError: for another schema version.
        UsageError: with the file, the problem and its place.
    """
    # The journal first: closing a run puts its cases into the file before it removes the journal.
    journal = journal_beside(Path(path))
    lines = None if str(path) == STDIN else lines_of(journal)
    name = name_of(path)
    result = parse_result(read_text(path, name), name, known)
    if lines is None or result.complete:
        return result
    return with_journal(result, name, journal, lines)


def read_written(path: Path, digest: str) -> VariantResult:
    """Read a result file that this process has written.

    Args:
        path: the file.
        digest: from `ResultWriter.close`.

    Raises:
        UsageError: if the content is not as written.
    """
    text = read_text(path, str(path))
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise changed_meanwhile(path)
    return parse_result(text, str(path))


def parse_result(text: str, name: str, known: KnownTexts | None = None) -> VariantResult:
    """Parse a result.

    Args:
        text: content of a result file.
        name: name of the file, for messages.
        known: the texts that were read in other files of the run.

    Raises:
        OtherSchemaError: for another schema version.
        UsageError: with the file, the problem and its place.
    """
    header, cases = parse_with(lambda case: case, text, name, known)
    return header.model_copy(update={"cases": cases})


def parse_with(
    keep: Callable[[CaseResult], Kept], text: str, name: str, known: KnownTexts | None = None
) -> tuple[VariantResult, list[Kept]]:
    """Parse a result; return it without its cases, and the kept form of each case.

    Cases are parsed one by one; only one at a time is in memory in full.

    Args:
        keep: is called with each sound case, and returns the kept form.
        text: content of a result file.
        name: name of the file, for messages.
        known: the texts that were read in other files of the run.

    Raises:
        OtherSchemaError: for another schema version.
        UsageError: with the file, the problem and its place.
    """
    if not text.strip():
        raise UsageError(f"{name} is empty; expected a result of bt-bench")
    keys: list[str] = []
    kept: list[Kept] = []
    damage: str | None = None
    # Garbage collection of thousands of lists would take twice as long as reading them.
    with no_collection(collect_first=False):
        try:
            header, cases, repeated = _split(text)
            parser = CaseParser(context_of(header.suite), known)
            for index, each in enumerate(cases):
                case, twice = parser.parse(bytes(each))
                repeated = repeated or twice
                keys.append(case.key)
                at = f"$.cases[{index}]"
                found = chain(part_problems(at, case, header), case_problems(at, case))
                problem = next(found, None)
                if problem is not None:
                    damage = damage or f"{problem} (case {case.key})"
                elif damage is None:
                    kept.append(keep(case))
        except (msgspec.MsgspecError, ValidationError, RecursionError) as error:
            raise _refusal(text, name, error) from None
    if repeated is not None:
        raise UsageError(f"{name} is damaged: it {repeated}")
    damage = next(header_problems(header, keys), damage)
    if damage is not None:
        raise UsageError(f"{name} is damaged: {damage}")
    return header, kept


def _split(text: str) -> tuple[VariantResult, list[msgspec.Raw], str | None]:
    """Return the result without its cases, the text of each, and a message on a repeated key."""
    parts = msgspec.json.decode(text, type=_parts_type())
    cases = parts.cases or []
    if parts.cases:
        parts.cases = []
    header = msgspec.json.encode(parts)
    # Outside of strings, each key has a colon: with more of them, a key of the whole is repeated.
    colons = header.count(b":") + sum(bytes(case).count(b":") for case in cases)
    repeated = repeated_key(header.decode() if colons == text.count(":") else text)
    return VariantResult.model_validate_json(header, strict=True), cases, repeated


@cache
def _parts_type() -> Any:
    """Return a type for the texts of all fields of a result, with one for each case."""
    own = {"cases": list[msgspec.Raw]}
    fields = [
        (name, own.get(name, msgspec.Raw) | msgspec.UnsetType, msgspec.UNSET)
        for name in VariantResult.model_fields
    ]
    return msgspec.defstruct("Parts", fields, forbid_unknown_fields=True)


def _refusal(text: str, name: str, error: Exception) -> UsageError:
    """Return the error for an invalid text, parsed as a whole to locate the problem."""
    try:
        VariantResult.model_validate_json(text, strict=True, context=_context(text))
    except ValidationError as whole:
        kind = OtherSchemaError if has_other_version(text, whole) else UsageError
        return kind(f"{name} {describe_invalid(text, whole)}")
    return UsageError(f"{name} is not JSON: {error}")


def _context(text: str) -> dict[str, object]:
    """Return the validation context for a damaged text: its suite's, if that can be read."""
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        suite = SuiteInfo.model_validate_json(bytes(parts["suite"]))
    except (msgspec.MsgspecError, ValidationError, KeyError, RecursionError):
        suite = None
    return context_of(suite)


def read_run(folder: RunFolder | Path, order: Sequence[str] = ()) -> list[VariantResult]:
    """Read all results of a run: the baseline, the variants in `order`, then the rest by name.

    A run that has just begun has no results.
    """
    known = KnownTexts()
    return read_run_with(
        lambda path: read_result(path, known), lambda result: result.variant.name, folder, order
    )


def read_run_with(
    read: Callable[[Path], Read],
    variant_of: Callable[[Read], str],
    folder: RunFolder | Path,
    order: Sequence[str] = (),
) -> list[Read]:
    """Read all results of a run with the given reader of a file; see `read_run`."""
    run = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
    results: dict[str, Read] = {}
    for path in run.result_paths():
        if not path.is_file():  # opening a FIFO would wait for ever
            raise UsageError(
                f"{path} is not a regular file; expected a result file (<variant>.json)"
            )
        result = read(path)
        variant = variant_of(result)
        if unpacked_path(path) != run.result_path(variant):
            raise UsageError(
                f"{path} holds the results of variant {variant!r}; expected them in {variant}.json"
            )
        if variant in results:
            others = (other for other in run.result_paths() if other != path)
            other = next(each for each in others if unpacked_path(each) == unpacked_path(path))
            raise UsageError(
                f"{other} and {path} both hold the results of variant {variant!r}; delete one"
            )
        results[variant] = result
    return in_order([results[name] for name in sorted(results)], variant_of, order)


def in_order(
    results: Sequence[Read], name_of: Callable[[Read], str], order: Sequence[str]
) -> list[Read]:
    """Sort results as reports list them: the baseline, the variants in `order`, then the rest.

    Args:
        results: at most one of each variant.
        name_of: returns the variant of a result.
        order: names of variants, as in the config of the run.
    """
    by_name = {name_of(result): result for result in results}
    names = dict.fromkeys([BASELINE, *order, *by_name])
    return [by_name[name] for name in names if name in by_name]


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a result file as written."""
    schema = VariantResult.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:bt-bench:result:{SCHEMA_VERSION}",
        **schema,
        "title": "Result file of bt-bench: all cases of one variant in one run",
    }
