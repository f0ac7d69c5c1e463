"""The copies of vLLM that are patched."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["wheel", "source distribution"])
def source(request):
    from support import vllm_patches  # not earlier: Triton must find its setting

    return (vllm_patches.wheel if request.param == "wheel" else vllm_patches.sdist)()
