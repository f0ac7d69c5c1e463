"""Counters from start to end, with a stand-in for Nsight Compute."""

from __future__ import annotations

import sys

import pytest
from support.factories import make_environment
from support.ncu import FakeAction, fake_module, fake_ncu

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.config.load import load_config
from bt_bench.results import Cache, Reason, ReasonCode
from bt_bench.runs.profile import CountersRequest, ncu, take_counters
from bt_bench.runs.profile.ncu_tool import Ncu
from bt_bench.suites.block_tables import operations as ops
from bt_bench.variants.catalogue import find_variants
from bt_bench.worker import WorkerSetup, arms_of
from bt_bench.worker.profiling.marking import MarkAnswer, Marked

CONFIG = """
name: tiny
variants: [fused, baseline]
operations: [step]
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases: [{name: one, groups: 1, requests: 2, tokens: 4}]
"""


@pytest.fixture
def request_of(tmp_path):
    """A request for variants on the CPU, where the stand-in does not mind."""

    def made(*names, **changes):
        config = tmp_path / "tiny.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        spec = load_config(str(config))
        found = find_variants()
        setup = WorkerSetup("cpu", arms_of([found[name] for name in names]), spec.plan)
        return CountersRequest(spec.name, setup, spec.cases[0], ops.STEP, **changes)

    return made


@pytest.fixture
def answering(tmp_path):
    """A stand-in that gives an answer of our process, and runs some more lines of bash."""

    def made(body='echo a report > "$report"', **fields):
        (tmp_path / "answer.json").write_text(MarkAnswer(**fields).model_dump_json())
        progress = 'printf "fused, 1 of 2\\nbaseline, 2 of 2\\n" > "$folder/progress.txt"'
        text = f'{progress}; cp {tmp_path}/answer.json "$folder"; {body}'
        return Ncu(fake_ncu(tmp_path / "ncu", body=text), "2025.3.1.0")

    return made


@pytest.fixture
def kernels(monkeypatch):
    """Sets the kernels that every report has."""

    def of(*actions):
        monkeypatch.setitem(sys.modules, "ncu_report", fake_module(*actions))

    of(*[FakeAction("a", "fused.step.one", {"gpu__time_duration.sum": 4000})] * 3)
    return of


def marked(*names, **failures):
    return Marked(
        environment=make_environment(),
        step=1,
        num_steps=2,
        digest="d",
        read_bytes=100,
        written_bytes=28,
        ranges={name: f"{name}.step.one" for name in names},
        failures={
            name: Reason(code=ReasonCode.RAISED, message=text) for name, text in failures.items()
        },
    )


def test_counters_of_what_ran_and_reasons_for_the_rest(request_of, answering, kernels):
    told, traces = [], []
    program = answering(marked=marked("fused", baseline="it broke"), tracebacks=["Traceback …"])
    request = request_of("baseline", "fused", l2=Cache.COLD)
    taken = take_counters(request, told.append, traces.append, ncu=program)
    assert told == ["fused, 1 of 2", "baseline, 2 of 2"]
    assert traces == ["Traceback …"]
    assert (taken.report, taken.report_bytes) == (b"a report\n", 9)
    counters = taken.counters
    assert [variant.name for variant in counters.variants] == ["baseline", "fused"]
    assert counters.variants[0].reason.message == "it broke"
    assert [kernel.name for kernel in counters.variants[1].kernels] == ["a"]
    assert (counters.step, counters.l2, counters.calls) == (1, Cache.COLD, 3)
    assert counters.required_bytes == 128
    assert counters.report == "kernels.ncu-rep"


def test_a_report_that_is_too_large_is_not_kept(request_of, answering, kernels, monkeypatch):
    monkeypatch.setattr(ncu, "MOST_REPORT_BYTES", 4)
    program = answering(marked=marked("fused"))
    taken = take_counters(request_of("fused"), lambda _: None, ncu=program)
    assert (taken.report, taken.report_bytes) == (None, 9)
    assert taken.counters.report is None
    assert taken.counters.variants[0].kernels
    assert "has 9 B and is not kept: more than 4 B" in ncu.too_large(9)


@pytest.mark.parametrize(
    ("body", "answer", "error", "expected"),
    [
        (
            "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'",
            {"marked": marked(fused="a launch failed")},
            UsageError,
            "may not read this GPU's counters",
        ),
        (
            "echo '==WARNING== No kernels were profiled.'",
            {"marked": marked("fused")},
            UsageError,
            "wrote no report: ==WARNING== No kernels",
        ),
        (
            'rm "$folder/answer.json"; echo "==ERROR== The application crashed"',
            {},
            UsageError,
            "wrote no report: ==ERROR== The application crashed",
        ),
        ("true", {"refusal": "no GPU to run on"}, UsageError, "no GPU to run on"),
        ("true", {"defect": "Traceback: oh no\n"}, BtBenchError, "oh no\ninternal error"),
        ("sleep 60", {"marked": marked("fused")}, UsageError, "has not ended after 0.5 s"),
    ],
)
def test_what_can_go_wrong(request_of, answering, kernels, body, answer, error, expected):
    program = answering(body, **answer)
    seconds = 0.5 if "sleep" in body else 60.0
    with pytest.raises(error, match=expected):
        take_counters(request_of("fused", seconds=seconds), lambda _: None, ncu=program)


def test_variants_that_all_failed_need_no_report(request_of, answering, kernels):
    program = answering("true", marked=marked(fused="it broke"))
    taken = take_counters(request_of("fused"), lambda _: None, ncu=program)
    assert taken.report is None
    assert taken.counters.variants[0].reason.message == "it broke"


@pytest.mark.slow
def test_our_own_process_under_the_tool(request_of, kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    program = fake_ncu(tmp_path / "ncu", body='"$@" && echo a report > "$report"')
    request = request_of("fused", "baseline")
    told = []
    taken = take_counters(request, told.append, ncu=Ncu(program, "2025.3.1.0"))
    assert told == ["profiling fused, 1 of 2", "profiling baseline, 2 of 2"]
    assert taken.counters.environment.interpreted
    assert taken.counters.required_bytes > 0
    assert [kernel.name for kernel in taken.counters.variants[0].kernels] == ["a"]
