"""Sizes and flags of inputs: what is refused, and what a variant needs for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bt_kernels.batch_inputs.layout import DRAFTS, LOOKAHEAD, NO_BONUS, InputLayout

SIZES = {"max_num_reqs": 4, "max_num_tokens": 16, "max_model_len": 32}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_num_reqs": 0}, "max_num_reqs is 0; expected 1 to 32767"),
        ({"max_num_tokens": 2.5}, r"max_num_tokens is 2\.5; expected an integer"),
        ({"max_model_len": 2**31}, "max_model_len is 2147483648; expected 1 to 2147483647"),
        ({"num_speculative_steps": -1}, "num_speculative_steps is -1; expected 0 to 1023"),
        ({"num_lookahead": 0}, "num_lookahead is 0; expected 1 to 1024"),
        ({"num_new_sampled_tokens": 2}, "num_new_sampled_tokens is 2; expected 0 to 1"),
        ({"num_new_sampled_tokens": 0}, "num_speculative_steps are both 0"),
    ],
)
def test_impossible_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        InputLayout(**SIZES | changes)


def test_features():
    assert InputLayout(**SIZES).features == frozenset()
    layout = InputLayout(
        **SIZES, num_speculative_steps=2, num_lookahead=3, num_new_sampled_tokens=0
    )
    assert layout.features == {DRAFTS, LOOKAHEAD, NO_BONUS}


def test_layouts_load_without_torch():
    """The harness validates configs with them, and does not load torch for that."""
    code = (
        "import sys; from bt_kernels.batch_inputs import InputLayout; assert 'torch' not in "
        "sys.modules; from bt_kernels.batch_inputs import NEW, PreparedBatch, RequestTensors; "
        "assert set(NEW) < set(PreparedBatch._fields); assert RequestTensors.zeros"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
