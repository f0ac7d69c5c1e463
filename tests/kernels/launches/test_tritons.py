"""Every release of Triton that is supported: kernels are compiled and launched against a stub.

Each is installed into a folder of its own, 200 MB from PyPI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRITONS = ("3.6.0", "3.7.0", "3.7.1", "3.8.0", "3.9.0")

# Operations of every variant, on a driver that has no GPU: kernels are compiled, and nothing runs.
# Each is prepared for direct launches, too. Prints the kernels, and the parts of a step that
# launches which carry writes were made for; then the same of a warm-up.
OPERATIONS = """
import sys
from importlib import import_module
from types import SimpleNamespace

import torch, triton
from triton.runtime import driver
from bt_bench.worker.compiling.driver import AheadDriver

launched = []
driver.set_active(AheadDriver([90], len, launched.append))

from bt_kernels import TableLayout, device_code
from bt_kernels.launches import paths

def leaves(value):
    return sum(map(leaves, value)) if isinstance(value, tuple) else value is not None

device = object()
place = SimpleNamespace(native=device, launcher=SimpleNamespace(Launch=lambda **given: given))
through_triton, found, parts = paths.launch_jit, set(), set()

def noting(kernel, grid, arguments, constants, inputs, num_warps=paths.NUM_WARPS):
    handle = through_triton(kernel, grid, arguments, constants, inputs, num_warps)
    direct = paths.direct_launch(place, handle, leaves(tuple(arguments)))
    assert direct["owner"] is handle, kernel
    assert direct["function"] > 0, kernel
    assert direct["device"] is device, kernel
    assert direct["threads"] == 32 * num_warps, kernel
    found.add(kernel.__name__)
    if kernel is device_code.one_launch_carrying_kernel:
        does = constants[-1]
        writes = does.where != device_code.NOTHING.value
        named = {"writes": writes, "gathers": does.gathers, "maps": does.maps}
        parts.add("+".join(name for name, is_done in named.items() if is_done))
    return handle

def tables_of(name):
    variant = import_module(f"bt_kernels.variants.{name}").Variant
    for module in list(sys.modules.values()):
        if getattr(module, "launch_jit", None) is through_triton:
            module.launch_jit = noting
    return variant(layout, "cpu")

def tell():
    assert {each.kernel for each in launched} == found
    print(*sorted(found))
    print(*sorted(parts))
    for noted in (launched, found, parts):
        noted.clear()

layout = TableLayout(
    block_sizes=(16, 64), widths=(8, 2), max_num_reqs=4, max_num_batched_tokens=16
)
names = ("baseline", "fused_apply", "fused_gather_slots", "fused", "one_launch", "one_launch_graph")
for tables in map(tables_of, names):
    mapping = torch.tensor([2])
    tokens = torch.tensor([0, 3], dtype=torch.int32), torch.tensor([15, 16, 17])
    tables.append_block_ids(2, [[7, 9], [5]], overwrite=True)
    tables.prepare_step(mapping, *tokens, num_reqs_padded=2, num_tokens_padded=4)
    tables.append_block_ids(2, [[8], []], overwrite=False)
    tables.apply_staged_writes()
    tables.gather_block_tables(mapping, 2)
    tables.compute_slot_mappings(mapping, *tokens, 4)
    tables.gather_and_compute_slot_mappings(mapping, *tokens, 2, 4)
print(triton.__version__)
tell()
tables_of("one_launch").warmup()
tell()
"""

KERNELS_OF_OPERATIONS = [
    "apply_writes_kernel",
    "gather_kernel",
    "gather_slots_kernel",
    "one_launch_captured_kernel",
    "one_launch_carrying_kernel",
    "slots_kernel",
]
KERNELS_OF_A_WARMUP = [
    "apply_captured_kernel",
    "apply_writes_kernel",
    "gather_kernel",
    "gather_options_kernel",
    "gather_slots_kernel",
    "gather_slots_options_kernel",
    "one_launch_captured_kernel",
    "one_launch_carrying_kernel",
    "slots_kernel",
    "slots_options_kernel",
]
PARTS_OF_A_STEP = ["gathers", "gathers+maps", "maps", "writes+gathers+maps"]


@pytest.fixture(params=TRITONS)
def release(request, tmp_path):
    """A version, and the folder that it is installed in."""
    folder = tmp_path / "triton"
    words = ["--no-deps", "--only-binary", ":all:", "--target", folder, f"triton=={request.param}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"Triton {request.param} cannot be installed: {done.stderr.strip()[-200:]}")
    yield request.param, folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PyPI has Triton for Linux alone")
def test_kernels_compile_and_can_be_launched_directly(release, tmp_path):
    version, folder = release
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    paths = [folder, ROOT, ROOT / "kernels"]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", OPERATIONS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, *lists = done.stdout.splitlines()
    assert said == version
    assert [line.split() for line in lists] == [
        *(KERNELS_OF_OPERATIONS, PARTS_OF_A_STEP),
        *(KERNELS_OF_A_WARMUP, PARTS_OF_A_STEP),
    ]
