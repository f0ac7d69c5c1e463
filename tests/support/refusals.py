"""Commands that must be refused."""

from __future__ import annotations

from support.commands import run


def refused(*arguments: object, code: int = 2, stdin: str | None = None) -> str:
    """The message of a command that must be refused: nothing else is printed."""
    outcome = run(*arguments, stdin=stdin)
    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    return outcome.err
