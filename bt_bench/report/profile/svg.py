"""Elements of pictures, as text. Names and tips are escaped; colours and attributes are trusted."""

from __future__ import annotations

from html import escape

from bt_bench.base import one_line

DARK = "#222222"


def text(
    x: float,
    y: float,
    content: str,
    colour: str = DARK,
    *,
    anchor: str | None = None,
    size: int | None = None,
    bold: bool = False,
) -> str:
    """Return a line of text; style that is not given is inherited.

    Args:
        x: position of its start, or of the point that `anchor` names.
        y: position of its baseline.
        content: the text.
        colour: colour of the text.
        anchor: `middle` or `end`.
        size: size of the font.
        bold: whether the text is bold.
    """
    given = {"font-size": size, "text-anchor": anchor, "font-weight": "bold" if bold else None}
    more = "".join(f' {name}="{value}"' for name, value in given.items() if value is not None)
    return f'<text x="{x:.2f}" y="{y:g}" fill="{colour}"{more}>{escape(content)}</text>'


def cut(content: str, room: int) -> str:
    """Return a text of at most `room` characters; the end of a longer one is left out."""
    return content if len(content) <= room else f"{content[: room - 1]}…"


def tipped(tip: str, drawn: str) -> str:
    """Return a drawing with a tooltip."""
    return f"<g><title>{escape(one_line(tip))}</title>{drawn}</g>"
