"""Source files of Python, read as Python reads them."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
from pathlib import Path

NOT_READ = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
"""The errors of reading and parsing a file that is no Python, or more than Python can parse."""

_HEAD_BYTES = 1 << 16  # a docstring stands at the top, and a file may be of any size


def python_text(path: Path) -> str:
    """Return the text of a source file, by its declared encoding and without a byte-order mark.

    Raises:
        OSError: if it cannot be read.
        SyntaxError: if it declares an encoding that does not exist.
        UnicodeDecodeError: if it is not in its encoding.
    """
    return importlib.util.decode_source(path.read_bytes())


def summary_of_file(path: Path) -> str:
    """Return the first line of a module's docstring; empty without one.

    Only the top of the file is read and nothing is imported, since a folder may hold anything.
    """
    import tokenize  # not above: `--help` imports this module

    passed_over = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
    try:
        tokens = tokenize.tokenize(io.BytesIO(_head(path)).readline)
        first = next(token for token in tokens if token.type not in passed_over)
        docstring = ast.literal_eval(first.string) if first.type == tokenize.STRING else None
    except (*NOT_READ, StopIteration, tokenize.TokenError):
        return ""
    lines = docstring.strip().splitlines() if isinstance(docstring, str) else ()
    return lines[0].strip() if lines else ""


def _head(path: Path) -> bytes:
    # Reading some regular files of the system waits for an event.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        return file.read(_HEAD_BYTES) or b""
