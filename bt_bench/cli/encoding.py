"""Output on a terminal or in a file whose encoding lacks some characters."""

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
"""For each way to treat what an encoding lacks that would raise, another one that does not."""

_BYTES = 0xDC00
"""Where Python has bytes that it could not decode: above this code."""

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
    """Has stdout and stderr spell characters that their encoding lacks, rather than raise.

    `µ` becomes `u`, `×` becomes `x`; a character without such a spelling becomes its code, as
    Python escapes it. UTF-8 has all characters, so nothing changes there. Bytes that came from
    outside, as in the name of a file, are put back where the stream would have done so.
    """
    codecs.register_error(_SPELL, _spell)
    codecs.register_error(_SPELL_OR_PUT_BACK, _spell_or_put_back)
    # Python has stderr always write codes, whatever it was asked for.
    for stream, ways in (
        (sys.stdout, _INSTEAD_OF),
        (sys.stderr, _INSTEAD_OF | {"backslashreplace": _SPELL}),
    ):
        # Only text streams: tests and notebooks put others in their place.
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
