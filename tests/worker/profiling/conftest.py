"""What tests of profiling share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support import cupti as stand_in

from bt_bench.worker.measuring import nvtx_ranges


@pytest.fixture
def cupti(monkeypatch):
    """CUPTI's module, installed."""
    return stand_in.install(monkeypatch)


@pytest.fixture
def tell_ranges(monkeypatch):
    """Has NVTX ranges told to a function, as they are opened and closed."""

    def told_to(tell):
        domain = SimpleNamespace(
            get_category_id=lambda name: name,
            get_event_attributes=lambda message, category: SimpleNamespace(
                message=message, payload=0
            ),
            push_range=lambda of: tell(f"<{of.message}:{of.payload}"),
            pop_range=lambda: tell(">"),
        )
        monkeypatch.setattr(nvtx_ranges.nvtx, "get_domain", lambda name: domain)

    return told_to
