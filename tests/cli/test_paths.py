"""Files of the user are found from any folder, whatever they are called."""

from __future__ import annotations

import json
import os

import pytest
from support.commands import ONE_CHECK, TINY, run, run_apart
from support.forked import workers_forked
from support.refusals import refused

from bt_bench.results.files.reading import read_run

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,3\n"
CONFIG = f"""\
{TINY.partition("cases:")[0].replace("fused", "mine")}
kernels: kernels
cases: [{{name: a, workload: trace, trace: load.csv, window: {{steps: 2}}}}]
"""


def test_a_run_is_resumed_from_elsewhere(tmp_path, monkeypatch):
    folder, out = tmp_path / "bench", tmp_path / "run"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "mine.py").write_text("from bt_kernels.variants.fused import Variant\n")
    (folder / "load.csv").write_text(TRACE)
    (folder / "tiny.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    outcome = run("sweep", "bench/tiny.yaml", "--out", out)
    assert outcome.code == 0, outcome.err

    cut = json.loads((out / "mine.json").read_text())
    cut |= {"cases": cut["cases"][:1], "complete": False}
    (out / "mine.json").write_text(json.dumps(cut))
    monkeypatch.chdir("/")
    outcome = run("sweep", folder / "tiny.yaml", "--resume", out)
    assert outcome.code == 0, outcome.err
    assert all(result.complete and len(result.cases) == 2 for result in read_run(out))


ODD = os.fsdecode(b"k\xff")  # no text in UTF-8 has this
MINE = "from bt_kernels.variants.fused import Variant\n"


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """The working directory, with a config and variants in a folder whose name is not UTF-8."""
    try:
        (tmp_path / ODD).mkdir()
    except OSError:
        pytest.skip("names of files are UTF-8 here")
    (tmp_path / ODD / "mine.py").write_text(MINE)
    (tmp_path / ODD / "wrong.py").write_text("import nowhere_at_all\n")
    (tmp_path / ODD / "tiny.yaml").write_text(TINY.replace("fused", "mine"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_that_are_not_utf8_are_names(odd):
    config, out = f"{ODD}/tiny.yaml", f"{ODD}/run"
    prologue = ONE_CHECK + workers_forked()
    bytewise = {"errors": "surrogateescape", "prologue": prologue, "forked": True}
    swept = run_apart("sweep", config, "--kernels", ODD, "--out", out, **bytewise)
    assert swept.code == 0, swept.err
    for line in ("Results: ", "Next: "):
        assert line in swept.out
    resumed = run_apart("sweep", "--resume", out, "--kernels", ODD, **bytewise)
    assert resumed.code == 0, resumed.err
    results = read_run(odd / out)
    assert [result.variant.name for result in results] == ["baseline", "mine"]
    # What is stored can be read by anyone.
    assert '"--kernels","k\\\\udcff"' in (odd / out / "mine.json").read_text()
    for arguments in (["--format", f"md={ODD}/compared.md"], ["--json"], ["--format", "junit"]):
        outcome = run("compare", out, "--fail-on", "none", *arguments)
        assert "Traceback" not in outcome.err
        assert outcome.code in (0, 4, 5), outcome.err
    assert (odd / ODD / "compared.md").exists()


def test_so_they_are_to_commands_that_only_look(odd):
    for command in (["list", "--kernels", ODD], ["workload", f"{ODD}/tiny.yaml"]):
        assert run(*command).code == 0
    checked = run("check", f"{ODD}/tiny.yaml", "--kernels", ODD, "--explore", "0")
    assert checked.code == 0, checked.err
    assert "wrong.py:1: the variant file does not import" in refused(
        "check", f"{ODD}/tiny.yaml", "--kernels", ODD, "--variants", "wrong"
    )
    assert "does not exist" in refused("compare", f"{ODD}/none.json")


def test_so_they_are_to_the_static_gate(odd):
    static = ("gate", "--static", "--config", f"{ODD}/tiny.yaml", "--kernels", ODD)
    refused = run(*static, "--variants", "wrong", "--save", f"{ODD}/census.json")
    assert refused.code == 2
    assert f"{ascii(ODD)[1:-1]}/wrong.py:1: the variant file does not import" in refused.err
    assert "Traceback" not in refused.err
