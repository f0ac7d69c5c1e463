"""Why the gate's statistics are as they are: what other choices would find, and how often they err.

    python benchmarks/gate_design.py --out reports/gate-rates

One case of a gate of 60, so noisy that its A/A spread makes its margin, in many simulated gates.
It works on arrays, without the gate's own code, and so also checks that code; `gate_rates.py` runs
the gate itself. Writes `gate-design.md`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from bt_bench.report.document import Cell, Document, Section, Table
from bt_bench.report.markdown import render_document
from bt_bench.results.series import FloatArray

TESTS = 60
ALPHA = 0.01
FACTOR = 3
GATES = 20_000
BASE, HEAD, CONTROL = range(3)

Spread = Callable[[FloatArray, FloatArray, int], FloatArray]
Noise = Callable[[np.random.Generator, int], FloatArray]


def _sum(confidence: float) -> Spread:
    return lambda shift, error, degrees: shift + _reach(confidence, error, degrees)


def _larger(confidence: float) -> Spread:
    return lambda shift, error, degrees: np.maximum(shift, _reach(confidence, error, degrees))


def _reach(confidence: float, error: FloatArray, degrees: int) -> FloatArray:
    return stats.t.ppf((1 + confidence) / 2, degrees) * error


GATE_SPREAD = _larger(0.99)


@dataclass(frozen=True)
class Design:
    """One way to do it; the defaults are the gate's."""

    looks: tuple[int, ...] = (12, 20, 32)
    power: float = 2
    trimmed: float = 0.15
    fewer_degrees: int = 2
    spread: Spread = GATE_SPREAD

    def alphas(self) -> FloatArray:
        """What each look may spend."""
        return np.diff([ALPHA * (look / self.looks[-1]) ** self.power for look in (0, *self.looks)])

    def estimate(self, logs: FloatArray) -> tuple[FloatArray, FloatArray, int]:
        """Trimmed means of [gates, rounds], their errors, and degrees of freedom."""
        rounds = logs.shape[1]
        cut = int(self.trimmed * rounds)
        left = rounds - 2 * cut
        ordered = np.sort(logs, axis=1)
        location = ordered[:, cut : rounds - cut].mean(axis=1)
        if cut:
            ordered[:, :cut] = ordered[:, [cut]]
            ordered[:, rounds - cut :] = ordered[:, [rounds - cut - 1]]
        error = ordered.std(axis=1) * np.sqrt(rounds / (left * (left - 1)))
        return location, error, left - 1 - (self.fewer_degrees if cut else 0)


DESIGNS = {
    "as the gate has it": Design(),
    "means, nothing trimmed": Design(trimmed=0.0),
    "10 % trimmed at either end": Design(trimmed=0.1),
    "20 % trimmed at either end": Design(trimmed=0.2),
    "no degrees of freedom taken off": Design(fewer_degrees=0),
    "alpha spent in proportion to rounds": Design(power=1),
    "one look after 32 rounds": Design(looks=(32,)),
    "looks after 12, 24, 40 rounds": Design(looks=(12, 24, 40)),
    "spread: shift or reach at 95 %": Design(spread=_larger(0.95)),
    "spread: shift or reach at 98 %": Design(spread=_larger(0.98)),
    "spread: shift and reach at 95 %, added": Design(spread=_sum(0.95)),
}


def _white(generator: np.random.Generator, rounds: int) -> FloatArray:
    return 0.02 * generator.normal(size=(GATES, rounds, 3))


def _modes(generator: np.random.Generator, rounds: int) -> FloatArray:
    return _white(generator, rounds) + 0.04 * (generator.random((GATES, rounds, 3)) < 0.3)


def _spiky(generator: np.random.Generator, rounds: int) -> FloatArray:
    shape = (GATES, rounds, 3)
    spikes = np.log1p(generator.exponential(0.3, shape))
    return _white(generator, rounds) / 2 + np.where(generator.random(shape) < 0.04, spikes, 0.0)


NOISES: dict[str, Noise] = {"white": _white, "two modes": _modes, "spiky": _spiky}


@dataclass(frozen=True)
class Found:
    """Shares of gates, and the quartiles of their margins."""

    false_alarms: float
    own: tuple[float, float]
    earlier: tuple[float, float]
    margins: tuple[float, float, float]


def simulate(design: Design, noise: Noise, seed: int, batches: int) -> Found:
    """Gates of 60 such cases: false alarms of all of them, and detection of one."""
    generator = np.random.default_rng(seed)
    parts = [_batch(design, noise, generator) for _ in range(batches)]
    shares = np.mean([part[0] for part in parts], axis=0)
    margins = np.percentile(np.concatenate([part[1] for part in parts]), (25, 50, 75))
    return Found(TESTS * shares[0], tuple(shares[1:3]), tuple(shares[3:5]), tuple(margins))


def _batch(
    design: Design, noise: Noise, generator: np.random.Generator
) -> tuple[list[float], FloatArray]:
    logs = noise(generator, design.looks[-1])
    margins = [_margins(design, logs[:, :look]) for look in design.looks]
    own, earlier = margins[-1], generator.permutation(margins[-1])
    # A margin that is fixed, and just reached: the hardest case of no regression.
    fixed = [np.zeros(GATES)] * len(design.looks)
    shares = [_slower(design, logs, np.zeros(GATES), fixed)]
    for known in (own, earlier):
        shares += [_slower(design, logs, np.log1p(k * known), margins) for k in (2, 3)]
    return shares, own


def _margins(design: Design, logs: FloatArray) -> FloatArray:
    shift, error, degrees = design.estimate(logs[..., CONTROL] - logs[..., BASE])
    return FACTOR * np.expm1(design.spread(np.abs(shift), error, degrees))


def _slower(
    design: Design, logs: FloatArray, change: FloatArray, margins: list[FloatArray]
) -> float:
    """Share of gates that find it at any look."""
    found = np.zeros(GATES, dtype=bool)
    for look, alpha, margin in zip(design.looks, design.alphas(), margins, strict=True):
        ratios = logs[:, :look, HEAD] - logs[:, :look, BASE]
        location, error, degrees = design.estimate(ratios)
        beyond = (location + change - np.log1p(margin)) / error
        found |= stats.t.sf(beyond, degrees) * TESTS <= alpha
    return float(found.mean())


def main() -> int:
    """Simulates all designs and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20, help=f"of {GATES} gates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    began = time.monotonic()
    sections = [
        Section(name.capitalize(), (_table(noise, args.seed, args.batches),))
        for name, noise in NOISES.items()
    ]
    lead = (
        f"{args.batches * GATES} simulated gates each; took {time.monotonic() - began:.0f} s.",
        "False alarms: how many gates find any SLOWER when all 60 cases are slower by exactly "
        f"their margin; {ALPHA:.0%} is allowed. Found: how many gates find one case that is slower "
        "by 2 and by 3 times its margin, or by so many times the margin of an earlier gate.",
    )
    text = render_document(Document("Other designs of the gate", lead, tuple(sections)))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gate-design.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _table(noise: Noise, seed: int, batches: int) -> Table:
    columns = ("", "false alarms", "found 2 x, 3 x", "2 x, 3 x earlier", "margins, quartiles")
    rows = []
    for name, design in DESIGNS.items():
        found = simulate(design, noise, seed, batches)
        cells = (
            name,
            f"{100 * found.false_alarms:.2f} %",
            ", ".join(f"{100 * share:.1f} %" for share in found.own),
            ", ".join(f"{100 * share:.1f} %" for share in found.earlier),
            " / ".join(f"{100 * margin:.1f}" for margin in found.margins) + " %",
        )
        rows.append(tuple(Cell(text) for text in cells))
        print(f"{name}: {cells[1:]}", file=sys.stderr)
    return Table(columns, tuple(rows), 1)


if __name__ == "__main__":
    sys.exit(main())
