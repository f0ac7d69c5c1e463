"""Output to a terminal or file whose encoding lacks some characters."""

from __future__ import annotations

import codecs
import sys

_SPELL = "bt_bench.spell"
_SPELL_OR_PUT_BACK = "bt_bench.spell_or_put_back"
_INSTEAD_OF = {
    "strict": _SPELL,
    "surrogatepass": _SPELL,
    "surrogateescape": _SPELL_OR_PUT_BACK,  # as in the locale C, where Python is not in UTF-8 mode
}
"""Error handlers that replace the ones that would raise on a character the encoding lacks."""

_BYTES = 0xDC00
"""Offset of the surrogates that stand for bytes Python could not decode."""

_SPELLED = {
    "µ": "u",
    "μ": "u",
    "×": "x",
    "·": "*",
    "•": "*",
    "…": "...",
    "–": "-",
    "—": "-",
    "─": "-",
    "−": "-",
    "├": "|",
    "┤": "|",
    "┆": ":",
    "┼": "+",
    "●": "*",
    "○": "o",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "±": "+/-",
    "²": "^2",
    "³": "^3",
    "’": "'",
    "“": '"',
    "”": '"',
}


def spell_what_streams_lack() -> None:
    """Make stdout and stderr spell out characters that their encoding lacks, rather than raise.

    `µ` becomes `u`, `×` becomes `x`; a character without such a spelling becomes its code, as
    Python escapes it. Nothing changes in UTF-8, which has all characters. Undecodable bytes, as in
    a file name, are written back as they were if the stream would have done so.
    """
    codecs.register_error(_SPELL, _spell)
    codecs.register_error(_SPELL_OR_PUT_BACK, _spell_or_put_back)
    # Python always uses `backslashreplace` for stderr, whatever was requested.
    for stream, ways in (
        (sys.stdout, _INSTEAD_OF),
        (sys.stderr, _INSTEAD_OF | {"backslashreplace": _SPELL}),
    ):
        # Tests and notebooks may have replaced these with streams that cannot be reconfigured.
        way = ways.get(getattr(stream, "errors", ""))
        if way is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=way)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    escaped = (character.encode("ascii", "backslashreplace").decode() for character in lacking)
    pairs = zip(lacking, escaped, strict=True)
    return "".join(_SPELLED.get(one, other) for one, other in pairs), error.end


def _spell_or_put_back(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    error.end = error.start + 1
    byte = ord(error.object[error.start]) - _BYTES
    return (bytes([byte]), error.end) if 0x80 <= byte <= 0xFF else _spell(error)
