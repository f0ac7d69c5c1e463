"""Draws some of the slow tests for each commit, so that all of them are run in the end."""

from __future__ import annotations

import hashlib
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def commit() -> str:
    """Return the commit that is tested; empty outside of a repository: one sample then."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def draw(names: list[str], count: int, seed: str) -> set[str]:
    """Draw names: equal ones for equal seeds."""
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    return set(order[:count])


def take_samples(items: list[pytest.Item], seed: str) -> None:
    """Take the mark `slow` from the tests that are drawn of those with `sampled(COUNT)`."""
    of_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            of_function[item.nodeid.partition("[")[0]].append(item)
    for of_one in of_function.values():
        mark = of_one[0].get_closest_marker("sampled")
        assert mark is not None
        (count,) = mark.args
        drawn = draw([item.nodeid for item in of_one], count, seed)
        for item in of_one:
            if item.nodeid in drawn:
                item.own_markers[:] = [each for each in item.own_markers if each.name != "slow"]
