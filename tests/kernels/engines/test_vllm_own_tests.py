"""vLLM's own tests of its `BlockTables` pass with ours; see `support.vllm_own_tests`.

They are in vLLM's source distribution, and not copied here:

    pip download vllm==0.33.0 --no-deps --no-binary :all:
    BT_BENCH_VLLM_SDIST=vllm-0.33.0 python -m pytest tests/kernels/engines

Those of older releases pass with `OlderTables`; `tests/support/vllm_releases.py` fetches them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml
from support.vllm_own_tests import FILE, OTHERS

from bt_kernels.engines.plugin.releases import RELEASES

TESTS = Path(__file__).parents[2]
LEAST = 16
"""Tests that the file of 0.33.0 has of this class, with all their parameters."""


def file_in(variable, release, folder=""):
    """The file with the tests of a release."""
    folder_of_tests = os.environ[f"TEST_{variable}"]
    if not folder_of_tests:
        pytest.skip(f"needs vLLM's unpacked source distribution: BT_BENCH_{variable}=DIR")
    file = Path(folder_of_tests) / folder / FILE
    if not file.is_file():
        pytest.skip(f"BT_BENCH_{variable}={folder_of_tests} has no {FILE}, as of vLLM {release}")
    return file


def outcomes(folder, file, release):
    """Results of the tests by name, and the output: `None`, or why it was skipped or failed."""
    report = folder / "report.xml"
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "--noconftest", "-q")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *options, "-p", "support.vllm_own_tests"),
            *("-c", os.devnull, f"--rootdir={file.parent}", f"--junitxml={report}", str(file)),
        ],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "TEST_VLLM_RELEASE": release},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.is_file(), done.stdout + done.stderr
    cases = [case for suite in JUnitXml.fromfile(str(report)) for case in suite]
    return {case.name: case.result for case in cases}, done.stdout


def hold(folder, file=None, release="0.33.0", least=LEAST):
    file = file or file_in("VLLM_SDIST", release)
    results, output = outcomes(folder, file, release)
    assert results, output
    others = {name for name in results if re.sub(r"\[.*", "", name) in OTHERS}
    wrong = {name for name, result in results.items() if result and name not in others}
    assert not wrong, output
    assert len(results) - len(others) >= least


def test_they_pass_under_the_interpreter(tmp_path):
    hold(tmp_path)


@pytest.mark.parametrize("release", [name for name in RELEASES if name != "0.33.0"])
def test_those_of_older_releases_pass(tmp_path, release):
    least = sum(release >= added for added in ("0.25", "0.25", "0.27", "0.29", "0.31", "0.32"))
    hold(tmp_path, file_in("VLLM_RELEASES", release, release), release, least)


@pytest.mark.gpu
def test_they_pass_on_a_gpu(tmp_path):
    hold(tmp_path)
