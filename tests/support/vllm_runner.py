"""A package `vllm` in a folder: block tables, and a model runner that calls them in vLLM's order.

The stand-ins are written for these tests. Where an unpacked wheel is given, the class is vLLM's
own, and `prepare_attn`, `prepare_dummy_attn` and `execute_model` are the methods of its runner,
taken out of `model_runner.py` as text; their object is `Runner`, a stand-in.

A package declares its own files to be those of its release, since the plugin refuses changed ones.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

RELEASE = "0.33.0"
GPU = "vllm/v1/worker/gpu"
METHODS = ("prepare_attn", "prepare_dummy_attn", "execute_model")

TABLES = """
import numpy as np
import torch


class Staged:
    def __init__(self, rows, width, device):
        self.gpu = torch.zeros(rows, width, dtype=torch.int32, device=device)
        self.writes = []

    def stage_write(self, row, start, ids):
        self.writes.append((row, start, list(ids)))

    def apply_write(self):
        for row, start, ids in self.writes:
            written = torch.tensor(ids, dtype=torch.int32, device=self.gpu.device)
            self.gpu[row, start : start + len(ids)] = written
        self.clear_staged_writes()

    def clear_staged_writes(self):
        self.writes = []


class Counts:
    def __init__(self, groups, rows, device):
        self.np, self.device = np.zeros((groups, rows), dtype=np.int32), device
        self.copy_to_uva()

    def copy_to_uva(self):
        self.gpu = torch.from_numpy(self.np.copy()).to(self.device)


class BlockTables:
    redirect_writes_to_null_block = False

    def __init__(
        self, block_sizes, max_num_reqs, max_num_batched_tokens, max_num_blocks_per_group, device,
        cp_size=1, cp_rank=0, cp_interleave=1, slot_mapping_enabled=None, dcp_sharded=None,
        sliding_window_reach=None,
    ):
        groups = len(block_sizes)
        self.block_sizes, self.num_kv_cache_groups = block_sizes, groups
        self.enabled = slot_mapping_enabled or [True] * groups
        self.reaches = (cp_size == 1 and sliding_window_reach) or [0] * groups
        self.cp_size, self.cp_rank, self.cp_interleave = cp_size, cp_rank, cp_interleave
        self.sharded = dcp_sharded or [True] * groups
        self.block_tables = [Staged(max_num_reqs, w, device) for w in max_num_blocks_per_group]
        self.input_block_tables = [torch.zeros_like(table.gpu) for table in self.block_tables]
        self.num_blocks = Counts(groups, max_num_reqs, device)
        self.slot_mappings = torch.zeros(
            groups, max_num_batched_tokens, dtype=torch.int64, device=device
        )
        self._num_dirty_rows = 0
        self.init_block_table_layout_tensors()

    def init_block_table_layout_tensors(self):
        self.block_table_ptrs = torch.tensor([t.gpu.data_ptr() for t in self.block_tables])

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        for group, ids in enumerate(new_block_ids):
            table = self.block_tables[group]
            start = 0 if overwrite else int(self.num_blocks.np[group, req_index])
            if start + len(ids) > table.gpu.shape[1]:
                raise RuntimeError("too wide")
            table.stage_write(
                req_index, start, [0 if self.redirect_writes_to_null_block else i for i in ids]
            )
            self.num_blocks.np[group, req_index] = start + len(ids)

    def apply_staged_writes(self):
        for table in self.block_tables:
            table.apply_write()
        self.num_blocks.copy_to_uva()

    def gather_block_tables(
        self, idx_mapping, num_reqs_padded, out=None, out_ptrs=None, num_computed_tokens=None
    ):
        num_rows, rows = num_reqs_padded, idx_mapping.tolist()
        if out is None:
            num_rows, self._num_dirty_rows = max(num_rows, self._num_dirty_rows), len(rows)
        out = tuple(self.input_block_tables) if out is None else out
        for group, target in enumerate(out):
            for place, row in enumerate(rows):
                count = int(self.num_blocks.gpu[group, row])
                target[place, :count] = self.block_tables[group].gpu[row, :count]
                if self.reaches[group] and num_computed_tokens is not None:
                    before = max(int(num_computed_tokens[row]) - self.reaches[group], 0)
                    target[place, : min(before // self.block_sizes[group], count)] = 0
            target[len(rows) : num_rows] = 0
        return tuple(table[:num_reqs_padded] for table in out)

    def get_dummy_block_tables(self, num_reqs):
        for table in self.input_block_tables:
            table[: max(num_reqs, self._num_dirty_rows)] = 0
        self._num_dirty_rows = num_reqs
        return tuple(table[:num_reqs] for table in self.input_block_tables)

    def compute_slot_mappings(
        self, idx_mapping, query_start_loc, positions, num_tokens_padded, out=None
    ):
        slots = self.slot_mappings if out is None else out
        rows, starts = idx_mapping.tolist(), query_start_loc.tolist()
        for group, size in enumerate(self.block_sizes):
            for row, first, end in zip(rows, starts, starts[1:]):
                at = positions[first:end]
                if not self.enabled[group]:
                    slots[group, first:end] = -1
                    continue
                ranks = self.cp_size if self.sharded[group] else 1
                rank = self.cp_rank if ranks > 1 else 0
                each = self.cp_interleave if ranks > 1 else 1
                ids = self.block_tables[group].gpu[row][at // (size * ranks)].long()
                at = at % (size * ranks)
                own = ids * size + at // (ranks * each) * each + at % each
                slots[group, first:end] = torch.where(at // each % ranks == rank, own, -1)
        slots[:, starts[len(rows)] :] = -1
        return slots[:, :num_tokens_padded]

    def get_dummy_slot_mappings(self, num_tokens):
        self.slot_mappings.fill_(-1)
        return self.slot_mappings[:, :num_tokens]
"""

REAL_TABLES = """
from support.vllm_runner import real_class

BlockTables = real_class({folder!r})
BlockTables.__module__ = __name__
"""

PACKAGE = """
__version__ = {release!r}

try:
    from dataclasses import replace

    from bt_kernels.engines.plugin.releases import RELEASES
except ImportError:  # without bt-kernels
    RELEASES = {{}}

_public = __version__.partition("+")[0]
if _public in RELEASES:
    RELEASES[_public] = replace(
        RELEASES[_public], block_table={block_table!r}, model_runner={model_runner!r}
    )
"""

RUNNER_HEAD = """
from __future__ import annotations

import torch
from support.vllm_runner import InputBatch, Runner, dispatch_cg_and_sync_dp
from support.vllm_runner import end_step as build_slot_mappings_by_layer
from support.vllm_runner import end_step as maybe_prepare_dcp_local_seq_lens
from support.vllm_runner import pcp, same_lengths as get_uniform_token_count

from vllm.v1.worker.gpu.block_table import BlockTables


class GPUModelRunner(Runner):
    @staticmethod
    def tables_class():
        return BlockTables

"""

STAND_IN_METHODS = """
def prepare_attn(self, input_batch):
    if self.pcp_manager is not None:
        return self.pcp_manager.prepare_attn(input_batch)
    tables = self.block_tables.gather_block_tables(
        input_batch.idx_mapping,
        num_reqs_padded=input_batch.num_reqs_after_padding,
        num_computed_tokens=self.req_states.num_computed_tokens.gpu,
    )
    slots = self.block_tables.compute_slot_mappings(
        input_batch.idx_mapping,
        input_batch.query_start_loc,
        input_batch.positions,
        num_tokens_padded=input_batch.num_tokens_after_padding,
    )
    return tables, slots

@torch.inference_mode()
def execute_model(self, scheduler_output, dummy_run=False):
    if not dummy_run:
        self.add_requests(scheduler_output)
        self.update_requests(scheduler_output)
        self.block_tables.apply_staged_writes()
        if self.aux_output_connector is not None:
            self.aux_output_connector.begin_step(None)
        if scheduler_output.total_num_scheduled_tokens == 0:
            return "no tokens"
    batch, _ = dispatch_cg_and_sync_dp(self.cudagraph_manager)
    if batch.num_tokens == 0:
        return "no rank has tokens"
    if dummy_run:
        self.block_tables.get_dummy_block_tables(batch.num_reqs)
        self.block_tables.get_dummy_slot_mappings(batch.num_tokens)
    else:
        tables, slots = self.prepare_attn(self.prepare_inputs(scheduler_output, None, batch, 0))
    batch.num_ubatches
"""


class StepOverError(Exception):
    """Ends `execute_model` behind the block tables' part of a step."""


class InputBatch:
    """Holds what `prepare_attn` reads; `between` is called between gather and slots."""

    def __init__(
        self, batch: Any, between: Callable[[], None] = lambda: None, device: Any = None
    ) -> None:
        self.idx_mapping_np = np.array(batch.rows, dtype=np.intp)
        self.query_start_loc_np = np.array([0, *np.cumsum(batch.lengths)], dtype=np.int32)
        self.num_computed_tokens_np = np.array(batch.computed, dtype=np.int32)[batch.rows]
        self.idx_mapping = torch.tensor(self.idx_mapping_np, device=device)
        self.num_reqs = len(batch.rows)
        self._starts = torch.tensor(self.query_start_loc_np, device=device)
        self.positions = torch.tensor(batch.positions, device=device)
        self.num_reqs_after_padding = batch.num_reqs_padded
        self.num_tokens_after_padding = batch.num_tokens_padded
        self.num_tokens = batch.num_tokens_padded
        self.seq_lens = None
        self._between = between

    @property
    def query_start_loc(self) -> torch.Tensor:
        """`[R + 1]`."""
        self._between()
        return self._starts

    @staticmethod
    def make_dummy(num_reqs: int, num_tokens: int, *_: Any, **__: Any) -> SimpleNamespace:
        """A batch of a dummy run."""
        return SimpleNamespace(
            num_reqs=num_reqs, num_tokens=num_tokens, seq_lens=None, num_reqs_after_padding=num_reqs
        )


class Descriptor(SimpleNamespace):
    """Sizes of a batch; the runner reads `num_ubatches` once tables and slots are there."""

    @property
    def num_ubatches(self) -> int:
        """Ends the step."""
        raise StepOverError


def dispatch_cg_and_sync_dp(descriptor: Descriptor, *_: Any, **__: Any) -> tuple[Any, None]:
    """Return the sizes that the test chose."""
    return descriptor, None


def end_step(*_: Any, **__: Any) -> None:
    """End the step, in releases that do not read `num_ubatches`."""
    raise StepOverError


def same_lengths(*_: Any) -> None:
    """Return the length that all requests of a batch have: not looked at here."""


def _dummy_slots(manager: Any, tables: Any, num_tokens: int) -> torch.Tensor:
    found: torch.Tensor = (manager or tables).get_dummy_slot_mappings(num_tokens)
    return found


pcp = SimpleNamespace(maybe_get_pcp_dummy_slot_mappings=_dummy_slots)


class PrefillParallelism:
    """Gathers by the local mapping into tables of its own, and maps into slots of its own."""

    input_buffers = SimpleNamespace(dcp_local_seq_lens=None)

    def __init__(self, tables: Any, rows: int, tokens: int) -> None:
        self.tables, device = tables, tables.slot_mappings.device
        self.out = tuple(
            torch.full((rows, table.shape[1]), -7, dtype=torch.int32, device=device)
            for table in tables.input_block_tables
        )
        addresses = [table.data_ptr() for table in self.out]
        self.pointers = torch.tensor(addresses, dtype=torch.uint64, device=device)
        self.slots = torch.full((len(self.out), tokens), -7, device=device)

    def prepare_attn(self, batch: InputBatch) -> Any:
        """As `PCPManager.prepare_attn`."""
        tables = self.tables.gather_block_tables(
            batch.idx_mapping,
            batch.num_reqs_after_padding,
            out=self.out,
            out_ptrs=self.pointers,
        )
        slots = self.tables.compute_slot_mappings(
            *(batch.idx_mapping, batch.query_start_loc, batch.positions),
            batch.num_tokens_after_padding,
            out=self.slots,
        )
        return tables, slots


@dataclass
class Step:
    """A step for `Runner.play`.

    Args:
        batch: of `beside.draw.Scheduler`.
        kind: `"step"`, `"no tokens"`, `"no rank has tokens"`, `"dummy"` or `"pcp"`.
        after_apply, between: readers at the worst moments; `play` returns their results, too.
    """

    batch: Any
    kind: str = "step"
    after_apply: Callable[[Any], Any] | None = None
    between: Callable[[Any], Any] | None = None
    total_num_scheduled_tokens: int = field(init=False, default=1)
    read: Callable[[], None] = field(init=False, default=lambda: None)
    scheduled_encoder_inputs: None = None
    aux_output_connector_metadata: None = None
    skip_drafts: bool = False

    def __post_init__(self) -> None:
        if self.kind == "no tokens":
            self.total_num_scheduled_tokens = 0

    @property
    def num_scheduled_tokens(self) -> dict[int, int]:
        """Tokens by request; `execute_model` reads them first after the apply."""
        self.read()
        rows, lengths = self.batch.rows.tolist(), self.batch.lengths.tolist()
        return dict(zip(rows, lengths, strict=True))


class Runner:
    """The rest of a model runner: a stand-in, so far as the three methods use it.

    Args:
        layout: of the tables.
        kind: their class; by default whatever the module of the runner has for it now.
        device: where they are.
    """

    tables_class: Callable[[], type[Any]]
    execute_model: Callable[..., Any]
    prepare_attn: Callable[..., Any]

    encoder_cache = pcp_manager = dp_sync = ubatch_runner = fast_prefill = parallel_config = None
    lora_config = is_encoder_decoder = False
    dp_size = dcp_size = cp_interleave = decode_query_len = 1
    dp_rank = dcp_rank = 0
    input_buffers = SimpleNamespace(dcp_local_seq_lens=None)
    observability_config = SimpleNamespace(cudagraph_metrics=False)
    kv_cache_config = None

    def __init__(
        self,
        layout: Any,
        kind: type[Any] | None = None,
        device: torch.device | str = "cpu",
        kernel_sizes: Sequence[int] = (),
    ) -> None:
        kind, self.device = kind or self.tables_class(), torch.device(device)
        options = {
            "block_sizes": list(layout.block_sizes),
            "max_num_reqs": layout.max_num_reqs,
            "max_num_batched_tokens": layout.max_num_batched_tokens,
            "max_num_blocks_per_group": list(layout.widths),
            "device": self.device,
            "kernel_block_sizes": list(kernel_sizes or layout.block_sizes),
            "cp_size": layout.cp_size,
            "cp_rank": layout.cp_rank,
            "cp_interleave": layout.cp_interleave,
            "slot_mapping_enabled": list(layout.slot_mapping_enabled),
            "dcp_sharded": list(layout.dcp_sharded),
            "sliding_window_reach": list(layout.sliding_window_reach) or None,
        }
        takes = inspect.signature(kind.__init__).parameters
        self.block_tables = kind(**{name: options[name] for name in options if name in takes})
        self.layout = layout
        self.found: list[Any] = []
        nothing = SimpleNamespace(preprocess_state=lambda *_: None)
        self.model_state = nothing
        self.kv_connector = SimpleNamespace(no_forward=lambda _: "nothing")
        self.req_states = SimpleNamespace(num_computed_tokens=SimpleNamespace(gpu=None))
        self.aux_output_connector = SimpleNamespace(begin_step=self._read)
        self._step: Step | None = None
        self._has_read = False

    def play(self, step: Step) -> list[Any]:
        """Make a step; return what readers found, and copies of all that it may have written."""
        return [*self.make(step), *self.buffers()]

    def make(self, step: Step) -> list[Any]:
        """Make a step; return what readers found."""
        self._step, self.found, self._has_read = step, [], step.kind == "dummy"
        step.read = self._read
        self.req_states.num_computed_tokens.gpu = torch.tensor(
            step.batch.computed, dtype=torch.int32, device=self.device
        )
        sizes = step.batch.num_reqs_padded, step.batch.num_tokens_padded
        tokens = 0 if step.kind == "no rank has tokens" else sizes[1]
        self.cudagraph_manager = Descriptor(num_reqs=sizes[0], num_tokens=tokens, max_query_len=1)
        self.pcp_manager = None
        if step.kind == "pcp":
            rows, most = 2 * self.layout.max_num_reqs, 2 * self.layout.max_num_batched_tokens
            self.pcp_manager = PrefillParallelism(self.block_tables, rows, most)
            self.pcp_manager.get_num_tokens_for_dispatch = lambda *_: 1
            self.pcp_manager.partition_batch = lambda batch, _: batch
        with suppress(StepOverError):
            self.found.append(self.execute_model(step, dummy_run=step.kind == "dummy"))
        return self.found

    def buffers(self) -> list[torch.Tensor]:
        """Return copies of all buffers."""
        return [buffer.clone() for _, buffer in self.named_buffers()]

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield all buffers that a step may have written."""
        tables = self.block_tables
        yield "num_blocks.np", torch.tensor(tables.num_blocks.np)
        yield "num_blocks.gpu", tables.num_blocks.gpu
        for group, table in enumerate(tables.block_tables):
            yield f"block_tables[{group}].gpu", table.gpu
        for group, table in enumerate(tables.input_block_tables):
            yield f"input_block_tables[{group}]", table
        yield "slot_mappings", tables.slot_mappings
        if self.pcp_manager is not None:
            for group, table in enumerate(self.pcp_manager.out):
                yield f"out[{group}]", table
            yield "out of slots", self.pcp_manager.slots

    # What the methods call

    def add_requests(self, step: Step) -> None:
        for row, ids, overwrite in step.batch.writes:
            if overwrite:
                self.block_tables.append_block_ids(row, ids, overwrite=True)

    def update_requests(self, step: Step) -> None:
        for row, ids, overwrite in step.batch.writes:
            if not overwrite:
                self.block_tables.append_block_ids(row, ids, overwrite=False)

    def update_pp_decode_requests(self) -> None: ...
    def finish_requests(self, _: Any) -> None: ...
    def free_states(self, _: Any) -> None: ...

    def _read(self, *_: Any) -> None:
        """Let the step's reader read, once after the apply."""
        assert self._step is not None
        if self._step.after_apply is not None and not self._has_read:
            self._has_read = True
            self.found.append(self._step.after_apply(self.block_tables))

    def _between(self) -> None:
        assert self._step is not None
        if self._step.between is not None:
            self.found.append(self._step.between(self.block_tables))

    def _merge_ec_connector_no_forward(self, _: Any, output: Any) -> str:
        return "no forward"

    def gather_batch_req_state(self, step: Step, dummy: bool) -> tuple[Any, None]:
        state = SimpleNamespace(
            num_tokens=1, has_prefill=True, num_scheduled_tokens=None, is_prefilling_np=None
        )
        return None if dummy else state, None

    def prepare_inputs(self, step: Step, *_: Any) -> InputBatch:
        return InputBatch(step.batch, self._between, self.device)


def real_class(folder: str) -> type[Any]:
    """Return vLLM's own class, run from an unpacked wheel."""
    from bt_bench.suites.block_tables.vllm.loading import load_block_tables
    from bt_bench.suites.block_tables.vllm.source import find_sources

    return load_block_tables(find_sources([Path(folder)]).found[0])


def write_package(root: Path, wheel: Path | None = None, release: str = RELEASE) -> Path:
    """Write the package into a folder; with vLLM's own class and methods if a wheel is given."""
    tables, methods = TABLES, STAND_IN_METHODS
    if wheel is not None:
        tables = REAL_TABLES.format(folder=str(wheel))
        tree = ast.parse((wheel / GPU / "model_runner.py").read_text("utf-8"))
        (runner,) = (
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == "GPUModelRunner"
        )
        found = {node.name: node for node in runner.body if isinstance(node, ast.FunctionDef)}
        methods = "\n\n".join(ast.unparse(found[name]) for name in METHODS)
    runner_text = RUNNER_HEAD + textwrap.indent(methods, "    ")
    files = {
        "vllm/__init__.py": PACKAGE.format(
            release=release,
            block_table=hashlib.sha256(tables.encode()).hexdigest(),
            model_runner=hashlib.sha256(runner_text.encode()).hexdigest(),
        ),
        "vllm/v1/__init__.py": "",
        "vllm/v1/worker/__init__.py": "",
        f"{GPU}/__init__.py": "",
        f"{GPU}/block_table.py": tables,
        f"{GPU}/model_runner.py": runner_text,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@contextmanager
def imported_from(root: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Let modules of the package be imported by the last part of their names, then forget it."""
    kept = {name: module for name, module in sys.modules.items() if _is_vllm(name)}
    from bt_kernels.engines.plugin.releases import RELEASES  # not earlier: it may be missing

    known = dict(RELEASES)
    for name in kept:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    try:
        importlib.invalidate_caches()
        importlib.import_module("vllm")
        yield lambda name: importlib.import_module(f"vllm.v1.worker.gpu.{name}")
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if _is_vllm(name)]:
            del sys.modules[name]
        sys.modules.update(kept)
        RELEASES.update(known)


def _is_vllm(name: str) -> bool:
    return name.partition(".")[0] == "vllm"
