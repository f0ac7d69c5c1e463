"""Output on a terminal or in a file whose encoding lacks some characters."""

from __future__ import annotations

import codecs
import sys

_HANDLER = "bt_bench.spell"
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
    Python escapes it. UTF-8 has all characters, so nothing changes there.
    """
    codecs.register_error(_HANDLER, _spell)
    for stream in (sys.stdout, sys.stderr):
        # Only text streams that would raise: tests and notebooks put others in their place.
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_HANDLER)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    escaped = (character.encode("ascii", "backslashreplace").decode() for character in lacking)
    pairs = zip(lacking, escaped, strict=True)
    return "".join(_SPELLED.get(one, other) for one, other in pairs), error.end
