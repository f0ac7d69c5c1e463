"""The change of vLLM 0.33.0 that flushes the sampler's states only after a request was added."""

from __future__ import annotations

from bt_bench.upstream.changes import Change, Edit, Patch, after, after_binding, at_start

_SAMPLER = "vllm/v1/worker/gpu/sample/sampler.py"
_TESTS = "tests/v1/worker/test_gpu_sampler_flags.py"

_DESCRIPTION = """\
GPUModelRunner.add_requests calls Sampler.apply_staged_writes in every step, with
or without new requests. Each call copies fifteen pools of values per request,
though only Sampler.add_request changes these values. The sampler now remembers
that a request was added, and copies only then.

- Custom logits processors are still called once per step, in the same order, as
  LogitsProcessor.apply_staged_writes documents.
- The first call always copies.
- Each copy still moves on to the next buffer of a pool, and there are fewer
  copies. So with several steps in flight, no buffer is rewritten sooner.
- Subclasses that call super, such as GPUWatermarkSampler, stay as they are.
"""

_MEASURED = """\
Once, on a CPU and without an engine: 26 to 28 us of host time per call, for fifteen
pools. Not measured in an engine. To find the share of the call in yours, before
and after, profile decode steps:

    py-spy record --subprocesses -o before.svg -- \\
        vllm bench throughput --model MODEL --input-len 8 --output-len 1024

Add runs of `vllm bench serve`, with their number and spread.
"""

_TESTED = """\
On a CPU: the tests of this file and the added one; random requests and steps in the
sampler before and after, whose device values were equal after each step. Not run on
a GPU, nor in an engine.
"""

_FLAG = """\
        self._custom_logits_processors = tuple(custom_logits_processors)
        # Whether add_request() has staged writes that are not flushed yet.
        self._has_staged_writes = True
"""

_STAGE = """\
        self._has_staged_writes = True
"""

_SKIP = """\
        if not self._has_staged_writes:
            # Custom processors are promised a call per step.
            for processor in self._custom_logits_processors:
                processor.apply_staged_writes()
            return
        self._has_staged_writes = False
"""

_TEST = '''

def test_staged_writes_are_flushed_only_after_add_request(monkeypatch):
    """Steps without new requests copy nothing, and still call custom processors."""
    processor = _GateProcessor(admitted=False)
    calls: list[str] = []
    monkeypatch.setattr(
        processor, "apply_staged_writes", lambda: calls.append("custom")
    )
    sampler = _make_sampler(custom_logits_processors=[processor])
    sampler.apply_staged_writes()
    states = sampler.sampling_states
    before = states.temperature.gpu

    sampler.apply_staged_writes()
    assert states.temperature.gpu is before
    assert calls == ["custom"] * 2

    sampler.add_request(2, SamplingParams(temperature=0.25))
    sampler.apply_staged_writes()
    assert states.temperature.gpu[2].item() == 0.25
    assert calls == ["custom"] * 3
'''

SAMPLER_FLAG = Patch(
    "sampler-flush",
    "Flush the sampler's staged writes only after a request was added",
    _DESCRIPTION,
    _MEASURED,
    _TESTED,
    (
        Change(
            _SAMPLER,
            (
                Edit("Sampler.__init__", after_binding("self.logits_processors"), _FLAG),
                Edit("Sampler.add_request", at_start, _STAGE),
                Edit("Sampler.apply_staged_writes", at_start, _SKIP),
            ),
            adds="_has_staged_writes",
            digests={
                "Sampler.__init__": "cf1cbd14bc373c4c",
                "Sampler.add_request": "db8e58017a22aae0",
                "Sampler.apply_staged_writes": "fefa37610bd91f77",
            },
        ),
        Change(
            _TESTS,
            (
                Edit(
                    "test_custom_processor_add_request_gates_pipeline_flag",
                    after,
                    _TEST,
                ),
            ),
            adds="test_staged_writes_are_flushed_only_after_add_request",
            is_test=True,
        ),
    ),
)
"""The dirty flag of the sampler."""
