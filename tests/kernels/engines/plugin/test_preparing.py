"""Whole batches that the plugin prepares, beside a runner without it: all buffers are equal.

The runner's methods are stand-ins, and, where BT_BENCH_VLLM_SOURCE names an unpacked wheel, vLLM's
own text with its classes of batches, buffers and requests.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_steps.batch_session import OUTPUTS, BatchSession, batch_package
from engine_steps.session import FAILS, PLANTED, REMOVED, plugged
from support.in_c import batches_in_c, is_possible
from support.plugin_steps import WHEELS
from support.vllm_batches import BatchStep, envs
from support.vllm_readers import READERS
from support.vllm_runner import RELEASE

from bt_bench.suites.batch_preparation.workloads.conformance import CORNERS, workload_of
from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, messages, preparing, releases
from bt_kernels.engines.plugin.deferring import DeferringTables

ENGINE = replace(CORNERS["drafts, lookahead, two groups"], repeats=False, num_steps=6)
DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
def module(device):
    """Function that imports modules of the stand-in."""
    if device.type == "cuda":
        pytest.skip("the reference prepares batches on the CPU alone")
    with batch_package(None) as found:
        yield found
    counting.reset()


@pytest.fixture(params=["stand-in", "vLLM's"])
def either(request, device):
    """Likewise, of the stand-in or of vLLM."""
    if request.param != "stand-in" and not WHEELS:
        pytest.skip(f"needs an unpacked wheel of vLLM {RELEASE}: BT_BENCH_VLLM_SOURCE=DIR")
    if request.param == "stand-in" and device.type == "cuda":
        pytest.skip("the reference prepares batches on the CPU alone")
    with batch_package(None if request.param == "stand-in" else WHEELS[0]) as found:
        yield found
    counting.reset()


@pytest.fixture
def engines(module):
    """Function that returns a runner with the plugin and one without."""
    return lambda **options: both_of(module, **options)


def both_of(module, engine=ENGINE, seed=0, **options):
    workload = workload_of(engine, np.random.default_rng(seed))
    kind = module("model_runner").GPUModelRunner
    theirs = getattr(kind.tables_class(), "theirs", kind.tables_class())
    return workload, kind(workload, **options), kind(workload, theirs, **options)


def make_both(ours, theirs, inputs, number=0, **options):
    """Make a step by both, and compare all of it; return what ours gave to the model."""
    found = []
    for runner in (ours, theirs):
        given = runner.make(BatchStep(inputs, seed=number, **options))
        found.append([*given, *(buffer.clone() for _, buffer in runner.named_buffers())])
    for mine, other in zip(*found, strict=True):
        assert same(mine, other)
    return found[0]


def same(found, expected):
    if is_dataclass(expected):
        return all(same(getattr(found, n), getattr(expected, n)) for n in vars(expected))
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected


INPUTS = {"BT_KERNELS_INPUTS": "on"}


def played(module, device, seed, **chosen):
    """Play a short sequence; return it."""
    runner = module("model_runner").GPUModelRunner
    session = BatchSession(runner, device, np.random.default_rng((56, seed)), 8)
    for name, value in chosen.items():
        setattr(session, name, value)
    assert list(session.play()) == []
    return session


@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("seed", range(3))
def test_batches_are_as_vllms(either, device, mode, seed):
    session = played(either, device, seed, mode=mode, event="", shadow_steps=4)
    assert session.seen["counter: prepared"] > 2
    assert not session.seen[f"fallback: {preparing.FAILED}"]


@pytest.mark.skipif(not is_possible(), reason="no compiler, or a torch without C's exchange")
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_batches_in_c_are_as_vllms(either, device, monkeypatch, mode):
    made = []

    class InC(batches_in_c(preparing.BatchInputs)):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(preparing, "BatchInputs", InC)
    session = played(either, device, 8, mode=mode, event="", shadow_steps=4)
    assert session.seen["counter: prepared"] > 2
    # In shadow mode the second one compares; the first one has other tables when it serves, whose
    # steps in C it finds on a GPU alone.
    assert len(made) == (2 if mode == "shadow" else 1)
    assert made[-1].by_python == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_batches_are_as_vllms(either, device, seed):
    played(either, device, seed)


@pytest.mark.parametrize("event", [FAILS, REMOVED])
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_after_an_event_vllms_method_goes_on(either, device, event, mode):
    session = played(either, device, 4, mode=mode, event=event, event_at=3, shadow_steps=99)
    assert session._happened


@pytest.mark.parametrize("output", OUTPUTS)
def test_shadow_mode_finds_a_wrong_bit(module, device, caplog, output):
    for seed in range(9):
        caplog.clear()
        chosen = {"event": PLANTED, "event_at": 1, "planted": output}
        if played(module, device, (seed, 7), **chosen)._happened:
            break
    (record,) = caplog.records
    assert re.search(
        rf"after prepare_inputs: (input_)?{output}\b.* is -?\d+ in ours, and", record.message
    )
    assert "has used no result of ours" in record.message


def test_a_step_is_one_launch(engines):
    with plugged("on", 1, **INPUTS):
        workload, *both = engines()
        for number, inputs in enumerate(workload.steps):
            make_both(*both, inputs, number)
        counts = plugin.counters()
    steps = len(workload.steps)
    assert counts["launches"] == counts["prepared"] == counts["fused"] == steps
    assert counts["calls"] == {"prepare": steps}
    assert counts["settled"] == counts["fallbacks"] == {}


def test_without_the_variable_vllms_method_prepares(engines):
    with plugged("on", 1):
        workload, *both = engines()
        make_both(*both, workload.steps[0])
        counts = plugin.counters()
    assert (counts["prepared"], counts["calls"]) == (0, {"prepare_step": 1})


def test_after_shadow_mode_ours_fills_vllms_buffers(engines):
    with plugged("shadow", 2, **INPUTS):
        workload, *both = engines()
        for number, inputs in enumerate(workload.steps):
            found = make_both(*both, inputs, number)
        assert type(both[0].block_tables) is DeferringTables
        counts = plugin.counters()
    assert (counts["compared"], counts["prepared"]) == (2, len(workload.steps))
    batch = next(each for each in found if is_dataclass(each))
    assert batch.positions.data_ptr() == both[0].input_buffers.positions.data_ptr()


def test_a_model_without_tokens_of_its_own_may_have_no_logits(either):
    with plugged("on", 1, **INPUTS):
        engine = replace(CORNERS["no token of its own"], num_steps=2)
        workload, *both = both_of(either, engine=engine)
        for number, inputs in enumerate(workload.steps):
            found = make_both(*both, replace(inputs, num_drafts=None), number)
            batch = next(each for each in found if is_dataclass(each))
            assert batch.num_draft_tokens_per_req.tolist() == [0] * inputs.num_reqs
            assert not len(batch.logits_indices)
        assert plugin.counters()["prepared"] == 2


def test_shadow_mode_bears_foreign_writes_after_the_apply(engines):
    """Both keep some of them: slots behind the batch are of an earlier one."""

    def write(tables):
        tables.input_block_tables[0][:, -1:] = 77
        tables.slot_mappings[:, -1:] = 5

    with plugged("shadow", 99, **INPUTS):
        workload, *both = engines()
        for number, inputs in enumerate(workload.steps):
            make_both(*both, inputs, number, after_apply=write)
        counts = plugin.counters()
    assert (counts["prepared"], counts["differences"]) == (len(workload.steps), 0)


def test_ranks_of_decode_context_parallelism_have_their_slots(module):
    """Their local lengths are computed from the batch, by a kernel of vLLM's."""
    with plugged("on", 1, **INPUTS):
        workload = workload_of(replace(ENGINE, reaches=()), np.random.default_rng(1))
        layout = replace(workload.table_layout, cp_size=2, cp_rank=1, cp_interleave=2)
        workload = replace(workload, table_layout=layout)
        kind = module("model_runner").GPUModelRunner
        both = kind(workload), kind(workload, kind.tables_class().theirs)
        for number, inputs in enumerate(workload.steps):
            make_both(*both, inputs, number)
        assert plugin.counters()["prepared"] == len(workload.steps)


def test_host_time_includes_the_inputs(engines, monkeypatch):
    monkeypatch.setenv("BT_KERNELS_COUNTERS", "1")
    monkeypatch.setattr(counting, "_PRINTING", {os.getpid()})
    with plugged("on", 1, **INPUTS):
        workload, *both = engines()
        prepare = both[0].block_tables._inputs.inputs.prepare

        def late(*given):
            time.sleep(0.01)
            return prepare(*given)

        both[0].block_tables._inputs.inputs.prepare = late
        for number, inputs in enumerate(workload.steps[:3]):
            make_both(*both, inputs, number)
        # The last step ends with the next one.
        times = plugin.counters()["host_time_us"]
    assert times["steps"] == 2
    assert times["mean"] >= 10_000


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_runners_may_be_built_in_inference_mode(engines, mode):
    with plugged(mode, 2, **INPUTS):
        with torch.inference_mode():
            workload, *both = engines()
        for number, inputs in enumerate(workload.steps[:4]):
            make_both(*both, inputs, number)
        counts = plugin.counters()
    assert (counts["prepared"], counts["failures"], counts["differences"]) == (4, 0, 0)


def test_lengths_of_prompts_are_read_where_the_engine_has_them_now(engines):
    """They alternate between two buffers."""
    with plugged("on", 1, **INPUTS):
        workload, *both = engines(engine=replace(ENGINE, num_steps=9, prompt=12))
        inputs = both[0].block_tables._inputs.inputs
        addresses = set()
        for number, step in enumerate(workload.steps):
            make_both(*both, step, number)
            prefill_len = both[0].req_states.prefill_len.gpu
            assert inputs.requests.prefill_len.data_ptr() == prefill_len.data_ptr()
            addresses.add(prefill_len.data_ptr())
        assert len(addresses) == 2
        assert plugin.counters()["prepared"] == len(workload.steps)


def parallel(ours, monkeypatch):
    return {"kind": "pcp"}


def adaptive(ours, monkeypatch):
    monkeypatch.setattr(ours, "adaptive_verification", "on")
    return {}


def settled(ours, monkeypatch):
    return {"after_apply": READERS["gather_block_tables"]}


def replaced(ours, monkeypatch):
    ours.req_states.draft_tokens = ours.req_states.draft_tokens.clone()
    return {}


def other_buffers(ours, monkeypatch):
    class Copied:
        pass

    copied = Copied()
    vars(copied).update(vars(ours.input_buffers))
    ours.input_buffers = copied
    return {}


def many(ours, monkeypatch):
    monkeypatch.setattr(preparing, "MOST_REQUESTS", 0)
    return {}


def padded(ours, monkeypatch):
    found = ours.block_tables._inputs
    found = getattr(found, "_ours", found)
    found.layout = replace(found.layout, max_num_tokens=1)
    return {}


def marked(ours, monkeypatch):
    monkeypatch.setattr(envs, "VLLM_MOE_SKIP_PADDING", False)
    return {}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (preparing.PARALLEL, parallel),
        (preparing.ADAPTIVE, adaptive),
        (preparing.NO_APPLY, settled),
        (preparing.REPLACED, replaced),
        (preparing.OTHER_RUNNER, other_buffers),
        (preparing.MANY_REQUESTS, many),
        (preparing.SIZES, padded),
        (preparing.PADDING, marked),
    ],
)
def test_what_ours_cannot_prepare_vllm_does_and_the_reason_is_counted(
    engines, monkeypatch, reason, cause
):
    # The two that have a part of their own in shadow mode.
    for mode in ("on", "shadow") if cause in (parallel, settled) else ("on",):
        with plugged(mode, 99, **INPUTS):
            workload, ours, theirs = engines()
            make_both(ours, theirs, workload.steps[0], **cause(ours, monkeypatch))
            counts = plugin.counters()
        assert counts["fallbacks"] == {reason: 1}
        assert counts["prepared"] == counts["failures"] == counts["differences"] == 0


def test_a_batch_with_too_few_tokens_is_refused_by_vllms_method(either):
    with plugged("on", 1, **INPUTS):
        workload, ours, _ = both_of(either)
        inputs = replace(workload.steps[0], num_drafts=workload.steps[0].query_lens)
        with pytest.raises(AssertionError):
            ours.make(BatchStep(inputs))
        assert plugin.counters()["fallbacks"] == {preparing.SHORT_QUERIES: 1}


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_calls_that_are_recorded_are_vllms(engines, monkeypatch, tmp_path, mode):
    monkeypatch.setenv("BT_KERNELS_RECORD", str(tmp_path / "calls.bin"))
    with plugged(mode, 99, **INPUTS):
        workload, *both = engines()
        make_both(*both, workload.steps[0])
        counts = plugin.counters()
    assert counts["fallbacks"] == {preparing.RECORDED: 1}


def gathers(runner, batch):
    runner.block_tables.gather_block_tables(batch.idx_mapping.flip(0), batch.num_reqs)


def applies(runner, batch):
    runner.block_tables.append_block_ids(0, [[3], [3]], overwrite=True)
    runner.block_tables.apply_staged_writes()


def shrinks(runner, batch):
    batch.num_tokens_after_padding = batch.num_tokens


def copies(runner, batch):
    return replace(batch)


@pytest.mark.parametrize("between", [gathers, applies, shrinks, copies])
def test_what_happens_before_prepare_attn_is_in_its_results(module, between):
    with plugged("on", 1, **INPUTS):
        workload, *both = both_of(module, engine=replace(ENGINE, prompt=3))
        inputs = workload.steps[0]
        inputs = replace(inputs, num_tokens_padded=inputs.num_tokens + 1)
        for runner in both:
            prepare = runner.prepare_inputs

            def also(*given, prepare=prepare, runner=runner):
                batch = prepare(*given)
                return between(runner, batch) or batch

            runner.prepare_inputs = also
        make_both(*both, inputs)
        assert plugin.counters()["fallbacks"] == {preparing.CHANGED: 1}


def test_tables_are_given_once_and_for_their_batch_alone(module):
    with plugged("on", 1, **INPUTS):
        workload, *both = both_of(module)
        found = make_both(*both, workload.steps[0])
        batch = next(each for each in found if is_dataclass(each))
        launches = plugin.counters()["launches"]
        again = [runner.prepare_attn(batch) for runner in both]
        assert same(*again)
        assert plugin.counters()["launches"] == launches + 1


@pytest.mark.parametrize("where", ["prepare", "batch_of"])
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_an_exception_of_ours_leaves_nothing_half_done(engines, caplog, mode, where):
    """Before the launch, and behind it."""

    def fail(*_):
        raise RuntimeError("planted")

    with plugged(mode, 99, **INPUTS), caplog.at_level(logging.WARNING):
        workload, *both = engines()
        found = both[0].block_tables._inputs
        setattr(getattr(found, "_ours", found), where, fail)
        for number, inputs in enumerate(workload.steps):
            make_both(*both, inputs, number)
        counts = plugin.counters()
    (record,) = caplog.records
    assert "planted" in record.message
    assert counts["failures"] == 1


def test_an_error_of_the_wrapper_leaves_the_tables_ours(engines, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("planted")

    monkeypatch.setattr(preparing.BatchInputs, "warmup", fail)
    with plugged("on", 1, **INPUTS):
        workload, *both = engines()
        make_both(*both, workload.steps[0])
        counts = plugin.counters()
    assert (counts["failures"], counts["calls"]) == (1, {"prepare_step": 1})
    assert "batches are not prepared (RuntimeError: planted)" in caplog.text


def test_a_tensor_that_ours_cannot_read_is_named(engines, monkeypatch, caplog):
    with plugged("on", 1, **INPUTS):
        workload, *both = engines()
        kind = type(both[0].input_buffers)
        built = kind.__init__

        def other(buffers, *given):
            built(buffers, *given)
            buffers.positions = buffers.positions.int()

        monkeypatch.setattr(kind, "__init__", other)
        workload, *both = engines()
        make_both(*both, workload.steps[0])
        ((reason, count),) = plugin.counters()["fallbacks"].items()
    assert count == 1
    assert reason.startswith("positions is ((64,), torch.int32")
    assert f"batches are not prepared: {reason}. The engine does that" in caplog.text


def test_methods_are_as_before_once_the_plugin_is_out(module):
    kind = module("model_runner").GPUModelRunner
    names = ("prepare_inputs", "prepare_attn", "execute_model", "initialize_kv_cache")
    before = {name: vars(kind)[name] for name in names}
    with plugged("on", 1, **INPUTS):
        both_of(module)
        both_of(module)  # wraps nothing twice
        assert all(vars(kind)[name] is not before[name] for name in names)
        assert vars(kind)["prepare_inputs"].__wrapped__ is before["prepare_inputs"]
    assert {name: vars(kind)[name] for name in names} == before


@pytest.mark.parametrize("value", ["", "off", "1"])
def test_any_other_value_is_off(engines, caplog, value):
    with plugged("on", 1, BT_KERNELS_INPUTS=value):
        _, ours, _ = engines()
        assert ours.block_tables._inputs is None
    assert ("BT_KERNELS_INPUTS='1' is unknown; expected on or off" in caplog.text) == (value == "1")


@pytest.mark.parametrize(
    ("digest", "said"),
    [("", "those of vLLM 0.33.0 were not compared"), ("0" * 64, "is not the file of vLLM 0.33.0")],
)
def test_another_file_or_release_is_refused(module, monkeypatch, caplog, digest, said):
    known = replace(releases.RELEASES[RELEASE], input_batch=digest)
    monkeypatch.setitem(releases.RELEASES, RELEASE, known)
    messages.forget()
    with plugged("on", 1, **INPUTS):
        workload, *both = both_of(module)
        make_both(*both, workload.steps[0])
        assert plugin.counters()["calls"] == {"prepare_step": 1}
    assert said in caplog.text
    assert "The engine prepares its batches by its own code" in caplog.text


def test_the_page_has_all_reasons():
    page = (DOCS / "vllm-plugin.md").read_text("utf-8")
    table = page[page.index("| reason | |") : page.index("| others, ")]
    reasons = {
        value
        for name, value in vars(preparing).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert set(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)) == reasons
