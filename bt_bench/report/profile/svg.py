"""Elements of pictures, as text. Names and tips are escaped; colours and attributes are trusted."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from bt_bench.base import one_line

WIDTH = 1000  # of every picture
MARGIN = 12
FAMILY = "font-family=\"'DejaVu Sans Mono', Menlo, Consolas, monospace\""
"""The attribute for a font whose character width is known."""

DARK = "#222222"


def picture(
    height: int, title: str, room: int, parts: Iterable[str], defs: Iterable[str] = ()
) -> str:
    """Return a standalone picture with a white background and its title at the top.

    Args:
        height: height of the picture.
        title: its title.
        room: most characters of the title that are shown.
        parts: what is drawn, in order.
        defs: definitions that the parts refer to.
    """
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" '
            'role="img">',
            f"<title>{escape(one_line(title))}</title>",
            *defs,
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{MARGIN}" y="22" font-size="15" font-weight="bold" fill="{DARK}">'
            f"{escape(cut(one_line(title), room))}</text>",
            *parts,
            "</svg>\n",
        ]
    )


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
