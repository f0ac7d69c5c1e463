"""The one case and the one operation of a profile, and what is refused."""

from __future__ import annotations

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.cli.profile.one_step import one_case, one_operation
from bt_bench.config.load import load_config
from bt_bench.suites.block_tables import operations as ops

CONFIG = """
name: tiny
variants: [fused]
operations: [step, apply]
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases:
  - {name: "case{groups}", requests: 2, tokens: 4, product: {groups: [1, 2, 3, 4, 5, 6]}}
"""


@pytest.fixture
def spec_of(tmp_path):
    """Loads the config with some of its cases and operations."""

    def loaded(select=None, operations=None):
        config = tmp_path / "tiny.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        return load_config(str(config), select=select, operations=operations)

    return loaded


def test_the_only_case(spec_of):
    assert one_case(spec_of("case3"), "timeline").name == "case3"


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("case1,case2", r"--tool trace profiles one case, and 2 are chosen: case1, case2; choose"),
        (None, r"and 6 are chosen: case1, case2, case3, case4, case5, …; choose one by -k$"),
    ],
)
def test_several_cases(spec_of, select, expected):
    with pytest.raises(UsageError, match=expected):
        one_case(spec_of(select), "trace")


def test_the_most_comprehensive_operation_of_a_config(spec_of):
    assert one_operation(spec_of(), "timeline", by_name=False) is ops.STEP
    for operations in (["gather", "apply"], ["apply", "gather"]):
        spec = spec_of(operations=operations)
        assert one_operation(spec, "timeline", by_name=False) is ops.GATHER


def test_one_operation_that_was_asked_for(spec_of):
    spec = spec_of(operations=["apply"])
    assert one_operation(spec, "timeline", by_name=True) is ops.APPLY


def test_several_operations_that_were_asked_for(spec_of):
    spec = spec_of(operations=["step", "apply"])
    expected = r"--tool ncu profiles one operation, and 2 are chosen: step, apply; .* --operations$"
    with pytest.raises(UsageError, match=expected):
        one_operation(spec, "ncu", by_name=True)


@pytest.mark.parametrize("by_name", [True, False])
def test_an_operation_that_launches_nothing(spec_of, by_name):
    spec = spec_of(operations=["stage"])
    expected = r"'stage' launches nothing, so --tool timeline has nothing to profile"
    with pytest.raises(UsageError, match=expected):
        one_operation(spec, "timeline", by_name=by_name)


def test_a_whole_name_wins_over_names_that_it_is_a_part_of():
    spec = load_config("features", select="mixed_window")
    assert len(spec.cases) > 1
    assert one_case(spec, "ncu", ["mixed_window"]).name == "mixed_window"
    with pytest.raises(UsageError, match="one case, and 2 are chosen"):
        one_case(spec, "ncu", ["mixed_w"])
