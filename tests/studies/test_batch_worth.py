"""`studies/batch_worth.py` shows what is saved, as its samples say."""

from __future__ import annotations

from xml.etree import ElementTree

import batch_worth
import numpy as np
import pytest

CASES = ("batches/decode_1req_1grp", "batches/decode_32req_1grp", "batches/prefill_1x8192")
MEASURED = {
    "commits": ["a" * 40], "date": "2026-11-28", "device": "a GPU", "cpu": "a CPU",
    "torch": "2", "triton": "3", "sources": {},
}  # fmt: skip


@pytest.fixture
def packed():
    """Samples in which ours takes 10 µs, and vLLM's 64, 146 and 228 µs."""
    samples = {"arms": np.array(["one_launch_each", "vllm"]), "cases": np.array(CASES)}
    for index, case in enumerate(CASES):
        for what in ("host", "gpu", "whole"):
            theirs = 64_000 + 82_000 * index
            samples[f"{case} {what}"] = np.array([[[10_000]] * 6, [[theirs]] * 6], dtype=np.int32)
            samples[f"{case} {what} instances"] = np.arange(6, dtype=np.int8) % 3
    return samples, {"sizes": {case: {"requests": 1} for case in CASES}, "measured": MEASURED}


def test_what_is_saved_is_the_median_difference(packed):
    samples, facts = packed
    rows = batch_worth.rows(samples, facts["sizes"])
    assert [len(row) for row in rows] == [len(batch_worth.HEAD)] * 2
    decodes, prefills = rows
    assert decodes[:3] == ["decodes", "2", "95.0 (54.0 to 136.0)"]
    assert decodes[5] == "3.5 % and 1.9 %"
    assert decodes[7] == "0.95 % and 0.32 %"
    assert prefills[2] == "218.0 (218.0 to 218.0)"
    assert prefills[5:7] == ["–", "–"]  # no host-bound step has a prefill
    assert prefills[7] == "2.2 % and 0.73 %"


def test_cases_without_enough_rounds_are_left_out(packed):
    samples, facts = packed
    samples[f"{CASES[2]} gpu"][1] = -1
    (_, prefills) = batch_worth.rows(samples, facts["sizes"])
    assert prefills[4] == prefills[7] == "–"


def test_the_picture_has_the_figures(packed):
    root = ElementTree.fromstring(batch_worth.draw(*packed))
    texts = [each.text for each in root.iter() if each.text and each.text.strip()]
    assert "95.0 µs: 3.5 % and 1.9 % of 2.7 and 5 ms" in texts
    assert sum(each.tag.endswith("line") for each in root) == 6
    assert all(float(each.get("width")) <= 1000 for each in root if each.tag.endswith("rect"))


@pytest.mark.parametrize("folder", [f for f in (batch_worth.FOLDER,) if f.is_dir()])
def test_the_picture_is_that_of_its_samples(folder):
    assert batch_worth.PICTURE.read_text(encoding="utf-8") == batch_worth.drawn(folder)
