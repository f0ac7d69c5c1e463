"""Bad arguments are refused by name, value and limit before anything is launched or changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.playing import EngineTables
from support.variants import SHIPPED, classes

from bt_bench.suites.block_tables.checking.buffers import (
    buffers_of,
    compare_buffers,
    copies_on,
    poison,
)
from bt_kernels.device_tables.arguments import check_tokens
from bt_kernels.layout import TableLayout

LAYOUT = TableLayout(
    (4, 2), (3, 5), max_num_reqs=4, max_num_batched_tokens=8, sliding_window_reach=(3, 0)
)
GATHER = ("idx_mapping", "num_reqs_padded", "out", "out_ptrs", "num_computed_tokens")
SLOTS = ("idx_mapping", "query_start_loc", "positions", "num_tokens_padded", "slots_out")
METHODS = {
    "gather_block_tables": GATHER,
    "compute_slot_mappings": SLOTS,
    "gather_and_compute_slot_mappings": {*GATHER, *SLOTS},
    "prepare_step": {*GATHER, *SLOTS},
}
# With the combined operations fused and not, and through the class that passes everything on.
VARIANTS = {**classes(["baseline", "fused"]), "BlockTables": EngineTables}


def good(device):
    """Arguments that are right, by name."""
    out = [torch.zeros((3, width), dtype=torch.int32, device=device) for width in LAYOUT.widths]
    return {
        "idx_mapping": torch.tensor([1, -1], device=device),
        "query_start_loc": torch.tensor([0, 2, 3], dtype=torch.int32, device=device),
        "positions": torch.tensor([0, 1, 2], device=device),
        "num_reqs_padded": 3,
        "num_tokens_padded": 6,
        "out": out,
        "out_ptrs": torch.tensor([table.data_ptr() for table in out], device=device),
        "num_computed_tokens": torch.zeros(4, dtype=torch.int32, device=device),
        "slots_out": torch.zeros((2, 7), dtype=torch.int64, device=device),
    }


def call(tables, method, arguments):
    given = {name: value for name, value in arguments.items() if name in METHODS[method]}
    if method == "compute_slot_mappings":
        given["out"] = given.pop("slots_out")
    return getattr(tables, method)(**given)


def changed(arguments, changes):
    """Arguments with some replaced; each change gets the argument that was right."""
    return arguments | {name: change(arguments[name]) for name, change in changes.items()}


def every_other(tensor):
    """The same values, not side by side."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def replaced(value):
    return lambda _: value


def first(change):
    return lambda tensors: [change(tensors[0]), *tensors[1:]]


def test_a_callers_slots_are_as_many_as_int32_counts_past():
    """On a device that holds nothing."""
    layout = TableLayout((4,), (3,), max_num_reqs=4, max_num_batched_tokens=8)
    device = torch.device("meta")
    starts = torch.zeros(2, dtype=torch.int32, device=device)
    positions = torch.zeros(1, dtype=torch.int64, device=device)
    most, too_many = (
        torch.empty(1, columns, dtype=torch.int64, device=device) for columns in (2**30, 2**30 + 1)
    )
    check_tokens(layout, device, 1, starts, positions, 1, most)
    with pytest.raises(ValueError, match="has 1073741825 columns; expected 1073741824 or less"):
        check_tokens(layout, device, 1, starts, positions, 1, too_many)


OWN_TABLES = {"out": replaced(None), "out_ptrs": replaced(None)}
VECTORS = {
    "idx_mapping": "torch.int32 or torch.int64",
    "query_start_loc": "torch.int32",
    "positions": "torch.int64",
    "num_computed_tokens": "torch.int32",
    "out_ptrs": "torch.uint64 or torch.int64",
}
WRONG = [
    case
    for name, dtypes in VECTORS.items()
    for case in (
        (
            {name: lambda t: t.to(torch.float32)},
            f"{name} has dtype torch.float32; expected {dtypes}",
        ),
        ({name: lambda t: t.to(torch.int16)}, f"{name} has dtype torch.int16; expected {dtypes}"),
        ({name: lambda t: t.to("meta")}, f"{name} is on meta; expected"),
        ({name: lambda t: t[None]}, rf"{name} has shape \(1, \d\); expected"),
        ({name: every_other}, rf"{name} has strides \(2,\); expected a contiguous tensor"),
    )
] + [
    ({"query_start_loc": lambda t: t.long()}, "query_start_loc has dtype torch.int64"),
    ({"positions": lambda t: t.int()}, "positions has dtype torch.int32"),
    (
        {"idx_mapping": lambda t: t.repeat(3), **OWN_TABLES},
        "idx_mapping has 6 requests; expected at most 4 .max_num_reqs",
    ),
    (
        {"idx_mapping": lambda t: t.repeat(20_000)},
        "idx_mapping has 40000 requests; expected at most 32767 .the most of a launch",
    ),
    (
        {"query_start_loc": lambda t: t[:2]},
        "query_start_loc has 2 elements; expected 3 .*more than the batch",
    ),
    (
        {"num_computed_tokens": lambda t: t[:3]},
        "num_computed_tokens has 3 elements; expected 4, one per request row",
    ),
    (
        {"num_reqs_padded": replaced(1), **OWN_TABLES},
        "num_reqs_padded is 1; expected 2 .* to 4 .*max_num_reqs",
    ),
    (
        {"num_reqs_padded": replaced(5), **OWN_TABLES},
        "num_reqs_padded is 5; expected 2 .* to 4 .*max_num_reqs",
    ),
    ({"num_reqs_padded": replaced(1)}, "num_reqs_padded is 1; expected 2 .* to 32767"),
    ({"num_reqs_padded": replaced(5)}, r"out\[0\] has shape \(3, 3\); expected \[5 or more, 3\]"),
    ({"num_reqs_padded": replaced(-1)}, "num_reqs_padded is -1; expected 2"),
    ({"num_tokens_padded": replaced(-1)}, "num_tokens_padded is -1; expected 0 to 7"),
    ({"num_tokens_padded": replaced(8)}, "num_tokens_padded is 8; expected 0 to 7 .columns of out"),
    (
        {"num_tokens_padded": replaced(9), "slots_out": replaced(None)},
        "num_tokens_padded is 9; expected 0 to 8 .max_num_batched_tokens",
    ),
    ({"out": lambda tensors: tensors[:1]}, "out has 1 tensors; expected 2, one per group"),
    ({"out": first(torch.Tensor.long)}, r"out\[0\] has dtype torch.int64; expected torch.int32"),
    ({"out": first(lambda t: t.to("meta"))}, r"out\[0\] is on meta; expected"),
    ({"out": first(lambda t: t[:2])}, r"out\[0\] has shape \(2, 3\); expected \[3 or more, 3\]"),
    ({"out": first(lambda t: t[:, :2])}, r"out\[0\] has shape \(3, 2\); expected \[3 or more, 3\]"),
    ({"out": first(every_other)}, r"out\[0\] has strides \(6, 2\); expected a contiguous"),
    ({"out_ptrs": lambda t: t[:1]}, r"out_ptrs has shape \(1,\); expected \[2\]"),
    ({"out": replaced(None)}, "out_ptrs is given without out"),
    ({"slots_out": torch.Tensor.int}, "out.* has dtype torch.int32; expected torch.int64"),
    ({"slots_out": lambda t: t.to("meta")}, "out.* is on meta; expected"),
    ({"slots_out": lambda t: t[:1]}, r"out.* has shape \(1, 7\); expected \[2, tokens\]"),
    ({"slots_out": lambda t: t[0]}, r"out.* has shape \(7,\); expected \[2, tokens\]"),
    ({"slots_out": every_other}, r"out.* has strides \(14, 2\); expected elements of a row"),
    ({"slots_out": lambda t: t[:1].expand(2, 7)}, r"out.* has strides \(0, 1\); .* not overlap"),
]
# Of what lies in device memory.
WRONG_CONTENTS = [
    ({"idx_mapping": lambda t: t + 3}, r"idx_mapping\[0\] is 4; expected -1 .* to 3 .max_num_reqs"),
    ({"idx_mapping": lambda t: t - 1}, r"idx_mapping\[1\] is -2; expected -1"),
    ({"query_start_loc": lambda t: t + 1}, r"query_start_loc\[0\] is 1; expected 0"),
    ({"query_start_loc": lambda t: t - 1}, r"query_start_loc\[0\] is -1; expected 0"),
    (
        {"query_start_loc": lambda t: t[[0, 2, 1]]},
        r"query_start_loc\[2\] is 2; expected 3 .the one before. or more",
    ),
    (
        {"query_start_loc": lambda t: 2 * t},
        r"query_start_loc\[2\], the number of tokens, is 6; expected at most 3 .elements of pos",
    ),
    (
        {"query_start_loc": lambda t: 3 * t, "positions": lambda t: t.repeat(3)},
        r"query_start_loc\[2\], the number of tokens, is 9; expected at most 7 .slots",
    ),
    (
        {"num_tokens_padded": replaced(2)},
        r"query_start_loc\[2\], the number of tokens, is 3; expected at most 2 .num_tokens_padded",
    ),
    ({"out_ptrs": lambda t: t + 4}, r"out_ptrs\[0\] is \d+; expected \d+, the address of out\[0\]"),
]


def tables_of(name, device):
    """Tables with poison in their outputs, a request in row 1, and a write that is still staged."""
    tables = VARIANTS[name](LAYOUT, device)
    tables.append_block_ids(1, [[7, 9], [1, 2, 3]], overwrite=True)
    tables.apply_staged_writes()
    poison(tables, -99)
    getattr(tables, "variant", tables).num_dirty_rows = 4
    tables.append_block_ids(2, [[5], [6]], overwrite=True)
    return tables


@pytest.fixture
def tables(device):
    """Of a variant, which is enough where what is checked is shared."""
    return tables_of("fused", device)


@pytest.fixture(params=VARIANTS)
def each(request, device):
    """Of each of `VARIANTS`."""
    return tables_of(request.param, device)


def assert_refused(tables, message, action):
    """Nothing is launched or changed by an action that is refused."""
    variant = getattr(tables, "variant", tables)
    before = copies_on(tables.device, buffers_of(tables))
    dirty = variant.num_dirty_rows
    launch, launches = variant.launch, []
    variant.launch = lambda *given: launches.append(given)
    with pytest.raises(ValueError, match=message):
        action()
    assert launches == []
    variant.launch = launch
    compare_buffers(before, tables)
    assert variant.num_dirty_rows == dirty
    tables.apply_staged_writes()
    assert tables.block_tables[0][2, 0] == 5, "what was staged before is still there"


def test_slots_without_a_buffer_have_the_limit_of_the_tables(each, device):
    arguments = good(device)
    arguments["idx_mapping"] = arguments["idx_mapping"].repeat(3)
    arguments["query_start_loc"] = torch.zeros(7, dtype=torch.int32, device=device)
    del arguments["slots_out"]
    names = (*SLOTS[:4],)
    given = {name: arguments[name] for name in names}
    message = "idx_mapping has 6 requests; expected at most 4 .max_num_reqs"
    assert_refused(each, message, lambda: each.compute_slot_mappings(**given))


def cases(wrong):
    return [
        pytest.param(method, changes, message, id=f"{method}-{message[:40]}")
        for changes, message in wrong
        for method, names in METHODS.items()
        if changes.keys() <= set(names)
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("validate", [False, True])
def test_good_arguments_are_taken(method, validate, each, device):
    getattr(each, "variant", each).validate = validate
    call(each, method, good(device))


@pytest.mark.parametrize(("method", "changes", "message"), cases(WRONG))
def test_wrong_arguments(method, changes, message, tables, device):
    arguments = changed(good(device), changes)
    assert_refused(tables, message, lambda: call(tables, method, arguments))


@pytest.mark.parametrize(("method", "changes", "message"), cases(WRONG_CONTENTS))
def test_wrong_contents_when_told_to_look(method, changes, message, tables, device):
    tables.validate = True
    arguments = changed(good(device), changes)
    assert_refused(tables, message, lambda: call(tables, method, arguments))


def test_contents_are_not_looked_at_unless_told_to(tables, device, monkeypatch):
    """To look at them takes a wait for the device."""
    arguments = good(device)
    for name in ("tolist", "item", "cpu", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, None)
    tables.launch = lambda *given: None
    for method in METHODS:
        call(tables, method, arguments)


@pytest.mark.parametrize(
    ("row", "ids", "message"),
    [
        (4, [[1], [1]], r"req_index is 4; expected 0 to 3 \(max_num_reqs - 1\)"),
        (-1, [[1], [1]], "req_index is -1; expected 0 to 3"),
        (0, [[1]], "new_block_ids has 1 lists; expected 2, one per group"),
        (0, [[1], [1], [1]], "new_block_ids has 3 lists; expected 2"),
        (0, [[1] * 4, [1]], "row 0 of group 0 would have 4 blocks; its table is 3 columns wide"),
        (1, [[], [1] * 3], "row 1 of group 1 would have 6 blocks; its table is 5 columns wide"),
        (0, [[1], [1, 2**31]], r"new_block_ids\[1\]\[1\] is 2147483648; expected an integer from"),
        (0, [[1], [-(2**31) - 1]], r"new_block_ids\[1\]\[0\] is -2147483649; .* to 2147483647"),
        (0, [[1], [1.0]], r"new_block_ids\[1\]\[0\] is 1.0; expected an integer"),
        (0, [[1], ["1"]], r"new_block_ids\[1\]\[0\] is '1'; expected an integer"),
        (0, [[1], [None]], r"new_block_ids\[1\]\[0\] is None; expected an integer"),
        (0, [[1], np.array([1.5])], r"new_block_ids\[1\]\[0\] is .*1.5.*; expected an integer"),
        (0, [[1], np.array([2**31])], r"new_block_ids\[1\]\[0\] is .*2147483648.*; expected an"),
    ],
)
def test_wrong_appends(row, ids, message, each):
    assert_refused(each, message, lambda: each.append_block_ids(row, ids, overwrite=False))


@pytest.mark.parametrize(
    "ids", [(3, 4), range(3, 5), np.array([3, 4])], ids=["tuple", "range", "numpy"]
)
def test_any_sequence_of_integers_is_taken(ids, each):
    each.append_block_ids(0, [ids, []], overwrite=True)
    each.apply_staged_writes()
    assert each.block_tables[0][0, :2].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("method", "size", "message"),
    [
        ("get_dummy_block_tables", 5, "num_reqs is 5; expected 0 to 4 .max_num_reqs"),
        ("get_dummy_block_tables", -1, "is -1; expected 0"),
        ("get_dummy_slot_mappings", 9, "num_tokens is 9; expected 0 to 8 .max_num_batched_tokens"),
        ("get_dummy_slot_mappings", -1, "num_tokens is -1; expected 0"),
        ("get_dummy_block_tables", 2.0, "num_reqs is 2.0; expected 0 to 4"),
        ("get_dummy_slot_mappings", 2.0, "num_tokens is 2.0; expected 0 to 8"),
    ],
)
def test_wrong_sizes_of_dummy_outputs(method, size, message, each):
    assert_refused(each, message, lambda: getattr(each, method)(size))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_promise_of_no_step_in_flight_is_refused(name, device):
    with pytest.raises(ValueError, match="steps_in_flight is 0; expected 1 or more"):
        classes([name])[name](LAYOUT, device, steps_in_flight=0)


@pytest.mark.parametrize(("name", "value"), [("num_reqs_padded", 2.5), ("num_tokens_padded", 6.0)])
def test_sizes_are_integers(name, value, each, device):
    arguments = good(device) | {name: value}
    message = f"{name} is {value}; expected an integer"
    assert_refused(each, message, lambda: call(each, "prepare_step", arguments))


@pytest.mark.parametrize("taken", ["block_tables", "input_block_tables"])
def test_outputs_lie_apart(taken, each, device):
    arguments = good(device)
    arguments["out"] = [arguments["out"][0], getattr(each, taken)[1]]
    del arguments["out_ptrs"]
    message = r"out\[1\] overlaps another table"
    assert_refused(each, message, lambda: call(each, "gather_block_tables", arguments))


def test_outputs_do_not_overlap_in_part(each, device):
    arguments = good(device)
    del arguments["out_ptrs"]
    first = arguments["out"][0]
    rows, width = first.shape
    # Two tables of one buffer, of which the second begins in the last row of the first; and a part
    # of the input tables.
    whole = torch.zeros(4 * rows * width, dtype=torch.int32, device=device)
    other = arguments["out"][1]
    begin = first.numel() - 1
    inside = whole[begin : begin + other.numel()].view(other.shape)
    arguments["out"] = [whole[: first.numel()].view(first.shape), inside]
    message = r"out\[1\] overlaps another table"
    assert_refused(each, message, lambda: call(each, "gather_block_tables", arguments))
    table = each.input_block_tables[0]
    part = table[1:] if table.shape[0] > rows else table
    arguments["out"] = [part, other]
    message = r"out\[0\] overlaps another table"
    assert_refused(each, message, lambda: call(each, "prepare_step", arguments))
    beside = begin + 1
    arguments["out"][0] = whole[: first.numel()].view(first.shape)
    arguments["out"][1] = whole[beside : beside + other.numel()].view(other.shape)
    call(
        each,
        "gather_block_tables",
        {k: arguments[k] for k in ("idx_mapping", "num_reqs_padded", "out")},
    )


def test_a_launch_that_fails_loses_nothing(tables, device):
    launch = tables.launch

    def fails(*_):
        raise RuntimeError("no launch today")

    tables.launch = fails
    arguments = good(device)
    dirty = tables.num_dirty_rows
    with pytest.raises(RuntimeError, match="no launch today"):
        call(tables, "prepare_step", arguments)
    with pytest.raises(RuntimeError, match="no launch today"):
        call(
            tables,
            "gather_block_tables",
            {"idx_mapping": arguments["idx_mapping"][:1]} | {"num_reqs_padded": 1},
        )
    assert tables.num_dirty_rows == dirty
    tables.launch = launch
    tables.apply_staged_writes()
    assert tables.block_tables[0][2, 0] == 5
