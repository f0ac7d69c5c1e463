"""Errors that a user can cause, each with the exit code that it ends the program with."""

from __future__ import annotations

from enum import IntEnum


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
    """An error with a message for the user: what, its value, what was expected, what to do."""

    exit_code = ExitCode.INTERNAL


class UsageError(BtBenchError):
    """A wrong option, config, variant file or input file."""

    exit_code = ExitCode.USAGE


class OtherSchemaError(UsageError):
    """A file of bt-bench that another version of it wrote, in another schema version."""


class NotComparableError(BtBenchError):
    """Results that must not be compared: another device, schema, or no case in common."""

    exit_code = ExitCode.NOT_COMPARABLE
