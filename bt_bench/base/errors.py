"""Exceptions with their exit codes, and the spelling of values in messages."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes of every command; `docs/cli.md` has the table."""

    OK = 0
    REGRESSION = 1
    USAGE = 2
    INCONCLUSIVE = 3
    NOT_COMPARABLE = 4
    CHECK_FAILED = 5
    INTERNAL = 70
    INTERRUPTED = 130


class BtBenchError(Exception):
    """An error with a message for the user: the subject, its value, the expectation, the remedy."""

    exit_code = ExitCode.INTERNAL


class UsageError(BtBenchError):
    """A wrong option, config, variant file or input file."""

    exit_code = ExitCode.USAGE


class ForeignCodeError(UsageError):
    """Code of a tree under judgement has run in the process, and may influence how it ends."""


class OtherSchemaError(UsageError):
    """A file of bt-bench that another version wrote, in another schema version."""


class NotComparableError(BtBenchError):
    """Results that must not be compared: another device or schema, or no case in common."""

    exit_code = ExitCode.NOT_COMPARABLE


MAX_SHOWN_VALUE = 60
MAX_SHOWN_DIGITS = 40


def shown(value: object) -> str:
    """Return a value as a config would spell it, cut to `MAX_SHOWN_VALUE` characters."""
    text = _spelled(value)
    return text if len(text) <= MAX_SHOWN_VALUE else text[: MAX_SHOWN_VALUE - 1] + "…"


def _spelled(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**MAX_SHOWN_DIGITS:
        return f"a number of more than {MAX_SHOWN_DIGITS} digits"  # str() refuses huge numbers
    if isinstance(value, float) and not abs(value) < float("inf"):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    if isinstance(value, list):
        return "[" + ", ".join(map(_spelled, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_spelled(item)}" for key, item in value.items()) + "}"
    return repr(value)


def of_system(error: OSError) -> str:
    """Return the message of a system error; name the working directory if that is gone."""
    if error.filename is None and error.errno == errno.ENOENT:
        try:
            Path.cwd()
        except FileNotFoundError:
            return "the working directory no longer exists; change to one that does, with cd"
    return str(error)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `1,200 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Join names in words: `uniform, batch and spread`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


_CANDIDATES = 10
_OF_WHOLE_WORDS = 0.1


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name closest to an unknown one, or `None` if none is close.

    Names that differ only by missing or extra words are preferred: `num_requests` is taken for
    `requests`, and not for `dummy_requests`.
    """
    words = set(name.split("_"))

    def likeness(other: str) -> float:
        others = set(other.split("_"))
        bonus = _OF_WHOLE_WORDS if words <= others or others <= words else 0
        return difflib.SequenceMatcher(None, name, other).ratio() + bonus

    like = difflib.get_close_matches(name, list(valid), n=_CANDIDATES)
    return max(like, key=likeness, default=None)


def names_hint(name: str, valid: Iterable[str]) -> str:
    """Suggest the valid name closest to an unknown one, or list all valid names."""
    names: Sequence[str] = list(valid)
    like = nearest(name, names)
    if like is not None:
        return f"did you mean {like!r}?"
    return f"expected one of {', '.join(names)}"
