"""The comparison of generations with and without the plugin, with a stand-in for `vllm.LLM`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.vllm_runner import write_package

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "vllm_e2e.py"

# Each token depends on slots and tables of the step before it.
ENGINE = """
import os
from types import SimpleNamespace


class SamplingParams:
    def __init__(self, temperature, max_tokens, ignore_eos):
        assert temperature == 0 and ignore_eos
        self.max_tokens = max_tokens


class LLM:
    def __init__(self, model, seed, **options):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        if options.get("plugins", True):
            from bt_kernels.engines.plugin import load

            load()
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner

        from bt_kernels.layout import TableLayout

        self.runner = GPUModelRunner(TableLayout((4,), (8,), 8, 32))
        self.noise = options.get("noise", 0)
        if options.get("breaks") and os.environ["BT_KERNELS"] != "off":
            self.noise = 1
        self.random = os.getpid() if options.get("irreproducible") else 0

    def generate(self, prompts, sampling):
        return [
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=self.tokens(row, text, sampling))])
            for row, text in enumerate(prompts)
        ]

    def tokens(self, row, text, sampling):
        import numpy as np
        from support.vllm_runner import Step

        found = []
        for number in range(sampling.max_tokens):
            ids = [len(text) + number // 4] if number % 4 == 0 else []
            computed = np.zeros(8, dtype=np.int64)
            computed[row] = number
            batch = SimpleNamespace(
                writes=[(row, (ids,), not number)] if ids else [], rows=np.array([row]),
                lengths=np.array([1]), starts=np.array([number]), computed=computed,
                positions=np.array([number]), num_reqs_padded=2, num_tokens_padded=4,
            )
            self.runner.make(Step(batch))
            tables = self.runner.block_tables
            slot = int(tables.slot_mappings[0, 0]) + int(tables.input_block_tables[0][0].sum())
            found.append((slot * 31 + self.noise + self.random) % 50_000)
        return found
"""


def load_example():
    spec = importlib.util.spec_from_file_location("vllm_e2e", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def run(tmp_path, model):
    """Function that runs the example with a stand-in engine of a release."""

    def run(*words, release="0.33.0", **variables):
        package = write_package(tmp_path / "package", release=release)
        with (package / "vllm" / "__init__.py").open("a") as file:
            file.write(ENGINE)
        path = os.pathsep.join(map(str, (package, ROOT, ROOT / "kernels", ROOT / "tests")))
        given = ["--model", str(model), "--max-tokens", "5", "--repeats", "1", *map(str, words)]
        return subprocess.run(
            [sys.executable, str(EXAMPLE), *given],
            env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_equal_generations(run, tmp_path, mode):
    done = run("--mode", mode, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    assert "16 generations, 80 tokens" in done.stdout
    assert "All token ids are equal." in done.stdout
    written = json.loads((tmp_path / "out.json").read_text())
    counts = written["on"]["counters"]
    assert counts["steps"] == 80
    assert counts["compared" if mode == "shadow" else "fused"] == 80
    for arm in ("off", "on"):
        for repetition in written[arm]["repetitions"]:
            assert repetition["us_per_output_token"] > 0
            if (arm, mode) != ("on", "shadow"):
                assert repetition["steps"] == 40
                assert repetition["host_us_per_step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--option", "breaks=1"], 1, "the plugin is the cause"),
        (["--option", "irreproducible=1"], 2, "this comparison is void"),
    ],
)
def test_different_generations(run, words, code, says):
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert "repetition 0, prompt 0, token 0" in done.stdout
    assert says in done.stdout


@pytest.mark.slow
def test_a_wrong_release_is_named(run):
    done = run(release="0.1.0")
    assert done.returncode == 2
    assert "the plugin does not act" in done.stderr
    assert "vLLM 0.1.0" in done.stderr


@pytest.fixture
def here(monkeypatch):
    """The example in this process, where `vllm` seems to be installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        example.importlib.util, "find_spec", lambda name: name == "vllm" or found(name)
    )
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    return monkeypatch


def error_of(capsys, *words):
    assert example.main([*map(str, words)]) == 2
    return capsys.readouterr().err


def test_without_vllm(monkeypatch, model, capsys):
    monkeypatch.setattr(example.importlib.util, "find_spec", lambda _: None)
    assert "has no vllm; expected vLLM 0.33.0" in error_of(capsys, "--model", model)


@pytest.mark.usefixtures("here")
def test_without_a_model(tmp_path, capsys):
    text = error_of(capsys, "--model", tmp_path / "nothing")
    assert f"--model {tmp_path / 'nothing'} has no config.json" in text


def test_without_leave_of_vllm(here, model, capsys):
    here.setenv("VLLM_PLUGINS", "lora,others")
    assert "VLLM_PLUGINS='lora,others' leaves out bt_kernels" in error_of(capsys, "--model", model)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--prompts", "{folder}/no.txt", "No such file"),
        ("--prompts", "{folder}/empty.txt", "is empty; expected a prompt a line"),
        ("--option", "max_model_len", "expected NAME=VALUE"),
        ("--json", "{folder}/no/out.json", "cannot be written: No such file"),
        ("--json", "{folder}", "is a folder; expected a file"),
    ],
)
def test_bad_options(model, tmp_path, capsys, option, value, says):
    (tmp_path / "empty.txt").write_text("\n\n")
    assert says in error_of(capsys, "--model", model, option, value.format(folder=tmp_path))


@pytest.mark.usefixtures("here")
def test_a_process_that_dies(model, capsys, monkeypatch):
    monkeypatch.setattr(example.sys, "executable", "/bin/false")
    assert "with BT_KERNELS=off ended with exit code 1" in error_of(capsys, "--model", model)


COUNTS = {"tables": 1, "steps": 3, "fused": 3, "deferred": 3, "compared": 0, "failures": 0}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tables": 0}, "replaced no block tables: its entry point was not loaded"),
        ({"fused": 0, "deferred": 0}, "vLLM's class made the steps"),
        ({"failures": 1}, "vLLM's class made the steps"),
    ],
)
def test_a_plugin_that_did_nothing_makes_the_comparison_void(monkeypatch, model, changes, says):
    from types import SimpleNamespace

    from bt_kernels.engines import plugin

    output = SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1])])
    engine = SimpleNamespace(generate=lambda *_: [output])
    vllm = SimpleNamespace(
        __version__="0.33.0", LLM=lambda **_: engine, SamplingParams=lambda **_: None
    )
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(example, "time_calls", lambda _: example.HostTimes())
    monkeypatch.setattr(plugin, "load", lambda: None)
    monkeypatch.setattr(plugin, "counters", lambda: COUNTS | changes)
    args = example.parse(["--model", str(model), "--arm", "on"])
    with pytest.raises(example.VoidError, match=says):
        example.generate(args)


def arm(*ids, times=(9.0, 2.0, 4.0, 3.0), **more):
    repetitions = [
        {"token_ids": list(ids), "us_per_output_token": time, "host_us_per_step": time, "steps": 1}
        for time in times
    ]
    return {"release": "0.33.0", "repetitions": repetitions, "counters": None, **more}


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (([1, 2, 3], [4, 5]), None),
        (([1, 2, 3], [4, 6]), (1, 1, [5], [6])),
        (([1, 2], [4, 5]), (0, 2, [3], [])),
    ],
)
def test_the_first_difference(other, place):
    found = example.first_difference(arm([1, 2, 3], [4, 5]), arm(*other))
    if place is None:
        assert found is None
    else:
        assert (found["prompt"], found["token"], found["off"], found["on"]) == place


def test_the_first_repetition_is_not_timed():
    assert example.spread(arm([1]), "us_per_output_token") == "3.0 (2.0 to 4.0)"
    assert example.spread(arm([1], times=(1.0, None)), "host_us_per_step") == "–"


def test_only_outermost_calls_are_timed():
    host = example.HostTimes()
    inner = host.timed("settle", lambda: None)
    outer = host.timed("apply_staged_writes", inner)
    outer()
    inner()
    assert (host.steps, host.inside) == (1, False)
    with pytest.raises(ZeroDivisionError):
        host.timed("append_block_ids", lambda: 1 / 0)()
    assert not host.inside


def test_it_says_that_it_was_not_run_with_an_engine():
    assert "We have not run it with a real\nengine" in example.__doc__
