"""What tests of profiling share."""

from __future__ import annotations

import pytest
from support import cupti as stand_in


@pytest.fixture
def cupti(monkeypatch):
    """CUPTI's module, installed."""
    return stand_in.install(monkeypatch)
