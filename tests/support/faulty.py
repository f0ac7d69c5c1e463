"""Variants with a fault that takes down more than a call: for tests of isolation.

Each is the separate launches with one method that does something terrible, at once or after some
calls that are right, so that the fault falls into the check or into the timed rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GATHER = "gather_block_tables"


@dataclass(frozen=True)
class Fault:
    """A fault: `imports` and `kernel` are source of the file, `body` that of the fault.

    Args:
        what: what happens.
        imports: import lines.
        body: lines of a method of the variant.
        kernel: a Triton kernel, for faults that need a GPU.
        needs_gpu: whether it happens on a GPU only.
    """

    what: str
    imports: str
    body: str
    kernel: str = ""
    needs_gpu: bool = False


FAULTS = {
    "illegal_address": Fault(
        "a kernel stores outside of any allocation; the CUDA context is lost",
        "import triton\nimport triton.language as tl",
        "stray_kernel[(1,)](16)",
        '''@triton.jit(do_not_specialize=["address"])
def stray_kernel(address):
    """Stores to the first page, which nobody ever has."""
    tl.store(address.to(tl.int64).to(tl.pointer_type(tl.int32)), 1)
''',
        needs_gpu=True,
    ),
    "spins": Fault(
        "a kernel spins for 60 s",
        "import triton\nfrom triton.language.extra.cuda import globaltimer",
        "spin_kernel[(1,)](60_000_000_000)",
        '''@triton.jit
def spin_kernel(duration_ns):
    """Reads the device's clock until the time is over."""
    end = globaltimer() + duration_ns
    now = globaltimer()
    while now < end:
        now = globaltimer()
''',
        needs_gpu=True,
    ),
    "asks_twice": Fault(
        "asks for twice the memory of the device",
        "import torch",
        "total = torch.cuda.get_device_properties(self.device).total_memory\n"
        "torch.empty(2 * total, dtype=torch.uint8, device=self.device)",
        needs_gpu=True,
    ),
    "kills_itself": Fault(
        "the process ends by SIGKILL",
        "import os\nimport signal",
        "os.kill(os.getpid(), signal.SIGKILL)",
    ),
    "sleeps": Fault("sleeps for 60 s", "import time", "time.sleep(60)"),
    "segfaults": Fault(
        "the process ends by SIGSEGV, from a read of address 0",
        "import ctypes",
        "ctypes.string_at(0)",
    ),
    "memory_error": Fault("raises MemoryError", "", 'raise MemoryError("no room for the tables")'),
}

_TEMPLATE = '''\
"""Faulty: {what}."""

{imports}
from bt_kernels.device_tables import DeviceBlockTables

{kernel}
calls = 0  # of all tables in the process


class Variant(DeviceBlockTables):
    """Right in its first {after} calls of `{method}`."""

    def {method}(self, *args, **kwargs):
        global calls
        calls += 1
        if calls > {after}:
            self._fail()
        return super().{method}(*args, **kwargs)

    def _fail(self):
{body}
'''


def write_faulty(
    folder: Path, name: str, *, method: str = GATHER, after: int = 0, variant: str | None = None
) -> Path:
    """Writes the file of a faulty variant; returns `folder`, as `--kernels` takes it.

    Args:
        folder: where to; it is made if need be.
        name: one of `FAULTS`.
        method: the method with the fault; `gather`, `gather_slots` and `step` all call the
            default one once.
        after: calls of the method that are right before, counted over all tables of a process.
        variant: the variant's name, `name` if left out.
    """
    fault = FAULTS[name]
    text = _TEMPLATE.format(
        what=fault.what,
        imports=fault.imports,
        kernel=f"\n{fault.kernel}\n" if fault.kernel else "",
        method=method,
        after=after,
        body="\n".join(f"        {line}" for line in fault.body.splitlines()),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{variant or name}.py").write_text(text, encoding="utf-8")
    return folder
