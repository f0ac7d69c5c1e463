"""Appending without a function in Python on the way, where staging is in C."""

from __future__ import annotations

import gc
import random
import re
import sys
import weakref
from array import array
from collections.abc import Iterator

import pytest
from support.requests import request_for
from support.variants import classes

from bt_kernels import BlockTables, native
from bt_kernels.batch_inputs import InputLayout, RequestTensors
from bt_kernels.batch_inputs.fused import OneLaunchInputs
from bt_kernels.batch_inputs.separate import SeparateInputs
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.layout import TableLayout
from bt_kernels.staging import StagedWrites, bitmap_words

LAYOUT = TableLayout((16, 16), (3, 9), max_num_reqs=4, max_num_batched_tokens=8)
FUSED, ONE_LAUNCH = classes(["fused", "one_launch"]).values()

pytestmark = pytest.mark.skipif(
    native.load("staged") is None, reason=f"no helper in C: {native.why_not('staged')}"
)


def test_it_is_the_method_in_c():
    tables = FUSED(LAYOUT, "cpu")
    assert tables.append_block_ids == tables._staged.append_block_ids
    tables.append_block_ids(1, [[5], [6]], overwrite=True)
    assert tables._staged.intervals() == [(0, 1, 0, [5]), (1, 1, 0, [6])]
    with pytest.raises(ValueError, match="row 1 of group 0 would have 4 blocks; its table is 3"):
        tables.append_block_ids(1, [[1] * 3, []], False)
    assert tables.append_many == tables._staged.append_requests
    tables.append_many([2], [[[7], []]], overwrite=[True])
    assert tables._staged.intervals()[1] == (0, 2, 0, [7])
    with pytest.raises(ValueError, match="request 1: row 1 of group 0 would have 4 blocks"):
        tables.append_many([2, 1], [[[], []], [[1] * 3, []]], [False, False])
    engine = BlockTables([16, 16], 4, 8, [3, 9], "cpu")
    assert engine.append_block_ids == engine._variant._staged.append_block_ids
    assert engine.append_many == engine._variant._staged.append_requests


def test_redirecting_reaches_it():
    tables = FUSED(LAYOUT, "cpu")
    assert tables.redirect_writes_to_null_block is False
    for redirects, expected in ((True, 0), (False, 5)):
        tables.redirect_writes_to_null_block = redirects
        assert tables.redirect_writes_to_null_block is redirects
        tables.append_block_ids(1, [[5], []], True)
        tables.append_many([2], [[[5], []]], [True])
        expected_of = [(0, row, 0, [expected]) for row in (1, 2)]
        assert tables._staged.intervals()[:2] == expected_of


class Overridden(FUSED):
    def append_block_ids(self, req_index, new_block_ids, overwrite):
        super().append_block_ids(3, new_block_ids, overwrite)


class OverriddenMany(FUSED):
    def append_many(self, req_indices, new_block_ids, overwrite):
        super().append_many([3] * len(req_indices), new_block_ids, overwrite)


class InPython(FUSED):
    native = False


def test_what_a_variant_overrides_counts():
    tables = Overridden(LAYOUT, "cpu")
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(1, [[5], []], True)
    assert tables._staged.intervals()[:1] == [(0, 3, 0, [0])]

    assert "append_many" in vars(tables)
    tables = OverriddenMany(LAYOUT, "cpu")
    tables.append_many([1], [[[5], []]], [True])
    assert tables._staged.intervals()[:1] == [(0, 3, 0, [5])]
    assert "append_block_ids" in vars(tables)

    class Engine(BlockTables):
        def append_block_ids(self, *_):
            raise KeyError

    with pytest.raises(KeyError):
        Engine([16, 16], 4, 8, [3, 9], "cpu").append_block_ids(1, [[5], []], True)


def test_what_takes_the_place_of_staged_writes_counts():
    tables = FUSED(LAYOUT, "cpu")
    tables._stage_in(StagedWrites(LAYOUT.widths, tables.num_blocks))
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(1, [[5], []], True)
    assert tables._staged.intervals()[:1] == [(0, 1, 0, [0])]
    for each in (tables, InPython(LAYOUT, "cpu")):
        assert not {"append_block_ids", "append_many"} & vars(each).keys()


def test_tables_do_not_outlive_their_last_user():
    tables = FUSED(LAYOUT, "cpu")
    known = weakref.ref(tables)
    gc.disable()
    try:
        del tables
        assert known() is None
    finally:
        gc.enable()


def inputs_of(kind, tables):
    layout = InputLayout(tables.layout.max_num_reqs, tables.layout.max_num_batched_tokens, 16)
    requests = RequestTensors.zeros(layout, "cpu")
    return kind(tables.layout, layout, requests, "cpu", tables=tables)


def engine_of(kind, layout):
    sizes = layout.max_num_reqs, layout.max_num_batched_tokens
    tables = kind(layout.block_sizes, *sizes, layout.widths, "cpu")
    return tables, tables._variant


def ways_of(layout):
    """Objects that an engine stages in, each with the tables that it does it for."""
    tables = ONE_LAUNCH(layout, "cpu")
    yield "variant", tables, tables
    yield "engine", *engine_of(BlockTables, layout)
    for name, kind in (("separate inputs", SeparateInputs), ("inputs", OneLaunchInputs)):
        tables = ONE_LAUNCH(layout, "cpu")
        yield name, inputs_of(kind, tables), tables
    yield "plugin", *engine_of(DeferringTables, layout)


WAYS = ("variant", "engine", "separate inputs", "inputs", "plugin")
PLAIN = {
    "in order": lambda append: append(1, ([5], [6, 7]), False),
    "as vLLM's runner": lambda append: append(2, ([5], []), overwrite=True),
    "lists": lambda append: append(2, [[], [2**30 - 1]], False),
    "named": lambda append: append(overwrite=True, req_index=3, new_block_ids=[(5,), []]),
    "large": lambda append: append(1, [[2**31 - 1], []], overwrite=False),
    "redirected": lambda append: append(0, [[3], [4]], overwrite=False),
}


def calls_of(function, *given):
    """The functions in Python that are called meanwhile."""
    called, before = [], sys.getprofile()
    gc.disable()
    sys.setprofile(
        lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None
    )
    try:
        function(*given)
    finally:
        sys.setprofile(before)
        gc.enable()
    return called


def test_no_function_in_python_runs_on_any_way():
    for name, owner, tables in ways_of(LAYOUT):
        for how, call in PLAIN.items():
            tables.redirect_writes_to_null_block = how == "redirected"
            assert calls_of(call, owner.append_block_ids) == [call.__name__], (name, how)
        assert tables.num_blocks.tolist() == [[1, 2, 1, 1], [1, 2, 1, 0]]
    by_python = InPython(LAYOUT, "cpu")
    assert "append_block_ids" in calls_of(PLAIN["in order"], by_python.append_block_ids)


@pytest.mark.parametrize("names", [("replace",), ("req_index",), ("req_index", "overwrite"), ()])
def test_other_names_of_arguments_are_refused_on_every_way(names):
    for name, owner, tables in ways_of(LAYOUT):
        owner.append_block_ids(1, [[5], []], True)
        with pytest.raises(TypeError):
            owner.append_block_ids(1, [[5], [6]], **dict.fromkeys(names, True))
        assert tables._staged.intervals() == [(0, 1, 0, [5]), (1, 1, 0, [])], name


def test_inputs_have_what_their_class_or_that_of_the_tables_overrides():
    class Inputs(OneLaunchInputs):
        def append_block_ids(self, req_index, new_block_ids, overwrite):
            super().append_block_ids(3, new_block_ids, overwrite)

    tables = ONE_LAUNCH(LAYOUT, "cpu")
    inputs_of(Inputs, tables).append_block_ids(1, [[5], []], True)
    assert tables._staged.intervals()[:1] == [(0, 3, 0, [5])]

    tables = type("Tables", (ONE_LAUNCH,), {"append_block_ids": lambda self, *given: noted(given)})
    noted = [].append
    inputs = inputs_of(OneLaunchInputs, tables(LAYOUT, "cpu"))
    inputs.append_block_ids(1, [[5], []], True)
    assert noted.__self__ == [(1, [[5], []], True)]
    known = weakref.ref(inputs), weakref.ref(inputs.tables)
    gc.disable()
    try:
        del inputs
        assert [each() for each in known] == [None, None]
    finally:
        gc.enable()


# More rows than a word of a bitmap tells of, and tables that some of them fill.
MANY_ROWS = TableLayout((16, 16), (6, 40), max_num_reqs=130, max_num_batched_tokens=130)
ROWS = (0, 1, 47, 48, 95, 96, 129)


def outcome_of(rng, owner, reads_twice):
    """Returns the effect of a random request, given in a random way."""
    row, ids, overwrite = request_for(rng, 2, 130, rng.random() < 0.5, ROWS)
    if reads_twice:
        ids = [list(each) if isinstance(each, Iterator) else each for each in ids]
    request = row, ids, overwrite
    named = dict(zip(("req_index", "new_block_ids", "overwrite"), request, strict=True))
    first = rng.choice((0, 2, 2, 3))
    if rng.random() < 0.1:  # a name that is not interned
        named = {"".join(name): value for name, value in named.items()}
    given, rest = request[:first], dict(list(named.items())[first:])
    try:
        return owner.append_block_ids(*given, **rest)
    except Exception as error:
        return type(error), re.sub("0x[0-9a-f]+", "", str(error))


def trace_of(owner, tables, seed, reads_twice):
    """Returns the effect of random requests, with all arguments of their launch."""
    rng = random.Random(seed)
    staged, trace = tables._staged, []
    for _ in range(60):
        action = rng.random()
        if action < 0.05:
            staged.clear()
        elif action < 0.1:
            tables.redirect_writes_to_null_block = rng.random() < 0.5
        elif action < 0.15:  # as an engine that starts anew, or a driver that undoes
            tables.num_blocks[:] = rng.randrange(4)
            staged.longest = 3
        else:
            trace.append(outcome_of(rng, owner, reads_twice))
        words = [memoryview(array("q", [-1] * size)) for size in (2 * bitmap_words(130), 60)]
        trace.append((staged.pack_words(*words), *(view.tolist() for view in words)))
        trace.append((staged.intervals(), staged.num_ids, tables.num_blocks.tolist()))
        trace.append(staged.longest)
    return trace


@pytest.mark.parametrize("way", WAYS)
def test_random_requests_on_every_way_do_what_they_do_in_python(way):
    outcomes = []
    for seed in range(40):
        (made,) = ((owner, tables) for name, owner, tables in ways_of(MANY_ROWS) if name == way)
        by_python = InPython(MANY_ROWS, "cpu")
        # The plugin's tables read what was refused anew, since vLLM's may take it.
        given = seed, way == "plugin"
        expected, found = trace_of(by_python, by_python, *given), trace_of(*made, *given)
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert one == other, (seed, place)
        outcomes += [outcome is None for outcome in found if not isinstance(outcome, int)]
    assert sum(outcomes) > 1000
