"""Exceptions of variants: whether a variant raised them, and their texts."""

from __future__ import annotations

import traceback

MAX_TEXT = 500  # characters of what an exception says

_interruptible = True


def ignore_interrupts() -> None:
    """Says that Ctrl-C does not reach this process: `KeyboardInterrupt` is then a variant's."""
    global _interruptible
    _interruptible = False


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is a Ctrl-C that has to end the run, rather than a variant's doing."""
    return _interruptible and isinstance(error, KeyboardInterrupt)


def text_of(error: BaseException) -> str:
    """The text of any exception, made storable and cut if long."""
    try:
        text = str(error)
    except BaseException as second:
        if is_interrupt(second):
            raise
        return f"(its str() raised {type(second).__name__})"
    return storable(text)


def traceback_of(error: BaseException) -> str:
    """The traceback of any exception, as Python prints it, made storable."""
    return encodable("".join(traceback.format_exception(error)))


def storable(text: str) -> str:
    """A text that can be stored, cut if long."""
    text = encodable(text)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def encodable(text: str) -> str:
    """A text with lone surrogates spelled out: UTF-8 has none, but names of files may."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
