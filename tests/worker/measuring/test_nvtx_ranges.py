"""NVTX ranges: what a tool would see of them, by a domain that writes it down."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bt_bench.worker.measuring import nvtx_ranges
from bt_bench.worker.measuring.nvtx_ranges import Range, SampleRanges, phase


class Domain:
    """Writes down the open ranges at each push, as message, category and payload."""

    def __init__(self):
        self.categories = []
        self.open = []
        self.seen = []

    def get_category_id(self, name):
        if name not in self.categories:
            self.categories.append(name)
        return self.categories.index(name)

    def get_event_attributes(self, message, category):
        return SimpleNamespace(message=message, category=category, payload=None)

    def push_range(self, attributes):
        category = self.categories[attributes.category]
        self.open.append((attributes.message, category, attributes.payload))
        self.seen.append(tuple(self.open))

    def pop_range(self):
        self.open.pop()


@pytest.fixture
def domain(monkeypatch):
    """bt-bench's domain of NVTX."""
    made = Domain()
    monkeypatch.setattr(nvtx_ranges.nvtx, "get_domain", {nvtx_ranges.DOMAIN: made}.get)
    return made


def test_a_timed_part_lies_in_its_variant_and_in_its_phase(domain):
    ranges = SampleRanges("fused", "step", "a/b")
    with phase("rounds", "step", "a/b"):
        for step in (0, 1):
            timed = ranges.begin(step)
            timed.push()
            timed.pop()
            ranges.end()
    outer = ("step.a_b.rounds", "phase", None)
    assert domain.seen[2] == (
        outer,
        ("fused", "variant", 0),
        ("fused.step.a_b", "operation", 0),
    )
    assert domain.seen[-1][1:] == (("fused", "variant", 1), ("fused.step.a_b", "operation", 1))
    assert domain.open == []


def test_no_range_stays_open_when_a_timed_part_raises(domain):
    ranges = SampleRanges("fused", "step", "one")
    ranges.begin(0).push()
    ranges.end()
    assert domain.open == []
    with pytest.raises(RuntimeError), phase("rounds", "step", "one"):
        raise RuntimeError
    assert domain.open == []


def test_without_a_tool_there_is_nothing_to_set():
    timed = Range("fused", "step", "one")
    timed.at(3)
    timed.push()
    timed.pop()
