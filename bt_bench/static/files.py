"""Census files: the same census is the same text, with a line per kernel, case and operation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from bt_bench.errors import UsageError
from bt_bench.invalid import describe_invalid, repeated_key
from bt_bench.static.model import STATIC_SCHEMA_VERSION, StaticCensus
from bt_bench.store import STDIN, read_text, write_text

# Containers down to here have a line per member: census, variants, one variant, its kernels.
_SPREAD_LEVELS = 4


def write_census(path: Path, census: StaticCensus) -> None:
    """Writes or replaces a census file, atomically.

    Raises:
        UsageError: if it cannot be written.
    """
    write_text(path, census_text(census))


def census_text(census: StaticCensus) -> str:
    """The text of a census file."""
    return _spread(census.model_dump(mode="json", exclude_none=True), 0) + "\n"


def read_census(path: Path | str) -> StaticCensus:
    """Reads a census file, or standard input for `-`.

    Raises:
        UsageError: if it cannot be read or is no census, saying what is wrong with it.
    """
    name = "standard input" if str(path) == STDIN else str(path)
    text = read_text(path, name, expected="a static census", example="census.json")
    if not text.strip():
        raise UsageError(f"{name} is empty; expected a static census of bt-bench")
    try:
        # Strict, or else "1" would be read as a number.
        census = StaticCensus.model_validate_json(text, strict=True)
    except ValidationError as error:
        problem = describe_invalid(
            text, error, StaticCensus, STATIC_SCHEMA_VERSION, what="static census"
        )
        raise UsageError(f"{name} {problem}") from None
    if (repeated := repeated_key(text)) is not None:
        raise UsageError(f"{name} is damaged: it {repeated}")
    for problem in _problems(census):
        raise UsageError(f"{name} is damaged: {problem}")
    return census


def _problems(census: StaticCensus) -> Iterator[str]:
    """What types alone do not catch: of what is there twice, only one would be compared."""
    cases = {case.name for case in census.cases}
    yield from _repeated("cases", (case.name for case in census.cases))
    yield from _repeated("variants", (variant.name for variant in census.variants))
    for variant in census.variants:
        places = (f"{of.operation}/{of.case} for {of.target}" for of in variant.operations)
        yield from _repeated(f"operations of variant {variant.name!r}", places)
        yield from _repeated(
            f"kernels of variant {variant.name!r}", (k.id for k in variant.kernels)
        )
        for of in variant.operations:
            if of.case not in cases:
                yield (
                    f"variant {variant.name!r} has {of.operation}/{of.case}, whose workload is not "
                    "in $.cases"
                )


def _repeated(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"the {what} have {name!r} {count} times; expected it once"


def _spread(value: object, level: int) -> str:
    """JSON with the members of the outer containers on lines of their own."""
    if level == _SPREAD_LEVELS or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        members = [f"{json.dumps(key)}: {_spread(item, level + 1)}" for key, item in value.items()]
    else:
        members = [_spread(item, level + 1) for item in value]
    indent = " " * level
    inner = f",\n{indent} ".join(members)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{indent} {inner}\n{indent}{closing}"
