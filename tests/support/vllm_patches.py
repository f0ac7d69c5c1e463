"""Copies of vLLM 0.33.0 in which the patches of `bt-bench patch` are applied.

Nothing of vLLM is in this repository: BT_BENCH_VLLM_SOURCE and BT_BENCH_VLLM_SDIST name the folders
of its unpacked wheel and source distribution. Without them the tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.commands import run
from support.vllm_tree import GPU, copy_tree

RELEASE = "0.33.0"


def wheel():
    for folder in filter(None, os.environ["TEST_VLLM_SOURCE"].split(os.pathsep)):
        if (Path(folder) / f"vllm-{RELEASE}.dist-info").is_dir():
            return Path(folder)
    return pytest.skip(f"needs an unpacked wheel of vLLM {RELEASE}: BT_BENCH_VLLM_SOURCE=DIR")


def sdist():
    folder = os.environ["TEST_VLLM_SDIST"]
    if not (Path(folder) / GPU).is_dir() or not folder:
        pytest.skip(f"needs vLLM's source distribution, {RELEASE}: BT_BENCH_VLLM_SDIST=DIR")
    return Path(folder)


def patches(source, folder):
    """Write the patches of a copy; return their paths and `bt-bench`'s document."""
    outcome = run(
        "patch", "--for", f"vllm=={RELEASE}", "--source", source, "--out", folder, "--json"
    )
    assert outcome.code == 0, outcome
    found = outcome.json()["patches"]
    return [Path(patch["path"]) for patch in found], found


def patched(source, folder):
    """Copy what the patches change, and apply them with git."""
    paths, _ = patches(source, folder / "patches")
    root = copy_tree(source, folder / "tree")
    for path in paths:
        apply(root, path)
    return root


def apply(root, path, *options):
    subprocess.run(["git", "apply", *options, str(path)], cwd=root, check=True, capture_output=True)
