"""What is read from the lines of ptxas."""

from __future__ import annotations

from bt_bench.analysis.code.ptxas import Usage, read_usage, read_version

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'slots_kernel' for 'sm_80'
ptxas info    : Function properties for slots_kernel
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 72 registers, used 0 barriers, 416 bytes cmem[0]
ptxas info    : Compile time = 19.963 ms
"""
CALLED = """ptxas info    : Function properties for called
    32 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


def test_usage():
    assert read_usage(LOG) == Usage(registers=72, spill_bytes=28, stack_bytes=8)
    assert read_usage(CALLED + LOG) == Usage(registers=72, spill_bytes=36, stack_bytes=40)


def test_a_log_without_figures_is_none():
    assert read_usage("") is None
    assert read_usage(LOG.replace("Used", "Took")) is None
    assert read_usage(LOG.replace("spill", "other")) is None


def test_version():
    text = "ptxas: NVIDIA (R)\nCuda compilation tools, release 12.9, V12.9.86\nBuild cuda_12.9\n"
    assert read_version(text) == "12.9.86"
    assert read_version(" unknown \n") == "unknown"
