"""Simulated runs have the noise that their kind says, and their verdicts are those of `compare`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from compare_rates import FAR, METRICS, SLOWDOWNS, draw, entries, page, read, try_runs
from synthetic import Noise

from bt_bench.analysis import Rules, Verdict, wilson_interval
from bt_bench.analysis.judging import judge_entries
from bt_bench.analysis.verdicts import NO_SYSTEMATIC, Margin
from bt_bench.report import render_document

COMMITTED = Path(__file__).parents[2] / "reports" / "compare-rates" / "compare-rates.json"


@pytest.mark.parametrize("noise", Noise)
def test_arms_are_equal_but_for_noise(noise: Noise) -> None:
    logs = np.log(draw(noise, np.random.default_rng(1)))
    medians = np.median(logs, axis=-1)
    assert np.abs(medians - medians[:1]).max() < 0.1
    assert np.abs(medians - medians[:1]).max() > 0


def test_primary_metrics_are_two_of_all() -> None:
    found = entries(draw(Noise.WHITE, np.random.default_rng(1)))
    assert len(found) == 10 * len(METRICS)
    primary = {entry.metric.name for entry in found if not entry.exploratory}
    assert primary == {"host_us", "gpu_us"}


def test_what_is_far_beyond_the_margin_is_found_and_equal_code_is_not() -> None:
    counts = try_runs(Noise.WHITE, [1], 5)
    assert sum(counts.false.values()) == 0
    assert counts.far[SLOWDOWNS[-1], True] == 5
    assert not any(counts.far[each, False] for each in SLOWDOWNS)


def test_a_margin_that_is_never_reached_is_noticed() -> None:
    """With no margin at all and no correction, equal code is told apart: the count can fail."""
    found = entries(draw(Noise.WHITE, np.random.default_rng(1)))
    for entry in found:
        if entry.margin is not None:
            entry.margin, entry.systematic = Margin(0.0, 0.0), NO_SYSTEMATIC
    rules = Rules(alpha=0.5)
    verdicts = {each.verdict for each in judge_entries(found, rules.correction, rules.alpha)}
    assert verdicts & {Verdict.SLOWER, Verdict.FASTER}


def test_committed_rates_keep_alpha() -> None:
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert committed["alpha"] == Rules().alpha
    assert committed["metrics"] == list(METRICS)
    for noise in committed["noises"]:
        assert noise["runs"] >= 1000
        for false in noise["false"]:
            assert wilson_interval(false["runs"], noise["runs"]).low <= Rules().alpha
        far = sum(each["far"] for each in noise["found"])
        assert sum(each["far_found"] for each in noise["found"]) >= 0.99 * far > 0
    assert FAR == 8


def test_the_committed_page_is_of_the_committed_counts() -> None:
    found = read(json.loads(COMMITTED.read_text(encoding="utf-8")))
    text = COMMITTED.with_suffix(".md").read_text(encoding="utf-8")
    assert render_document(page(found)) == text
