"""The harness's own kernels: interpreted where they can be, and timed on a GPU."""

from __future__ import annotations

import pytest
import torch

from bt_bench.worker.measuring import device_kernels
from bt_bench.worker.measuring.device_kernels import (
    FLUSH_KERNEL_NAME,
    SPIN_KERNEL_NAME,
    CacheFlush,
    CacheReader,
    launch_null,
    launch_spin,
)


@pytest.mark.parametrize("cache_bytes", [4, 10_000, 100_001])
def test_a_flush_writes_all_of_twice_the_cache(cache_bytes):
    flush = CacheFlush(cache_bytes, "cpu")
    assert 2 * cache_bytes <= flush.flushed_bytes < 2 * cache_bytes + 4
    flush._buffer.fill_(7)
    flush()
    assert flush._buffer.numel() * 4 == flush.flushed_bytes
    assert not flush._buffer.any()


@pytest.mark.parametrize(
    ("cache_bytes", "read_bytes"), [(1 << 18, 1 << 16), (1 << 30, 8 << 20), (5, 4096 * 4)]
)
def test_a_read_fits_into_the_cache(cache_bytes, read_bytes):
    assert CacheReader(cache_bytes, "cpu").read_bytes == read_bytes


def test_a_read_reads_everything():
    reader = CacheReader(1 << 18, "cpu")
    reader()
    assert int(reader.sums.sum()) * 4 == reader.read_bytes


def test_an_empty_kernel_can_be_launched_anywhere():
    launch_null()


def test_names_are_those_that_a_profile_shows():
    for name in (SPIN_KERNEL_NAME, FLUSH_KERNEL_NAME):
        assert getattr(device_kernels, name).__name__ == name


@pytest.mark.gpu
@pytest.mark.parametrize("duration_ns", [1, 16, 100_000])
def test_every_length_is_of_one_binary(device, duration_ns):
    launch_spin(7)
    caches = device_kernels.bt_bench_spin_kernel.device_caches[torch.cuda.current_device()]
    before = len(caches[0])
    launch_spin(duration_ns)
    assert len(caches[0]) == before


@pytest.mark.gpu
@pytest.mark.alone
def test_a_spin_lasts_as_long_as_asked(device):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in "12")
    launch_spin(1000)
    torch.cuda.synchronize()
    start.record()
    launch_spin(5_000_000)
    end.record()
    torch.cuda.synchronize()
    assert 5.0 <= start.elapsed_time(end) < 6.0


@pytest.mark.gpu
def test_the_cache_is_that_of_the_device(device):
    flush = CacheFlush()
    assert flush.l2_bytes == torch.cuda.get_device_properties(device).L2_cache_size
    assert flush.flushed_bytes >= 2 * flush.l2_bytes
