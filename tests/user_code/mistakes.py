"""Mistakes in the use of both packages; the type checker must find each, and nothing else.

`test_user_code.py` checks that. Nothing runs this file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

import bt_bench
import bt_kernels
from bt_kernels import BlockTable, BlockTables, TableLayout  # mistake  # noqa: F401
from bt_kernels.device_tables import CapturedStep
from bt_kernels.interface import BlockTableOperations, TableState
from bt_kernels.launches import Grid, LaunchFunction, Place
from bt_kernels.native import load
from bt_kernels.variants import fused

bt_bench.version()  # mistake
bt_bench.lod("x")  # mistake
bt_bench.load(1)  # mistake
bt_bench.compare("x", treshold=3)  # mistake
bt_bench.load("x").verdicts[0].ratoi  # mistake  # noqa: B018
bt_bench.sweep("quick", progress=True)  # mistake
bt_bench.benchmark(input={"n": [1]})  # mistake
bt_bench.bench([lambda: None])  # mistake
bt_bench.bench({"a": lambda: None}).speedups  # mistake  # noqa: B018
bt_kernels.PAD_SLOT  # mistake  # noqa: B018

layout = TableLayout((16,), (64,), 8)  # mistake
layout = TableLayout((16,), 64, 8, 128)  # mistake
layout = TableLayout((16,), (64,), 8, 128, cp_ranks=2)  # mistake
layout.max_num_reqs = 9  # mistake
layout.widths.append(3)  # mistake

tables = BlockTables([16], 8, 128, [64], torch.device("cpu"))
BlockTables([16], 8, 128, [64])  # mistake
BlockTables([16], 8, 128, 64, "cuda")  # mistake
BlockTables([16], 8, 128, [64], "cuda", dcp_sharded=True)  # mistake
BlockTables([16], 8, 128, [64], "cuda", slot_mapping_enabled=["no"])  # mistake
BlockTables([16], 8, 128, [64], "cuda", 1, 0, 1, None, None, None, 2)  # mistake

mapping = torch.zeros(2, dtype=torch.int32)
starts = torch.zeros(3, dtype=torch.int32)
positions = torch.zeros(4, dtype=torch.int64)

tables.append_block_ids(0, [1, 2], overwrite=True)  # mistake
tables.append_block_ids("0", [[1, 2]], overwrite=True)  # mistake
tables.append_block_ids(0, [[1, 2]])  # mistake
tables.append_many([0], [[1]], [True])  # mistake
tables.append_many([0], [[[1]]], True)  # mistake
tables.apply_staged_write()  # mistake
tables.gather_block_tables([0, 1], 2)  # mistake
tables.gather_block_tables(mapping, "2")  # mistake
tables.gather_block_tables(mapping, 2, mapping)  # mistake
tables.gather_block_tables(mapping, 2)[0].gpu  # mistake  # noqa: B018
tables.compute_slot_mappings(mapping, starts, positions).shape  # mistake  # noqa: B018
tables.prepare_step(mapping, starts, positions, 2, 4, None)  # mistake
tables.prepare_step(mapping, starts, positions, 2, 4).shape  # mistake  # noqa: B018
slots: torch.Tensor = tables.prepare_step(mapping, starts, positions, 2, 4)[0]  # mistake
step: CapturedStep = tables.prepare_step(mapping, starts, positions, 2, 4)  # mistake
tables.capture_step(mapping, starts, positions, 2, 4).replay()  # mistake
tables.launch_path = 3  # mistake
tables.num_dirty_rows = None  # mistake
tables.num_blocks.np = np.zeros((1, 8), dtype=np.int32)  # mistake
tables.block_tables[0] = positions  # mistake
tables.block_tables[0].cpu  # mistake  # noqa: B018
seconds: str = tables.warmup()  # mistake

variant = fused.Variant(layout, "cpu", in_flight=2)  # mistake
fused.Variants  # mistake  # noqa: B018
BlockTableOperations(layout, "cpu")  # mistake
state: TableState = variant.restore(variant.snapshot())  # mistake
variant.restore(variant.num_blocks)  # mistake
variant.launch_paths = ("jit",)  # mistake
variant.num_blocks_on_device.np  # mistake  # noqa: B018
Place("cuda:0")  # mistake
launch: LaunchFunction = fused.Variant  # mistake
grid: Grid = (1, 2)  # mistake


class Own(BlockTables):
    def append_block_ids(self, req_index: int, ids: Sequence[int]) -> None:  # mistake
        tables.append_many([req_index], [[ids]], [False])


launcher, staged = load("launcher"), load("staged")
load("stage")  # mistake
launcher.lacking()  # mistake
if launcher is not None and staged is not None:
    launcher.Device("cuda:0")  # mistake
    launcher.Device(0).replay(1)  # mistake
    launcher.Launch(owner=None, function=1, threads=32)  # mistake
    launcher.repeat([0], 0, 1, (1,))  # mistake
    num_blocks = np.zeros((1, 8), dtype=np.int64)
    writes = staged.StagedWrites([64], num_blocks)  # mistake
    writes.append(0, [[1]], True)  # mistake
    writes.num_ids = 3  # mistake
