"""`bt-bench profile --tool static`: what was changed in a kernel is named."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from support.commands import run
from support.refusals import refused

MINE = '''
"""Launches one kernel more."""

import torch, triton
import triton.language as tl
from bt_kernels.fusions import FusedGatherSlots


@triton.jit
def probe_kernel(ids, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    first = tl.load(ids + at)
    second = tl.load(ids + first)
    tl.store(out + at, second)


class Variant(FusedGatherSlots):
    def _launch_apply(self, records_per_group):
        out = self.slot_mappings
        probe_kernel[(1,)](self.block_tables[0], out, BLOCK=128, num_warps=4)
'''
CONFIG = """
name: tiny
variants: [mine]
operations: [apply]
defaults: {max_num_reqs: 32, max_num_batched_tokens: 256, max_model_len: 1024}
cases: [{name: one, groups: 1, requests: 8, tokens: 64}]
"""
DEPENDENT = ("tl.load(ids + first)", "tl.load(ids + tl.load(ids + first))")
SPILLS = ("BLOCK=128, num_warps=4)", "BLOCK=2048, num_warps=1, maxnreg=32)")
COPY = ("        probe", "        out.copy_(out.clone())\n        probe")


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """Profiles the variant with some texts replaced; into a folder of the given name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "kernels").mkdir()
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG, encoding="utf-8")

    def profiled(name: str, *edits: tuple[str, str], more: tuple[object, ...] = ()):
        text = MINE
        for old, new in edits:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (tmp_path / "kernels" / "mine.py").write_text(text, encoding="utf-8")
        folder = tmp_path / name
        given = ("--kernels", tmp_path / "kernels", "--target", "sm_90", "--out", folder, *more)
        return folder, run("profile", config, "--tool", "static", *given)

    return profiled


def test_what_was_changed_is_named_without_being_told_where_to_look(profile):
    before, outcome = profile("before")
    assert outcome.code == 0, outcome.err
    assert "probe_kernel: chain mine.py:12 → mine.py:13; waits at mine.py:12, mine.py:13." in (
        " ".join(outcome.out.split())
    )
    assert outcome.err.count("compiling mine for sm_90") == 1
    assert {path.name for path in before.iterdir()} == {"census.json", "profile.md", "report.html"}
    against = ("--against", before)
    changes = {}
    for name, edit in (("dependent", DEPENDENT), ("spills", SPILLS), ("copy", COPY)):
        _, outcome = profile(name, edit, more=(*against, "--json"))
        assert outcome.code == 0, outcome.err
        changes[name] = {
            (change["where"], change["what"]): change
            for change in json.loads(outcome.out)["changes"]
        }
    dependent = changes["dependent"]["probe_kernel", "dependent loads"]
    assert (dependent["before"], dependent["after"], dependent["more"]) == ("2", "3", True)
    assert dependent["detail"] == "mine.py:12 → mine.py:13 → mine.py:13"
    assert changes["dependent"]["probe_kernel", "waits for loads"]["after"] == "3"
    spilled = changes["spills"]["probe_kernel", "bytes that a thread spills"]
    assert spilled["before"] == "0"
    assert int(spilled["after"]) > 0
    assert ("probe_kernel", "local stores") in changes["spills"]
    assert ("apply/one", "launches of torch.clone per step") in changes["copy"]
    assert not any(where == "probe_kernel" for where, _ in changes["copy"])
    # What is as it was is not compiled again, and nothing has changed in it.
    census = before / "census.json"
    census.with_name("census.json.xz").write_bytes(lzma.compress(census.read_bytes()))
    census.unlink()
    _, again = profile("again", more=against)
    assert "compiling" not in again.err
    assert "No launch and no figure of any kernel has changed." in again.out
    # What a page says of a spill, and that a kernel that does not compile fails.
    assert "spills" in (before.parent / "spills" / "profile.md").read_text(encoding="utf-8")
    _, outcome = profile("broken", ("tl.store(out + at, second)", "tl.nothing(out)"))
    assert outcome.code == 5
    assert "FAILED: mine, apply/one: a kernel does not compile" in outcome.out


CENSUS = Path(__file__).parents[3] / "reports" / "static" / "census.json"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "sm_99"], "unknown target 'sm_99'"),
        (["--against", CENSUS.parents[1]], "has no census.json; expected the folder of a profile"),
        (["--against", CENSUS], "is a census of a gate, which has no code of its kernels"),
        (["-k", "uniform_2grp"], "uniform_1grp"),
    ],
)
def test_refusals(options, message):
    assert message in refused("profile", "quick", "--tool", "static", *options)
