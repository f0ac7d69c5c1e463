"""Exceptions of variants: their attribution and their texts."""

from __future__ import annotations

import traceback

MAX_TEXT = 500  # characters of an exception's text

_interruptible = True


def ignore_interrupts() -> None:
    """Attribute each `KeyboardInterrupt` to a variant, since Ctrl-C does not reach the process."""
    global _interruptible
    _interruptible = False


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is a Ctrl-C that has to end the run, and not a variant's own."""
    return _interruptible and isinstance(error, KeyboardInterrupt)


def text_of(error: BaseException) -> str:
    """Return the text of any exception, made storable and cut if long."""
    try:
        text = encodable(str(error))
    except BaseException as second:
        if is_interrupt(second):
            raise
        return f"(its str() raised {type(second).__name__})"
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of any exception as Python prints it, made storable."""
    return encodable("".join(traceback.format_exception(error)))


def encodable(text: str) -> str:
    """Return a text with lone surrogates spelled out: UTF-8 has none, but names of files may."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
