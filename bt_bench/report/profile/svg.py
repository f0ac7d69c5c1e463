"""Elements of pictures, as text. Names and tips are escaped; colours and attributes are ours."""

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
    """A line of text; what is not given is as around it.

    Args:
        x: of its begin, or of what `anchor` says.
        y: of its baseline.
        content: the text.
        colour: of the text.
        anchor: `middle` or `end`.
        size: of the font.
        bold: whether it is.
    """
    given = {"font-size": size, "text-anchor": anchor, "font-weight": "bold" if bold else None}
    more = "".join(f' {name}="{value}"' for name, value in given.items() if value is not None)
    return f'<text x="{x:.2f}" y="{y:g}" fill="{colour}"{more}>{escape(content)}</text>'


def cut(content: str, room: int) -> str:
    """A text of that many characters at most; its end is left out if it is longer."""
    return content if len(content) <= room else f"{content[: room - 1]}…"


def tipped(tip: str, drawn: str) -> str:
    """What is drawn, with a text on hovering."""
    return f"<g><title>{escape(one_line(tip))}</title>{drawn}</g>"
