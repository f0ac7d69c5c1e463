"""Paths in a config are relative to it, and those of flags to the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.config.dump import dump_config
from bt_bench.config.load import load_config

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,3\n"
CONFIG = """\
kernels: mine
defaults: {workload: trace, trace: load.csv}
cases: [{name: "{trace}_one"}]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a config, its trace and its variants; the working directory is beside it."""
    folder = tmp_path / "bench"
    (folder / "mine").mkdir(parents=True)
    (folder / "load.csv").write_text(TRACE)
    (folder / "my.yaml").write_text(CONFIG)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def trace_of(spec):
    return spec.cases[0].parameters.trace


@pytest.mark.parametrize("path", ["../bench/my.yaml", "absolute"])
def test_paths_are_relative_to_the_config(folder, path):
    spec = load_config(folder / "my.yaml" if path == "absolute" else path)
    assert Path(trace_of(spec)).samefile(folder / "load.csv")
    assert [Path(each).samefile(folder / "mine") for each in spec.kernels] == [True]
    assert Path(trace_of(spec)).is_absolute()
    assert Path(spec.kernels[0]).is_absolute()


def test_names_of_cases_spell_paths_as_they_are_written(folder):
    assert [case.name for case in load_config(folder / "my.yaml").cases] == ["load.csv_one"]


def test_a_bundled_trace_is_no_path(folder):
    spec = load_config(folder / "my.yaml", overrides=["trace=azure_code"])
    assert trace_of(spec) == "azure_code"
    assert spec.cases[0].parameters.files() == ()


def test_paths_of_flags_are_relative_to_the_working_directory(folder):
    Path("other.csv").write_text(TRACE)
    spec = load_config(folder / "my.yaml", overrides=["trace=other.csv"])
    assert trace_of(spec) == str(Path("other.csv").absolute())
    with pytest.raises(UsageError, match=r"elsewhere/load.csv' is not a file"):
        load_config(folder / "my.yaml", overrides=["trace=load.csv"])


def test_a_stored_config_loads_from_elsewhere(folder, tmp_path, monkeypatch):
    spec = load_config("../bench/my.yaml")
    stored = tmp_path / "run" / "config.yaml"
    stored.parent.mkdir()
    stored.write_text(dump_config(spec, stored.parent))
    monkeypatch.chdir("/")
    assert load_config(stored) == spec
    stored.rename(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == spec


def test_stdin_has_the_working_directory_as_its_folder(folder, monkeypatch):
    import io
    import sys
    from types import SimpleNamespace

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(CONFIG.encode())))
    assert Path(trace_of(load_config("-"))).samefile(folder / "load.csv")


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ("nowhere", "1:10: kernels has 'nowhere', which is not a folder; expected a folder of "),
        ("[mine, load.csv]", "1:17: kernels has 'load.csv', which is not a folder; expected"),
        ("3", "1:10: kernels is 3; expected the path of a folder, or a list of paths"),
        ("[mine, 3]", "1:17: kernels is ['mine', 3]; expected the path of a folder, or a list"),
        ("~no.such.user/x", "1:10: kernels has '~no.such.user/x', which is not a folder; "),
        ('"a\\0b"', "1:10: text has a control character; remove it"),
    ],
)
def test_folders_that_are_none_are_located(folder, kernels, message):
    (folder / "my.yaml").write_text(CONFIG.replace("mine", kernels, 1))
    with pytest.raises(UsageError) as caught:
        load_config("../bench/my.yaml")
    assert str(caught.value).startswith(f"../bench/my.yaml:{message}")


def test_a_missing_trace_is_named_with_its_whole_path(folder):
    (folder / "load.csv").unlink()
    with pytest.raises(UsageError, match=r"my.yaml:3:9: case .*bench/load.csv' is not a file"):
        load_config("../bench/my.yaml")
