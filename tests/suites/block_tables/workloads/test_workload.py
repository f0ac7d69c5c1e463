"""What a workload needs of a variant, and the digest by which equal ones are known."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import (
    CONTEXT_PARALLELISM,
    CUSTOM_OUTPUTS,
    DISABLED_GROUPS,
    DUMMY_REQUESTS,
    SLIDING_WINDOW,
    TableLayout,
)

PLAIN = TableLayout((4, 8), (3, 2), 2, 16)
COMPUTED = [4, 0]


def workload(rows=(1, 0), computed=None, custom_outputs=False, **options) -> Workload:
    step = step_of_requests([], list(rows), [[4], [0, 1]], num_computed_tokens=computed)
    setup = (Append(0, ([1, 2], [3]), overwrite=True),)
    return Workload(replace(PLAIN, **options), "int64", setup, (step,), custom_outputs)


# By name, the changes that each make a workload another one, and the features that it needs then.
CHANGES = {
    "disabled": ({"slot_mapping_enabled": (True, False)}, {DISABLED_GROUPS}),
    "window": ({"sliding_window_reach": (2, 0), "computed": COMPUTED}, {SLIDING_WINDOW}),
    "other reach": ({"sliding_window_reach": (0, 2), "computed": COMPUTED}, {SLIDING_WINDOW}),
    "other tokens": ({"sliding_window_reach": (2, 0), "computed": [5, 0]}, {SLIDING_WINDOW}),
    "cp": ({"cp_size": 2}, {CONTEXT_PARALLELISM}),
    "other rank": ({"cp_size": 2, "cp_rank": 1}, {CONTEXT_PARALLELISM}),
    "interleave": ({"cp_size": 2, "cp_interleave": 4}, {CONTEXT_PARALLELISM}),
    "unsharded": ({"cp_size": 2, "dcp_sharded": (True, False)}, {CONTEXT_PARALLELISM}),
    "dummy": ({"rows": (1, -1)}, {DUMMY_REQUESTS}),
    "custom": ({"custom_outputs": True}, {CUSTOM_OUTPUTS}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_features(name):
    changes, features = CHANGES[name]
    assert workload(**changes).features == features


def test_a_plain_workload_has_no_features():
    assert workload().features == frozenset()


def test_a_window_is_no_feature_unless_some_step_uses_it():
    assert workload(sliding_window_reach=(2, 0)).features == frozenset()
    window = workload(sliding_window_reach=(2, 0), computed=COMPUTED)
    mixed = replace(window, steps=(*workload().steps, *window.steps))
    assert mixed.features == {SLIDING_WINDOW}
    assert workload(computed=COMPUTED).features == frozenset()
    off = workload(sliding_window_reach=(2, 0), computed=COMPUTED, cp_size=2)
    assert off.features == {CONTEXT_PARALLELISM}


def test_every_option_is_in_the_digest():
    digests = {workload(**changes).digest() for changes, _ in CHANGES.values()}
    assert len(digests | {workload().digest()}) == len(CHANGES) + 1


def test_options_without_effect_are_not_in_the_digest():
    for inert in ({"cp_interleave": 4}, {"dcp_sharded": (False, True)}):
        assert workload(**inert).digest() == workload().digest()
    sharded = {"cp_size": 2, "sliding_window_reach": (2, 0)}
    assert workload(**sharded).digest() == workload(cp_size=2).digest()


def test_plain_workloads_keep_the_digests_from_before_there_were_features():
    """Uniform, batch and trace; results measured then are compared with those of today by it."""
    known = hashlib.sha256()
    for case in load_config("quick").cases:
        known.update((case.name + build_workload(case.parameters).digest()).encode())
    assert known.hexdigest()[:16] == "3c8bf5ffda9a4cf2"


def test_a_digest_is_of_values_and_dtypes():
    step = workload(computed=COMPUTED).steps[0]
    wide = replace(step, num_computed_tokens=np.array(COMPUTED, dtype=np.int64))
    given = workload(computed=COMPUTED)
    assert replace(given, steps=(wide,)).digest() != given.digest()
