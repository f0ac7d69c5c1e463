"""Runs with other helpers in use: they say so, and are not compared with each other."""

from __future__ import annotations

import json

import pytest
from support.commands import run
from support.refusals import refused


def test_runs_without_the_helpers_in_c_are_told_and_not_compared(config, tmp_path, monkeypatch):
    native, python = tmp_path / "native", tmp_path / "python"
    sweep = ("sweep", config, "-k", "one", "--operations", "apply", "--variants", "fused", "--out")
    if not run("env", "--json").json()["helpers"]["staging_in_c"]["in_use"]:
        pytest.skip("the helpers in C are not in use here")
    run(*sweep, native)
    monkeypatch.setenv("BT_KERNELS_NATIVE", "0")
    swept = run(*sweep, python)
    fallback = "staging in C is not in use (the environment has BT_KERNELS_NATIVE=0; unset it)"
    assert f"warning: {fallback}, so staging takes several times longer" in swept.err
    assert f"Warning: {fallback}" in " ".join(swept.out.split())
    assert "Helpers in use: NVTX; not in use: staging in C." in " ".join(swept.out.split())
    assert f"Warning: {fallback}" in " ".join((python / "comparison.md").read_text().split())

    files = [folder / "fused.json" for folder in (native, python)]
    message = refused("compare", *files, code=4)
    assert "staging in C in use against not in use" in message
    assert "--ignore-helpers" in message
    allowed = run("compare", *files, "--ignore-helpers", "--fail-on", "none", "--json").json()
    assert any("differ, as allowed: staging in C" in text for text in allowed["warnings"])

    assert "was started with other helpers" in refused("sweep", "--resume", native)

    earlier = json.loads(files[0].read_text())
    del earlier["environment"]["helpers"]
    files[0].write_text(json.dumps(earlier))
    compared = run("compare", *files, "--fail-on", "none", "--json")
    assert any("not known which helpers" in text for text in compared.json()["warnings"])


def test_a_variant_that_does_without_them_by_itself_is_compared_with_a_warning(config, tmp_path):
    (tmp_path / "slow.py").write_text(
        "from bt_kernels.variants.fused import Variant as Fused\n\n\n"
        "class Variant(Fused):\n    native = False\n"
    )
    out, sides = tmp_path / "run", ("--variants", "fused,slow", "--kernels", tmp_path)
    assert (
        run("sweep", config, "-k", "one", "--operations", "apply", *sides, "--out", out).code == 0
    )
    stored = [json.loads((out / f"{name}.json").read_text()) for name in ("fused", "slow")]
    assert [each["variant"]["native"] for each in stored] == [True, False]
    compared = run("compare", out, "--fail-on", "none", "--json").json()
    assert any(
        text.startswith("slow: the variant itself does without the helpers in C")
        for text in compared["warnings"]
    )
    assert "slow: the variant itself does without" in " ".join(run("compare", out).out.split())
