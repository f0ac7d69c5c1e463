"""A config whose only operation is staging, which is timed without a GPU."""

from __future__ import annotations

STAGING = """\
variants: [one]
operations: [stage]
plan: {rounds: 4, warmup_rounds: 0, instances: 1}
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases:
  - {name: tiny, requests: 2, tokens: 4}
"""
