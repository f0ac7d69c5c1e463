"""What a check makes of features: what is passed, what is compared, and what is not run."""

from __future__ import annotations

import pytest
from support.variants import classes

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind
from bt_bench.suites.block_tables.inputs import inputs_on, outputs_on
from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_bench.worker.checking.check import check
from bt_kernels.layout import TableLayout

LAYOUT = TableLayout((4, 2), (3, 6), 3, 12, sliding_window_reach=(4, 0))
FEATURES = frozenset({"sliding_window", "custom_outputs"})


@pytest.fixture(scope="module")
def fused():
    return classes(["fused"])["fused"]


def workload(custom_outputs=True):
    """A window of two steps, with a sliding window and padding."""
    setup = tuple(Append(row, ([1, 2, 3], [4, 5, 6]), overwrite=True) for row in range(3))
    steps = [
        step_of_requests([], rows, [[0], [5]], num_computed_tokens=[9, 0, 12], spare_rows=1)
        for rows in ([2, 0], [1, 2])
    ]
    return Workload(LAYOUT, "int64", setup, tuple(steps), custom_outputs)


def reason_of(variant, device, work=None):
    outcome = check({"mine": variant}, work or workload(), [ops.STEP], device)
    return outcome["mine", ops.STEP].reason


def test_what_was_compared_is_in_the_report(fused, device):
    operations = [ops.STEP, ops.APPLY]
    found = check({"mine": fused}, workload(), operations, device)
    for operation in operations:
        assert found["mine", operation].report.steps == 2
        assert found["mine", operation].report.buffers[-1] == "custom_outputs"
    plain = check({"mine": fused}, workload(custom_outputs=False), operations, device)
    assert "custom_outputs" not in plain["mine", ops.STEP].report.buffers


def test_each_compared_step_of_each_arm_is_told(fused, device):
    heard = []
    check({"mine": fused, "yours": fused}, workload(), [ops.STEP], device, rounds=3,
          on_round=heard.append)  # fmt: skip
    assert {each.what for each in heard} == {"checking"}
    assert [(each.done, each.rounds) for each in heard] == [(done, 12) for done in range(13)]


def test_outputs_serve_all_steps_and_are_large_enough(device):
    first, second = inputs_on(device, workload())
    assert first.outputs is second.outputs
    assert [tuple(table.shape) for table in first.outputs.block_tables] == [(3, 3), (3, 6)]
    assert first.outputs.slot_mappings.shape == (2, 2)
    assert first.outputs.addresses.tolist() == [t.data_ptr() for t in first.outputs.block_tables]
    assert outputs_on(device, workload(custom_outputs=False)) is None


def test_only_what_a_step_needs_is_passed(device):
    class Given:
        def __getattr__(self, name):
            return lambda: name

    (step, _), plain = inputs_on(device, workload()), conformance_workloads(0)["corners"]
    keywords = {operation: bind(Given(), operation, step).keywords for operation in ops.OPERATIONS}
    both = {"out", "out_ptrs", "num_computed_tokens", "slots_out"}
    assert {operation: set(given) for operation, given in keywords.items()} == {
        ops.STAGE: set(),
        ops.APPLY: set(),
        ops.GATHER: both - {"slots_out"},
        ops.SLOTS: {"out"},
        ops.GATHER_SLOTS: both,
        ops.STEP: both,
    }
    for operation in ops.OPERATIONS:
        assert bind(Given(), operation, inputs_on(device, plain)[0]).keywords == {}


def without_out(given):
    return {name: value for name, value in given.items() if name == "num_computed_tokens"}


def ignores_out(step, args, given):
    return step(*args, **without_out(given))


def fills_a_copy(step, args, given):
    tables, _ = step(*args, **given | {"slots_out": given["slots_out"].clone()})
    return tables, given["slots_out"][:, : args[4]]


def writes_both(step, args, given):
    step(*args, **without_out(given))
    return step(*args, **given)


def returns_the_persistent(step, args, given):
    step(*args, **given)
    tables = step.__self__
    rows, tokens = args[3:]
    return tuple(t[:rows] for t in tables.input_block_tables), tables.slot_mappings[:, :tokens]


def writes_past_the_rows(step, args, given):
    views = step(*args, **given)
    given["out"][1][args[3] :] = 0
    return views


def pads_the_view_alone(step, args, given):
    slots = given["slots_out"].clone()
    views = step(*args, **given)
    given["slots_out"][:, args[4] :] = slots[:, args[4] :]
    return views


def changes_its_inputs(step, args, given):
    views = step(*args, **given)
    given["num_computed_tokens"] += 1
    return views


def cannot_find_addresses(step, args, given):
    if "out_ptrs" not in given:
        raise ValueError("out_ptrs is missing")
    return step(*args, **given)


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (ignores_out, "slot_mappings[0, 0] is "),
        (fills_a_copy, "(never written by the variant)"),
        (writes_both, "(written although nothing may write there)"),
        (returns_the_persistent, "is not a view of the buffer that it must be written to"),
        (writes_past_the_rows, "(written although nothing may write there)"),
        (pads_the_view_alone, "slots_out[0, 2] is "),
        (changes_its_inputs, "the argument num_computed_tokens was changed"),
        (cannot_find_addresses, "staged by append_block_ids: ValueError: out_ptrs is missing"),
    ],
)
def test_defects_of_custom_outputs(defect, message, fused, device):
    class Mine(fused):
        def prepare_step(self, *args, **given):
            return defect(super().prepare_step, args, given)

    assert message in reason_of(Mine, device).message


def test_dummy_outputs_are_checked(fused, device):
    class Mine(fused):
        def get_dummy_block_tables(self, num_reqs):
            self.num_dirty_rows = 0  # what an earlier batch has left is not emptied
            return super().get_dummy_block_tables(num_reqs)

    message = reason_of(Mine, device, workload(custom_outputs=False)).message
    assert message.startswith("check, round 0, dummy outputs, calls step: input_block_tables[0][")

    class Copies(fused):
        def get_dummy_slot_mappings(self, num_tokens):
            return super().get_dummy_slot_mappings(num_tokens).clone()

    message = reason_of(Copies, device).message
    assert "get_dummy_slot_mappings' result is not a view of the buffer" in message


def test_a_variant_from_before_features_is_run_on_what_needs_none(fused, device):
    class Older(fused):
        features = frozenset({"sliding_window"})
        get_dummy_block_tables = get_dummy_slot_mappings = property()  # as if there were none

        def prepare_step(self, idx_mapping, query_start_loc, positions, num_reqs, num_tokens):
            return super().prepare_step(
                idx_mapping, query_start_loc, positions, num_reqs, num_tokens
            )

    assert reason_of(Older, device, conformance_workloads(0)["corners_int32"]) is None
    reason = reason_of(Older, device)
    assert (reason.code, reason.message) == ("unsupported", "lacks custom_outputs")
    Older.features = frozenset()
    assert reason_of(Older, device).message == "lacks custom_outputs, sliding_window"


def test_who_lacks_a_feature_keeps_nobody_from_being_checked(fused, device):
    class Older(fused):
        features = frozenset()

    found = check({"older": Older, "mine": fused}, workload(), [ops.STEP], device)
    assert found["older", ops.STEP].reason.code == "unsupported"
    assert found["mine", ops.STEP].report.steps == 2
