"""Draw what `one_launch` saves of a step, by regime: from the samples of `headline.py --batches`.

    python studies/batch_worth.py            # draws docs/pictures/batch-worth.svg

It needs no GPU. `readme.py` writes the same figures into the docs, as a table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import ROOT
from headline_page import KINDS, MIXED, kinds_of
from measured import Measured
from recompute import pair

from bt_bench.analysis import median
from bt_bench.report import ABSENT
from bt_bench.report.profile.svg import DARK, MARGIN, WIDTH, picture, text

FOLDER = ROOT / "reports" / "headline" / "batches"
PICTURE = ROOT / "docs" / "pictures" / "batch-worth.svg"

Samples = Mapping[str, Any]


class Regime(NamedTuple):
    """A way in which an engine runs its steps.

    Args:
        name: its name.
        what: the quantity of `samples.npz` that a step then waits for.
        steps_ms: lengths of stated steps, of which the saved time is a share.
        colour: colour of its bars.
    """

    name: str
    what: str
    steps_ms: tuple[float, float]
    colour: str


REGIMES = (
    Regime("idle", "whole", (2.7, 5), "#3465a4"),
    Regime("graph", "host", (2.7, 5), "#4e9a06"),
    Regime("busy", "gpu", (10, 30), "#c17d11"),
)


class Saved(NamedTuple):
    """Holds the µs that are saved of a step, over the cases of a kind.

    Args:
        kind: the kind.
        regime: the regime.
        low: least of all cases.
        middle: median of all cases.
        high: most of all cases.
        count: number of cases.
    """

    kind: str
    regime: Regime
    low: float
    middle: float
    high: float
    count: int

    def times(self) -> str:
        """Return median and range as text."""
        return f"{self.middle:.1f} ({self.low:.1f} to {self.high:.1f})"

    def shares(self) -> str:
        """Return the share of each stated step in %, by the median of the cases.

        A host-bound step has no prefill, so its share is not told of kinds with prefills.
        """
        if self.kind == MIXED and self.regime.what != "gpu":
            return ABSENT
        return " and ".join(f"{self.middle / step / 10:.2g} %" for step in self.regime.steps_ms)


HEAD = (
    "steps",
    "cases",
    *(f"{r.name}: saved, µs" for r in REGIMES),
    *(
        f"{r.name}: share of {r.steps_ms[0]:g} and of {r.steps_ms[1]:g} ms"
        for r in REGIMES
    ),
)  # fmt: skip


def saved(samples: Samples, sizes: Mapping[str, Mapping[str, int]]) -> list[Saved]:
    """Return what ours saves of vLLM's time, by kind of case and by regime."""
    return [
        Saved(kind, regime, min(found), median(found), max(found), len(found))
        for kind, names in kinds_of(samples, sizes).items()
        for regime in REGIMES
        if (found := [*_differences(samples, names, regime.what)])
    ]


def _differences(samples: Samples, names: Sequence[str], what: str) -> Iterator[float]:
    """Yield vLLM's time less ours, for each case that has a ratio, in µs."""
    for name in names:
        both = pair(samples, f"{name} {what}", 1)
        if both is not None:
            theirs, ours = both[1].astype(float), both[0].astype(float)
            yield float(np.median(np.median(theirs - ours, axis=0))) / 1000


def rows(samples: Samples, sizes: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """Return the rows of the table with the titles `HEAD`."""
    found = saved(samples, sizes)
    table = []
    for kind in KINDS:
        of_kind = {each.regime: each for each in found if each.kind == kind}
        if of_kind:
            cells = [of_kind.get(regime) for regime in REGIMES]
            table.append(
                [
                    kind,
                    str(max(each.count for each in of_kind.values())),
                    *(each.times() if each else ABSENT for each in cells),
                    *(each.shares() if each else ABSENT for each in cells),
                ]
            )
    return table


BAR, GAP, LEFT, RIGHT, TOP = 18, 12, 210, 330, 66


def draw(samples: Samples, facts: Mapping[str, Any]) -> str:
    """Return the picture: a bar for each kind and regime, with its range as a line."""
    found = saved(samples, facts["sizes"])
    scale = (WIDTH - LEFT - RIGHT) / max((each.high for each in found), default=1.0)
    y, parts, last = TOP, [_legend()], ""
    for each in found:
        if each.kind != last:
            y += GAP * bool(last)
            last = each.kind
            parts.append(text(MARGIN, y + 13, last if last != MIXED else "prefills and mixes"))
        parts += _bar(each, y, scale)
        y += BAR
    parts.append(text(MARGIN, y + 28, Measured(**facts["measured"]).sentence(), size=9))
    title = "What one_launch saves of a step, beside vLLM's own preparation of the batch"
    return picture(y + 40, title, 110, parts)


def _legend() -> str:
    """Return the names of the regimes, in their colours, and what a line is."""
    parts, x = [], MARGIN
    for regime in REGIMES:
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{regime.colour}"/>')
        parts.append(text(x + 18, 46, regime.name))
        x += 80
    what = "saved µs: median of cases; line: least to most; share of the stated steps"
    return "\n".join([*parts, text(x + 10, 46, what)])


def _bar(each: Saved, y: float, scale: float) -> Iterator[str]:
    """Yield a bar, its line, and its figures."""
    zero = LEFT
    width = max(each.middle, 0) * scale
    yield (
        f'<rect x="{zero}" y="{y}" width="{width:.1f}" height="{BAR - 4}" '
        f'fill="{each.regime.colour}" fill-opacity="0.6"/>'
    )
    middle = y + (BAR - 4) / 2
    ends = [zero + max(end, 0) * scale for end in (each.low, each.high)]
    yield (
        f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" y2="{middle}" stroke="{DARK}"/>'
    )
    ms = " and ".join(f"{step:g}" for step in each.regime.steps_ms)
    shares = each.shares()
    more = "" if shares == ABSENT else f": {shares} of {ms} ms"
    yield text(WIDTH - RIGHT + 8, y + 11, f"{each.middle:.1f} µs{more}")


def main() -> int:
    """Draw the picture."""
    if not (FOLDER / "samples.npz").is_file():
        sys.exit(f"{FOLDER} has no samples.npz; measure and pack it by headline.py --batches")
    PICTURE.write_text(drawn(FOLDER), encoding="utf-8")
    return 0


def drawn(folder: Path) -> str:
    """Return the picture of a packed folder."""
    with np.load(folder / "samples.npz") as stored:
        samples = dict(stored)
    return draw(samples, json.loads((folder / "facts.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
