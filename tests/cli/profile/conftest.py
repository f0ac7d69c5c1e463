"""Fixtures of tests of `bt-bench profile`."""

from __future__ import annotations

import pytest

from bt_bench.cli.profile.requests import ProfileRequest
from bt_bench.config.load import load_config
from bt_bench.variants.catalogue import find_variants

CONFIG = """
name: tiny
variants: [fused]
operations: [gather_slots, step]
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases:
  - {name: one, groups: 1, requests: 2, tokens: 4}
  - {name: two, groups: 2, requests: 2, tokens: 4}
"""


@pytest.fixture
def config(tmp_path):
    """The path of a config of two cases."""
    path = tmp_path / "tiny.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def request_(config, tmp_path):
    """A request for one case, with the profile in a folder of its own."""
    return ProfileRequest(
        tool="timeline",
        spec=load_config(str(config), select="one"),
        operations_by_name=False,
        entries=[find_variants()["fused"]],
        step=None,
        device=None,
        l2=None,
        targets=None,
        against=None,
        reports=None,
        out=tmp_path / "profile",
        whole=False,
        traceback=False,
        as_json=False,
    )
