"""Disassembly of compiled kernels, in threads: nvdisasm takes a third of a second for each."""

from __future__ import annotations

import struct
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bt_bench.analysis.code.sass import read_code
from bt_bench.base.errors import UsageError
from bt_bench.results import KernelCode

_THREADS = 2
_SECONDS = 120
# 64-bit ELF, as (offset, format). In the header: the section table's place; the size and number of
# its entries, and the index of the section of names. In an entry: its name; its offset and size.
_TABLE, _ENTRIES = (0x28, "<Q"), (0x3A, "<HHH")
_NAME, _PLACE = (0x0, "<I"), (0x18, "<QQ")
_CODE = b".text."


def code_of(binary: bytes) -> bytes:
    """Return the `.text` sections of a cubin, without line info.

    Raises:
        ValueError: if `binary` is not a cubin.
    """
    try:
        (table,) = struct.unpack_from(_TABLE[1], binary, _TABLE[0])
        size, number, names_at = struct.unpack_from(_ENTRIES[1], binary, _ENTRIES[0])
        sections = []
        for at in range(table, table + size * number, size):
            (name,) = struct.unpack_from(_NAME[1], binary, at + _NAME[0])
            offset, length = struct.unpack_from(_PLACE[1], binary, at + _PLACE[0])
            sections.append((name, binary[offset : offset + length]))
        names = sections[names_at][1]
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a cubin: {error}") from None
    return b"".join(code for name, code in sections if names[name:].startswith(_CODE))


class Disassembler:
    """A disassembler that works in threads of its own.

    Raises:
        UsageError: if Triton has no nvdisasm.
    """

    def __init__(self) -> None:
        from triton import knobs

        try:
            self._program = knobs.nvidia.nvdisasm.path
        except RuntimeError as error:
            raise UsageError(
                f"nvdisasm, which comes with Triton, was not found: {error}; set "
                "TRITON_NVDISASM_PATH to a CUDA toolkit's"
            ) from None
        self._pool = ThreadPoolExecutor(_THREADS)
        self._read: dict[str, Future[KernelCode]] = {}

    def begin(self, digest: str, ptx: Path, cubin: Path) -> None:
        """Begin to disassemble a kernel.

        Args:
            digest: the binary's digest.
            ptx: file with its PTX.
            cubin: file with its binary.
        """
        self._read[digest] = self._pool.submit(self._code, ptx, cubin)

    def code(self, digest: str) -> KernelCode:
        """Wait for a kernel's code, and return it.

        Raises:
            RuntimeError: if nvdisasm failed.
            subprocess.TimeoutExpired: if nvdisasm timed out.
        """
        return self._read[digest].result()

    def _code(self, ptx: Path, cubin: Path) -> KernelCode:
        command = [self._program, "-c", "-gp", "-hex", str(cubin)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(f"nvdisasm failed on {cubin.name}: {done.stderr.strip()}")
        return read_code(done.stdout, ptx.read_text(encoding="utf-8"))
