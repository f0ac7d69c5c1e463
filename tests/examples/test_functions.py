"""The examples that are one file of functions: they are right, and wrong variants are rejected."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch
from examples.wrong_functions import EXAMPLES, FILES, SMALL, WRONG, text_of, wrong_text
from support.commands import run, run_apart
from support.forked import forked_suites


@pytest.fixture(autouse=True)
def _torch_is_imported_once():
    # And what torch imports once it is asked for deterministic algorithms, as for all inputs.
    with forked_suites("torch", "torch._inductor.config"):
        yield


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes an example, or one with a defect, into the working directory; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(file: str, text: str) -> str:
        (tmp_path / f"{file}.py").write_text(text, encoding="utf-8")
        return f"{file}.py"

    return write


def loaded(file: str):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(file, EXAMPLES / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", FILES)
def test_variants_are_right(written, file):
    name = written(file, text_of(file))
    outcome = run(
        "check", name, "--device", "cpu", "-k", SMALL[file], "--explore", "0", checks=None
    )
    assert outcome.code == 0, outcome
    for variant in ("baseline", "triton"):
        assert f"ok      {variant} · 2 checks of 2 workloads" in outcome.out


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_rejected(written, name):
    wrong = WRONG[name]
    words = ["--device", "cpu", "-k", SMALL[wrong.file], "--explore", "0", "--variants", "triton"]
    outcome = run("check", written(wrong.file, wrong_text(name)), *words, checks=None)
    assert outcome.code == 5, outcome
    assert wrong.code in outcome.out
    assert wrong.message in outcome.out


@pytest.mark.parametrize("file", FILES)
def test_several_chunks_and_tiles(file):
    """A case with more than one chunk or tile of heads, and numbers that are no powers of two."""
    module = loaded(file)
    given = {
        "moe_align": {"tokens": 151, "topk": 4, "experts": 60, "block_size": 16},
        "rotary_cache": {
            "tokens": 40, "requests": 2, "q_heads": 12, "kv_heads": 3, "max_position": 64,
        },
    }[file]  # fmt: skip
    benchmark = getattr(module, file)
    made = given | benchmark.make(**given)
    results = []
    for each in (benchmark.right, *benchmark.implementations.values()):
        own = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in made.items()}
        each.function(*(own[name] for name in each.parameters(list(own))))
        results.append(own)
    for other in results[1:]:
        for name in made:
            torch.testing.assert_close(other[name], results[0][name], rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("file", FILES)
def test_a_sweep_measures_the_variants(written, tmp_path, file):
    words = ["-k", SMALL[file], "--set", "plan.rounds=24", "--out", "r"]
    outcome = run_apart("sweep", written(file, text_of(file)), *words, cwd=tmp_path)
    assert outcome.code == 0, outcome
    for variant in ("baseline", "triton"):
        result = json.loads((tmp_path / "r" / f"{variant}.json").read_text(encoding="utf-8"))
        assert all(case["measurements"] for case in result["cases"])
