"""After `warmup` nothing is compiled any more, whatever is called, with whatever sizes and options.

Kernels are compiled for a GPU and run nowhere, so this needs none.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from support.variants import SHIPPED, classes

from bt_kernels.layout import TableLayout

SCRIPT = """
import sys
from itertools import product

import torch
from triton import knobs
from triton.runtime import driver

from bt_bench.worker.compiling.driver import AheadDriver
from bt_kernels.layout import TableLayout
from bt_kernels.variants import {name}



def front_end_alone(*given):
    # LLVM and ptxas would take most of the time, and choose nothing that is asked about here.
    if not given:
        return "front end alone", "front end alone"
    _, stages, options, _, _ = given

    def described(module, metadata):
        metadata |= {{"shared": 0, "tmem_size": 0, "name": "kernel"}}
        for scratch in ("global_scratch", "profile_scratch"):
            metadata |= {{f"{{scratch}}_size": 0, f"{{scratch}}_align": 1}}
        return str(module)

    stages |= {{"ttgir": lambda module, metadata: module, "llir": described}}
    stages |= {{"ptx": lambda text, metadata: text, "cubin": lambda text, metadata: text.encode()}}


knobs.runtime.add_stages_inspection_hook = front_end_alone
driver.set_active(AheadDriver([90], lambda binary: binary, lambda launch: None))
compiled = []
knobs.compilation.listener = lambda **facts: compiled.append(facts)
LAYOUT = TableLayout(**{options})
tables = {name}.Variant(LAYOUT, "cpu")
seconds = tables.warmup()
assert seconds > 0
print("warmed up:", len(compiled) > 0, tables.num_dirty_rows)
del compiled[:]


def out_of(first):
    return [torch.zeros(99 * width + 4, dtype=torch.int32)[first:first + 99 * width].view(99, width)
            for width in LAYOUT.widths]


def pointers_to(out, dtype):
    return torch.tensor([table.data_ptr() for table in out], dtype=torch.int64).view(dtype)


OUTS = [{{}}, {{"out": out_of(0)}}, {{"out": out_of(1)}}]
OUTS += [{{"out": out, "out_ptrs": pointers_to(out, dtype)}}
         for out in (out_of(0), out_of(1)) for dtype in (torch.int64, torch.uint64)]
SLOTS = [{{}}, {{"slots_out": torch.zeros(2, 300, dtype=torch.int64)[:, :299]}}]
NUM_ROWS = LAYOUT.max_num_reqs
COMPUTED = [{{}}, {{"num_computed_tokens": torch.zeros(NUM_ROWS + 1, dtype=torch.int32)[1:]}}]
# None, few, several ids, more ids than parameters hold, and more rows.
WRITES = [{{}}, {{3: 1}}, {{3: 2, 4: 0}}, dict.fromkeys(range(99), 30),
          dict.fromkeys(range(NUM_ROWS), 1)]


def stage(writes):
    for row, length in writes.items():
        ids = list(range(length))
        tables.append_block_ids(row, [ids] * LAYOUT.num_groups, True)


def batch(num_reqs, dtype):
    ends = torch.arange(num_reqs + 2, dtype=torch.int32)[1:] * (256 // max(1, num_reqs))
    positions = torch.zeros(257, dtype=torch.int64)[1:]
    return torch.zeros(num_reqs + 1, dtype=dtype)[1:], ends, positions


for num_reqs, dtype, options in product(
    (0, 1, 16, 33, 99), (torch.int32, torch.int64), product(OUTS, SLOTS, COMPUTED)
):
    options = options[0] | options[1] | options[2]
    for writes in WRITES:
        stage(writes)
        step = batch(num_reqs, dtype)
        tables.prepare_step(*step, 99, 256, **options)
    tables.gather_and_compute_slot_mappings(*step, 99, 256, **options)
    slots = options.pop("slots_out", None)
    tables.compute_slot_mappings(*step, 256, out=slots)
    tables.gather_block_tables(step[0], 99, **options)
    stage(WRITES[2])
    tables.apply_staged_writes()
tables.get_dummy_block_tables(9)
for computed in COMPUTED:
    tables.capture_step(*batch(9, torch.int64), 9, 256, **computed)
print("compiled since:", [facts["src"].fn.__name__ for facts in compiled])
"""

SHARDED = {
    "block_sizes": (16, 12),
    "widths": (32, 30),
    "max_num_reqs": 99,
    "max_num_batched_tokens": 256,
    "cp_size": 2,
}
WINDOWED = SHARDED | {
    "cp_size": 1,
    "sliding_window_reach": (9, 0),
    "max_num_reqs": 700,
    "widths": (32, 32),
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("one_launch", SHARDED),  # which has the kernels of `fused`, too
        pytest.param("fused", SHARDED, marks=pytest.mark.slow),
        pytest.param("baseline", WINDOWED, marks=pytest.mark.slow),
        pytest.param("fused", WINDOWED, marks=pytest.mark.slow),
        pytest.param("one_launch", WINDOWED, marks=pytest.mark.slow),
        pytest.param("one_launch_graph", WINDOWED, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_compiled_after_it(name, options, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    script = SCRIPT.format(name=name, options=options)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["warmed up: True 0", "compiled since: []"]


def test_it_changes_nothing_and_takes_no_time_where_kernels_are_interpreted():
    tables = classes(["one_launch"])["one_launch"](TableLayout(**WINDOWED), "cpu")
    tables.append_block_ids(3, [[1], [2]], True)
    assert 0 <= tables.warmup() < 1
    assert len(tables._staged.intervals()) == 2
    assert not torch.cat([table.view(-1) for table in tables.block_tables]).any()


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_it_works_on_every_launch_path_of_a_gpu(name):
    tables = classes([name])[name](TableLayout(**WINDOWED), "cuda")
    for path in (*tables.launch_paths, *tables.launch_paths):  # again with what was kept
        tables.launch_path = path
        assert tables.warmup() > 0
    torch.cuda.synchronize()
    assert not torch.cat([table.view(-1) for table in tables.block_tables]).any()
    if name == "one_launch" and tables._carrying is not None:
        binaries = tables._carrying.binaries(aligned=tables.rows_are_aligned)
        assert set(tables._carrying._kept) == set(binaries)
        assert all(launch is not None for launch in tables._carrying._kept.values())
