"""Nsight Compute's program: found or not, its version, its command, and what its errors mean."""

from __future__ import annotations

import pytest
from support.ncu import fake_ncu

from bt_bench.base.errors import UsageError
from bt_bench.results import Cache
from bt_bench.runs.profile.ncu_tool import Ncu, find_ncu, ncu_command, why_no_report


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder on `PATH`, beside those that bash needs, in which there is no ncu yet."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_found_on_the_path_or_where_it_is_installed(path, tmp_path):
    for version in ("2024.1", "2025.10", "2025.9"):
        fake_ncu(tmp_path / "nsight" / version / "ncu", f"{version}.0.0")
    patterns = [f"{tmp_path}/cuda/ncu", f"{tmp_path}/nsight/*/ncu"]
    newest = tmp_path / "nsight" / "2025.10" / "ncu"
    assert find_ncu(patterns) == Ncu(newest, "2025.10.0.0")
    first = fake_ncu(path / "ncu")
    assert find_ncu(patterns) == Ncu(first, "2025.3.1.0")


def test_its_module_is_beside_it_or_in_its_toolkit(tmp_path):
    program = fake_ncu(tmp_path / "cuda-13.0" / "bin" / "ncu")
    (tmp_path / "cuda-13.0" / "nsight-compute-2025.3.1").mkdir()
    folders = Ncu(program, "2025.3.1.0").modules
    assert folders[0] == program.parent / "extras" / "python"
    assert folders[1] == tmp_path / "cuda-13.0/nsight-compute-2025.3.1/extras/python"


def test_a_missing_one_says_what_to_do(path, tmp_path):
    with pytest.raises(UsageError, match=r"ncu is neither on PATH nor at .*cuda/ncu; install"):
        find_ncu([f"{tmp_path}/cuda/ncu"])


@pytest.mark.parametrize("version", ["2022.4.1.0", "2023.2.9.0"])
def test_one_that_is_too_old(path, version):
    fake_ncu(path / "ncu", version)
    with pytest.raises(UsageError, match=rf"{version}, which is too old; expected 2023.3 or newer"):
        find_ncu([])


def test_one_that_does_not_say_its_version(path):
    fake_ncu(path / "ncu").write_text("#!/bin/bash\necho broken library >&2\n")
    with pytest.raises(UsageError, match=r"--version names no version: broken library"):
        find_ncu([])


def test_the_command(tmp_path):
    ncu = Ncu(tmp_path / "ncu", "2025.3.1.0")
    ranges = ["fused.step.a=1", "my+own.step.a=1"]
    given = (ncu, tmp_path / "report.ncu-rep", ranges)
    hot = ncu_command(*given, Cache.HOT, 128, ["python", "-m", "x"])
    text = " ".join(hot)
    assert "--clock-control none --cache-control none" in text
    assert "--nvtx --nvtx-include regex:bt_bench@fused.step.a=1/" in text
    # A character that has a meaning in a regular expression or a filter is none of it.
    assert "--nvtx-include regex:bt_bench@my.own.step.a=1/" in text
    assert f"--launch-count 128 --export {tmp_path}/report python -m x" in text
    cold = ncu_command(*given, Cache.COLD, 128, ["python"])
    assert cold[cold.index("--cache-control") + 1] == "all"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
            "may not read this GPU's counters .*run as root",
        ),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded",
            "cannot be initialised here",
        ),
        (
            "==ERROR== Driver resource was unavailable. Ensure that no other tool",
            "another tool uses them",
        ),
        ("chatter\n==WARNING== No kernels were profiled.", "wrote no report: ==WARNING== No ker"),
        ("Segmentation fault", "wrote no report: Segmentation fault"),
        ("", "wrote no report: it printed nothing"),
    ],
)
def test_what_its_errors_mean(tmp_path, printed, expected):
    error = why_no_report(Ncu(tmp_path / "ncu", "2025.3.1.0"), printed)
    with pytest.raises(UsageError, match=expected):
        raise error
