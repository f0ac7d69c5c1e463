"""Compare the gate's statistical design with alternatives: their power and error rates.

    python studies/gate_design.py --out reports/gate-rates

Simulates one figure of a gate of 60 whose arms share a process, in many gates of two looks. It
works on arrays, without the gate's own code, and so also checks that code; `error_rates.py` runs
the gate itself. Writes `gate-design.json` and `gate-design.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import table, write_report
from scipy import stats

from bt_bench.report import Document, Section
from bt_bench.results import FloatArray

TESTS = 60
ALPHA = 0.008  # for all planned looks together
LOOKS = (12, 32)
POWER = 0.99
GATES = 20_000
BASE, HEAD, CONTROL = range(3)

Noise = Callable[[np.random.Generator, int], FloatArray]


@dataclass(frozen=True)
class Design:
    """A statistical design; the defaults are the gate's."""

    trimmed: float = 0.1
    fewer_degrees: int = 2
    against_both: bool = True

    def alphas(self) -> FloatArray:
        """Return the share of `ALPHA` that each look may spend."""
        return np.diff([ALPHA * (look / LOOKS[-1]) ** 2 for look in (0, *LOOKS)])

    def change(self, logs: FloatArray) -> FloatArray:
        """Return log ratios [gates, rounds] of log values [gates, rounds, arms]."""
        base, head, control = np.moveaxis(logs, -1, 0)
        return head - ((base + control) / 2 if self.against_both else base)

    def estimate(self, logs: FloatArray) -> tuple[FloatArray, FloatArray, int]:
        """Return the trimmed mean over rounds of each gate, its error, and degrees of freedom.

        Args:
            logs: log ratios [gates, rounds].
        """
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
    "15 % trimmed at either end": Design(trimmed=0.15),
    "no degrees of freedom taken off": Design(fewer_degrees=0),
    "one degree of freedom taken off": Design(fewer_degrees=1),
    "head against base alone": Design(against_both=False),
}


def _white(generator: np.random.Generator, rounds: int) -> FloatArray:
    return generator.normal(size=(GATES, rounds, 3))


def _heavy(generator: np.random.Generator, rounds: int) -> FloatArray:
    return generator.standard_t(5, size=(GATES, rounds, 3))


def _modes(generator: np.random.Generator, rounds: int) -> FloatArray:
    return _white(generator, rounds) + 2 * (generator.random((GATES, rounds, 3)) < 0.3)


def _spiky(generator: np.random.Generator, rounds: int) -> FloatArray:
    shape = (GATES, rounds, 3)
    spikes = generator.exponential(15, shape)
    return _white(generator, rounds) / 2 + np.where(generator.random(shape) < 0.03, spikes, 0.0)


NOISES: dict[str, Noise] = {
    "white": _white,
    "heavy tails": _heavy,
    "two modes": _modes,
    "spiky": _spiky,
}


def simulate(design: Design, noise: Noise, seed: int, batches: int) -> tuple[float, float]:
    """Simulate a design under a noise.

    Returns:
        The expected false alarms of a gate of 60 such figures, and the excess over its margin that
        a figure finds with probability `POWER` after the last look.
    """
    generator = np.random.default_rng(seed)
    alarms, reaches = [], []
    for _ in range(batches):
        changes = design.change(noise(generator, LOOKS[-1]))
        found = np.zeros(GATES, dtype=bool)
        # The true change is exactly the margin: the hardest case without a regression.
        for look, alpha in zip(LOOKS, design.alphas(), strict=True):
            location, error, degrees = design.estimate(changes[:, :look])
            found |= stats.t.sf(location / error, degrees) * TESTS <= alpha
        quantiles = stats.t.ppf(1 - alpha / TESTS, degrees) + stats.t.ppf(POWER, degrees)
        alarms.append(found.mean())
        reaches.append(quantiles * error.mean())
    return TESTS * float(np.mean(alarms)), float(np.mean(reaches))


def main() -> int:
    """Simulate all designs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=100, help=f"of {GATES} gates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = {}
    for name, design in DESIGNS.items():
        by_noise = (simulate(design, noise, args.seed, args.batches) for noise in NOISES.values())
        found[name] = [f"{100 * alarms:.2f} %; {reach:.2f}" for alarms, reach in by_noise]
        print(name, *found[name], file=sys.stderr)
    lead = (
        f"{args.batches * GATES:,} simulated tests each. Before the semicolon: how many gates find "
        "any SLOWER when all 60 figures are slower by exactly their margin; "
        f"{100 * ALPHA:g} % is allowed to the planned looks. After it: what a gate finds with 99 % "
        f"above the margin after {LOOKS[-1]} rounds, in standard deviations of the white noise of "
        "a value."
    )
    rows = [(name, *cells) for name, cells in found.items()]
    section = Section("All", (table(("", *NOISES), rows, 1),))
    page = Document("Other designs of the gate", (lead,), (section,))
    write_report(args.out, "gate-design", page, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
