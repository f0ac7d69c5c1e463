"""On a GPU: kernels that end the CUDA context, hang it or ask for too much fail alone."""

from __future__ import annotations

import pytest
from support.commands import run_apart
from support.faulty import write_faulty

from bt_bench.results.files.reading import read_run

CONFIG = """\
variants: [baseline, fused]
operations: [step]
plan: {rounds: 8, min_rounds: 8, profile_rounds: 2, graph_rounds: 2, instances: 2}
defaults: {max_num_reqs: 16, max_num_batched_tokens: 256, max_model_len: 1024}
cases:
  - {name: one, requests: 2, tokens: 4}
  - {name: two, groups: 2, requests: 3, tokens: 9}
"""
# In the case of two groups alone, when it is rewound a third time: after the check, while measured.
LATE = """

class Late(Variant):
    restored = 0

    def restore(self, state):
        self.restored += 1
        if self.restored > 2 and len(self.block_tables) == 2:
            self._fail()
        super().restore(state)


Variant = Late
"""
EXPECTED = {
    "illegal_address": ("crashed", "illegal memory access"),
    "spins": ("hung", "within 5 s (plan.hang_seconds)"),
    "asks_twice": ("out_of_memory", "out of memory"),
}


def write_late(folder, name):
    """The same fault, but only while measured."""
    write_faulty(folder, name, method="never_called", variant=f"late_{name}")
    with (folder / f"late_{name}.py").open("a") as file:
        file.write(LATE)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.timeout(600)
def test_a_sweep_outlives_faults_on_the_device(tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    kernels = tmp_path / "kernels"
    for name in EXPECTED:
        write_faulty(kernels, name)
        write_late(kernels, name)
    # Compiling must not count as hanging: what is compiled is kept.
    warm = run_apart("sweep", config, "--out", tmp_path / "warm")
    assert warm.code == 0, warm.err
    names = ["baseline", *EXPECTED, *(f"late_{name}" for name in EXPECTED), "fused"]
    outcome = run_apart(
        *("sweep", config, "--out", tmp_path / "run", "--kernels", kernels),
        *("--variants", ",".join(names), "--set", "plan.hang_seconds=5"),
        timeout=480,
    )
    assert outcome.code == 5, outcome.err
    results = {result.variant.name: result for result in read_run(tmp_path / "run")}
    for name in ("baseline", "fused"):
        assert [(case.status, case.reason) for case in results[name].cases] == [("ok", None)] * 2
        assert all(case.measurements for case in results[name].cases)
    for name, (code, message) in EXPECTED.items():
        for case in results[name].cases:
            assert_failed(case, code, message)
        one, two = results[f"late_{name}"].cases
        assert one.status == "ok", one.reason
        assert_failed(two, code, message)


def assert_failed(case, code, message):
    assert (case.status, case.reason.code) == ("failed", code), case.reason
    assert message in case.reason.message
    assert not case.measurements
