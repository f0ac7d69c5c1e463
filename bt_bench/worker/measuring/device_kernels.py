"""Kernels of the harness: an empty one, one of known length, and two for the L2.

Their names begin with `bt_bench_`, which sets them apart from the measured kernels in a profile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

SPIN_KERNEL_NAME = "bt_bench_spin_kernel"
FLUSH_KERNEL_NAME = "bt_bench_flush_kernel"

# Bytes written, relative to the size of the cache. A write of the same size would leave lines of
# the buffers in it, since the oldest lines are not always replaced first.
FLUSH_FACTOR = 2
LARGEST_READ_BYTES = 8 << 20
READ_SHARE = 4  # at most a quarter of the L2 is read, which has to stay in it

_WARP = 32  # threads
_HIDDEN_PARAMETERS = 8  # more than any version of Triton has

_BLOCK = 4096  # elements per program
_ELEMENT_BYTES = 4


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def bt_bench_null_kernel() -> None:
    """Do nothing; grid `(1,)`."""


@triton.jit(do_not_specialize=["duration_ns"])  # type: ignore[untyped-decorator]
def bt_bench_spin_kernel(duration_ns: tl.int64) -> None:
    """Occupy one warp until the device's clock has advanced by `duration_ns`; grid `(1,)`.

    Reading the clock is a volatile operation, which the compiler keeps in the loop.
    """
    start = globaltimer()
    now = start
    while now - start < duration_ns:
        now = globaltimer()


@triton.jit  # type: ignore[untyped-decorator]
def bt_bench_flush_kernel(target, num_elements, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Write all of `target`, int32; grid `(ceil(num_elements / BLOCK),)`."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.zeros([BLOCK], dtype=tl.int32), mask=offsets < num_elements)


@triton.jit  # type: ignore[untyped-decorator]
def bt_bench_read_kernel(source, sums, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Read `BLOCK` int32 of `source` per program and store their sum; grid `(programs,)`."""
    program = tl.program_id(0)
    values = tl.load(source + program * BLOCK + tl.arange(0, BLOCK))
    tl.store(sums + program, tl.sum(values))


_null: Any = bt_bench_null_kernel
_spin: Any = bt_bench_spin_kernel
_flush: Any = bt_bench_flush_kernel
_read: Any = bt_bench_read_kernel


def launch_null() -> Any:
    """Enqueue the empty kernel, and return Triton's handle of it."""
    return _null[(1,)]()


def direct_null() -> Callable[[], object]:
    """Return a driver call that enqueues the empty kernel on the stream that is current now.

    It is close to the least that a launch can cost the host. Triton's own call takes several times
    as long, and makes other CUDA calls on the way.
    """
    compiled = launch_null()
    call = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    call.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    # Triton passes addresses of scratch memory, which this kernel does not use. The driver does
    # not read surplus parameters.
    unused = (ctypes.c_uint64 * _HIDDEN_PARAMETERS)()
    places = [ctypes.addressof(unused) + 8 * index for index in range(_HIDDEN_PARAMETERS)]
    parameters = (ctypes.c_void_p * _HIDDEN_PARAMETERS)(*places)
    threads = int(compiled.metadata.num_warps) * _WARP
    stream = torch.cuda.current_stream().cuda_stream

    def launch(_: object = unused) -> object:  # `unused` has to live as long as the function
        return call(compiled.function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, None)

    return launch


def launch_spin(duration_ns: int) -> None:
    """Enqueue a kernel of one warp that spins for `duration_ns` from the moment it begins."""
    _spin[(1,)](duration_ns, num_warps=1)


def l2_bytes() -> int:
    """Return the L2 size of the current CUDA device, in bytes."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return int(properties.L2_cache_size)


def _nothing() -> None:
    """Do nothing: there is no L2 under the interpreter."""


def _reset_persisting_lines() -> Callable[[], object]:
    """Return a driver call that turns persisting lines of the L2 into normal ones.

    The call takes effect when it returns, regardless of any enqueued work.
    """
    reset: Callable[[], object] = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    return reset


class CacheFlush:
    """A flush of the L2: enqueues a write of twice its size, which leaves nothing else in it.

    Args:
        cache_bytes: size of the cache; by default, the L2 of the current CUDA device.
        device: where the written buffer is.
    """

    def __init__(self, cache_bytes: int | None = None, device: str = "cuda") -> None:
        self.l2_bytes = l2_bytes() if cache_bytes is None else cache_bytes
        num_elements = triton.cdiv(FLUSH_FACTOR * self.l2_bytes, _ELEMENT_BYTES)
        self._buffer = torch.empty(num_elements, dtype=torch.int32, device=device)
        self._grid = (triton.cdiv(num_elements, _BLOCK),)
        self._reset_persisting = _nothing if device == "cpu" else _reset_persisting_lines()
        self.flushed_bytes = num_elements * _ELEMENT_BYTES
        self()  # compiles here rather than in front of a timed call

    def __call__(self) -> None:
        """Reset the lines that a variant has made persist, then enqueue the write."""
        self._reset_persisting()
        _flush[self._grid](self._buffer, self._buffer.numel(), _BLOCK)


class CacheReader:
    """A read of some MiB by many programs: fast from the L2, slower from memory.

    Args:
        cache_bytes: size of the L2; by default, the L2 of the current CUDA device.
        device: where the buffer is.
    """

    def __init__(self, cache_bytes: int | None = None, device: str = "cuda") -> None:
        size = l2_bytes() if cache_bytes is None else cache_bytes
        block_bytes = _BLOCK * _ELEMENT_BYTES
        self._programs = max(1, min(LARGEST_READ_BYTES, size // READ_SHARE) // block_bytes)
        self.read_bytes = self._programs * block_bytes
        self._source = torch.ones(self._programs * _BLOCK, dtype=torch.int32, device=device)
        self.sums = torch.zeros(self._programs, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        """Enqueue the read."""
        _read[(self._programs,)](self._source, self.sums, _BLOCK)
