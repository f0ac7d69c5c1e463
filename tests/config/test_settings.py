"""`[tool.bt-bench]` of a pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.config.settings import Settings, read_settings


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "pyproject.toml"


def test_all_keys_from_a_folder_below(project):
    project.write_text(
        '[tool.bt-bench]\nreports = "out"\ndevice = "cuda"\nkernels = ["a", "b/c"]\n'
    )
    below = project.parent / "src" / "deep"
    below.mkdir(parents=True)
    assert read_settings(below) == Settings(
        reports=project.parent / "out",
        device="cuda",
        kernels=(project.parent / "a", project.parent / "b" / "c"),
        source=project,
    )


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'", "[tool.other]\na = 1", "tool = 3"])
def test_nothing_set(project, text):
    project.write_text(text)
    assert read_settings(project.parent) == Settings(source=project)


def test_the_nearest_file_counts(project):
    project.write_text('[tool.bt-bench]\ndevice = "cuda"\n')
    (project.parent / "near").mkdir()
    (project.parent / "near" / "pyproject.toml").write_text("")
    assert read_settings(project.parent / "near").device is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = =", ":1:5: not valid TOML: Invalid value"),
        ("tool.bt-bench = 3", ": tool.bt-bench is 3; expected a table"),
        (
            "[tool.bt-bench]\nreport = 'x'",
            ": unknown key 'report' in [tool.bt-bench]; did you mean 'reports'?",
        ),
        (
            "[tool.bt-bench]\nreports = 3",
            ": tool.bt-bench.reports is 3; expected the path of a folder",
        ),
        (
            "[tool.bt-bench]\nreports = ''",
            ": tool.bt-bench.reports is ''; expected the path of a folder",
        ),
        (
            "[tool.bt-bench]\ndevice = 'gpu'",
            ": tool.bt-bench.device is 'gpu'; expected auto, cuda, cpu, cuda:N for the GPU of "
            "index N, counted from 0, or the UUID of a GPU or of a MIG instance, as nvidia-smi "
            "-L lists it (GPU-…, MIG-…)",
        ),
        (
            "[tool.bt-bench]\nkernels = 'x'",
            ": tool.bt-bench.kernels is 'x'; expected a list of paths of folders",
        ),
    ],
)
def test_refused(project, text, expected):
    project.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_settings(project.parent)
    assert str(caught.value) == f"{project}{expected}"


def test_all_errors_at_once(project):
    project.write_text("[tool.bt-bench]\ndevice = 1\nkernels = [2]\n")
    with pytest.raises(UsageError) as caught:
        read_settings(project.parent)
    assert len(str(caught.value).splitlines()) == 2


def test_not_utf_8(project):
    project.write_bytes(b"# \xff")
    with pytest.raises(UsageError) as caught:
        read_settings(project.parent)
    assert str(caught.value) == f"{project}: not UTF-8 at byte 2; expected TOML"
