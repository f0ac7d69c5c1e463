"""vLLM's own tests of its `BlockTables` pass with ours; see `support.vllm_own_tests`.

They are in vLLM's source distribution, and not copied here:

    pip download vllm==0.33.0 --no-deps --no-binary :all:
    BT_BENCH_VLLM_SDIST=vllm-0.33.0 python -m pytest tests/kernels/engines
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

TESTS = Path(__file__).parents[2]
LEAST = 16
"""Tests that the file of 0.33.0 has of this class, with all their parameters."""


def outcomes(folder):
    """Results of the tests by name, and the output: `None`, or why it was skipped or failed."""
    folder_of_tests = os.environ["TEST_VLLM_SDIST"]
    if not folder_of_tests:
        pytest.skip("needs vLLM's unpacked source distribution: BT_BENCH_VLLM_SDIST=DIR")
    file = Path(folder_of_tests) / FILE
    if not file.is_file():
        pytest.skip(f"BT_BENCH_VLLM_SDIST={folder_of_tests} has no {FILE}, as of vLLM 0.33.0")
    report = folder / "report.xml"
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "--noconftest", "-q")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *options, "-p", "support.vllm_own_tests"),
            *("-c", os.devnull, f"--rootdir={file.parent}", f"--junitxml={report}", str(file)),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.is_file(), done.stdout + done.stderr
    cases = [case for suite in JUnitXml.fromfile(str(report)) for case in suite]
    return {case.name: case.result for case in cases}, done.stdout


def hold(folder):
    results, output = outcomes(folder)
    assert results, output
    others = {name for name in results if re.sub(r"\[.*", "", name) in OTHERS}
    wrong = {name for name, result in results.items() if result and name not in others}
    assert not wrong, output
    assert len(results) - len(others) >= LEAST


def test_they_pass_under_the_interpreter(tmp_path):
    hold(tmp_path)


@pytest.mark.gpu
def test_they_pass_on_a_gpu(tmp_path):
    hold(tmp_path)
