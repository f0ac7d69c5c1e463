"""What was compiled is kept as long as all that it was made of is as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bt_bench.config import load_config
from bt_bench.results import CensusCase, OperationCensus, StaticCensus, Toolchain, VariantCensus
from bt_bench.variants import find_variants
from bt_bench.worker.compiling import kept
from bt_bench.worker.compiling.census import Compiled


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Asks for what is compiled of a variant; returns how often that took the compiler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "kernels"
    folder.mkdir()
    helper = tmp_path / "helper.py"
    helper.write_text("SIZE = 1\n", encoding="utf-8")
    (folder / "mine.py").write_text('"""Mine."""\n', encoding="utf-8")
    calls: list[str] = []
    failure: list[str | None] = [None]

    def compile_cases(spec, entries, targets, on_traceback=None, code=False):
        calls.extend(entry.name for entry in entries)
        failed = failure[0]
        of = OperationCensus(operation="step", case="one", target="sm_90", failure=failed)
        variants = [
            VariantCensus(name=entry.name, host_code="0" * 16, operations=[of], kernels=[])
            for entry in entries
        ]
        census = StaticCensus(
            config=spec.name,
            toolchain=Toolchain(triton="3", ptxas={}, settings={}),
            cases=[CensusCase(name="one", workload="w")],
            variants=variants,
        )
        return Compiled(census, {entry.name: [str(helper)] for entry in entries})

    monkeypatch.setattr(kept, "compile_cases", compile_cases)

    def ask(*names, targets=("sm_90",), overrides=()):
        spec = load_config("quick", overrides=overrides)
        found = find_variants([folder])
        before = len(calls)
        census = kept.take_code_census(spec, [found[name] for name in names], targets)
        assert [variant.name for variant in census.variants] == list(names)
        return calls[before:]

    ask.folder, ask.helper, ask.failure = folder, helper, failure
    return ask


@pytest.mark.parametrize("name", ["DISABLE_PTXAS_OPT", "PTXAS_OPTIONS", "DISABLE_LLVM_OPT"])
def test_what_is_compiled_by_other_settings_is_not_what_is_kept(compiled, monkeypatch, name):
    assert compiled("mine") == ["mine"]
    monkeypatch.setenv(name, "1")
    assert compiled("mine") == ["mine"]
    monkeypatch.delenv(name)
    assert compiled("mine") == []


def test_only_what_is_not_kept_is_compiled(compiled):
    assert compiled("mine") == ["mine"]
    assert compiled("mine") == []
    assert compiled("fused", "mine") == ["fused"]


def test_what_makes_it_count_no_more(compiled, monkeypatch):
    compiled("mine")
    assert compiled("mine", targets=("sm_80",)) == ["mine"]
    assert compiled("mine", overrides=["max_num_reqs=128"]) == ["mine"]
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    assert compiled("mine") == ["mine"]
    monkeypatch.delenv("TRITON_F32_DEFAULT")
    assert compiled("mine") == []
    compiled.helper.write_text("SIZE = 2\n", encoding="utf-8")
    assert compiled("mine") == ["mine"]
    (compiled.folder / "mine.py").write_text('"""Other."""\n', encoding="utf-8")
    assert compiled("mine") == ["mine"]


def test_what_failed_is_not_kept(compiled):
    compiled.failure[0] = "it does not compile"
    assert compiled("mine") == ["mine"]
    assert compiled("mine") == ["mine"]


def test_what_is_damaged_or_cannot_be_kept_is_compiled_again(compiled, tmp_path, monkeypatch):
    compiled("mine")
    (entry,) = (tmp_path / "cache").rglob("*.json")
    entry.write_text("{", encoding="utf-8")
    assert compiled("mine") == ["mine"]
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled("mine") == ["mine"]


def test_the_oldest_go_first(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_MOST_ENTRIES", 2)
    for target in ("sm_80", "sm_90", "sm_100"):
        compiled("mine", targets=(target,))
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 2
    assert compiled("mine", targets=("sm_100",)) == []
    assert Path(compiled.helper).is_file()


def test_what_is_no_file_is_passed_over(tmp_path):
    (tmp_path / "a.py").write_text("")
    before = kept._of_files(tmp_path.rglob("*.py"))
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / ".#lock.py").symlink_to("somebody@host.1")
    assert kept._of_files(tmp_path.rglob("*.py")) == before
