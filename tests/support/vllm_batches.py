"""A runner that prepares whole batches, for the plugin: steps with tokens, prompts and drafts.

Where an unpacked wheel is given, its text is vLLM's: `prepare_inputs`, `prepare_attn`,
`gather_batch_req_state` and `execute_model` of the runner, and the classes and functions that they
use, among them `RequestState`, `InputBuffers` and `InputBatch`. Else they are stand-ins; inputs are
then prepared by the reference, on the CPU.
"""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bt_bench.suites.batch_preparation.workloads.workload import InputStep, InputWorkload
from support.vllm_runner import (
    GPU,
    PACKAGE,
    REAL_TABLES,
    RELEASE,
    TABLES,
    Descriptor,
    PrefillParallelism,
    Runner,
    StepOverError,
)

METHODS = ("gather_batch_req_state", "prepare_inputs", "prepare_attn", "prepare_dummy_attn")
FUNCTIONS = (
    "prepare_prefill_inputs",
    "prepare_pos_seq_lens",
    "combine_sampled_and_draft_tokens",
    "expand_idx_mapping",
    "InputBuffers",
    "InputBatch",
)
PERSISTENT = ("input_ids", "positions", "is_padding", "query_start_loc", "seq_lens")
STATE = ("num_computed_tokens", "prefill_len", "all_token_ids", "total_len", "prompt_len")

HEAD = """
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from support.vllm_batches import BatchRunner, dispatch, end_step, envs, names, same_lengths
from support.vllm_batches import stand_in_inputs
from support.vllm_runner import pcp

from vllm.v1.worker.gpu.block_table import BlockTables
from vllm.v1.worker.gpu.input_batch import *

dispatch_cg_and_sync_dp = dispatch
get_uniform_decode_token_count = get_uniform_token_count = same_lengths
build_slot_mappings_by_layer = end_step
globals().update(names({folder!r}))

{functions}


class GPUModelRunner(BatchRunner):
    @staticmethod
    def tables_class():
        return BlockTables

    @staticmethod
    def names():
        return globals()

    def initialize_kv_cache(self, kind=None):
        self.make_tables(kind)

"""

INPUT_BATCH = """
from support.vllm_batches import names

globals().update(names({folder!r}))
__all__ = {functions!r}
"""

STAND_IN_METHODS = """
def gather_batch_req_state(self, step, dummy_run):
    if dummy_run:
        return None, None
    rows = np.array([self.req_states.req_id_to_index[i] for i in step.num_scheduled_tokens])
    prefill_lens = self.req_states.prefill_len.np[rows]
    computed = self.req_states.num_computed_prefill_tokens[rows]
    drafts = step.scheduled_spec_decode_tokens
    counts = [len(drafts.get(i, ())) for i in step.num_scheduled_tokens]
    return SimpleNamespace(
        req_ids=list(step.num_scheduled_tokens),
        num_scheduled_tokens=np.array(list(step.num_scheduled_tokens.values()), np.int32),
        num_tokens=step.total_num_scheduled_tokens,
        num_draft_tokens_np=np.array(counts, np.int32) if drafts else None,
        idx_mapping_np=rows,
        prefill_len_np=prefill_lens,
        num_computed_prefill_tokens_np=computed,
        is_prefilling_np=computed < prefill_lens,
        max_seq_len_np=None,
        has_prefill=bool((computed < prefill_lens).any()),
        prefill_runs_as_decode_np=None,
        decode_graph_eligible=not (computed < prefill_lens).any(),
    ), None

def prepare_inputs(self, scheduler_output, batch_req_state, batch_desc, num_active_loras):
    return stand_in_inputs(
        self, scheduler_output, batch_req_state, batch_desc, num_active_loras
    )

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
        self.aux_output_connector.begin_step(None)
        if scheduler_output.total_num_scheduled_tokens == 0:
            return "no tokens"
    state, _ = self.gather_batch_req_state(scheduler_output, dummy_run)
    batch, _ = dispatch(self.cudagraph_manager)
    if batch.num_tokens == 0:
        return "no rank has tokens"
    if dummy_run:
        made = InputBatch.make_dummy(batch.num_reqs, batch.num_tokens, self.input_buffers)
        tables = self.block_tables.get_dummy_block_tables(batch.num_reqs)
        slots = self.block_tables.get_dummy_slot_mappings(batch.num_tokens)
    else:
        made = self.prepare_inputs(scheduler_output, state, batch, 0)
        tables, slots = self.prepare_attn(made)
        self.model_state.preprocess_state(made, tables, None, None)
    end_step(slots, self.kv_cache_config)
"""

envs = SimpleNamespace(VLLM_MOE_SKIP_PADDING=True)


def names(folder: str) -> dict[str, Any]:
    """Return what the runner's methods use: vLLM's own from an unpacked wheel, or stand-ins."""
    if not folder:
        return {
            "InputBatch": StandInBatch,
            "InputBuffers": StandInBuffers,
            "RequestState": StandInState,
            "SimpleNamespace": SimpleNamespace,
        }
    if folder not in _LOADED:
        from bt_bench.suites.block_tables.vllm.loading import load_names
        from bt_bench.suites.block_tables.vllm.source import find_sources

        wanted = dict.fromkeys(FUNCTIONS, "vllm.v1.worker.gpu.input_batch")
        wanted |= {
            "RequestState": "vllm.v1.worker.gpu.states",
            "async_tensor_h2d": "vllm.utils.torch_utils",
        }
        (source,) = find_sources([Path(folder)]).found
        found = load_names(source, *((module, name) for name, module in wanted.items()))
        _LOADED[folder] = dict(zip(wanted, found, strict=True))
    return _LOADED[folder]


_LOADED: dict[str, dict[str, Any]] = {}


def write_batch_package(root: Path, wheel: Path | None = None) -> Path:
    """Write a package `vllm` with such a runner into a folder."""
    folder = "" if wheel is None else str(wheel)
    tables, methods, functions = TABLES, STAND_IN_METHODS, ""
    if wheel is not None:
        tables = REAL_TABLES.format(folder=folder)
        tree = ast.parse((wheel / GPU / "model_runner.py").read_text("utf-8"))
        top = {getattr(node, "name", ""): node for node in tree.body}
        found = {getattr(node, "name", ""): node for node in top["GPUModelRunner"].body}  # type: ignore[attr-defined]
        methods = "\n\n".join(ast.unparse(found[name]) for name in (*METHODS, "execute_model"))
        used = ("BatchReqState", "sort_batch_req_ids")
        functions = "\n\n".join(ast.unparse(top[name]) for name in used)
    head = HEAD.format(folder=folder, functions=functions)
    runner = head + textwrap.indent(methods, "    ")
    exported = FUNCTIONS if wheel is not None else ("InputBuffers", "InputBatch")
    batch = INPUT_BATCH.format(folder=folder, functions=exported)
    known = PACKAGE.replace("{model_runner!r}", "{model_runner!r}, input_batch={input_batch!r}")
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()
        for name, text in (
            ("block_table", tables),
            ("model_runner", runner),
            ("input_batch", batch),
        )
    }
    files = {
        "vllm/__init__.py": known.format(release=RELEASE, **digests),
        "vllm/v1/__init__.py": "",
        "vllm/v1/worker/__init__.py": "",
        f"{GPU}/__init__.py": "",
        f"{GPU}/block_table.py": tables,
        f"{GPU}/input_batch.py": batch,
        f"{GPU}/model_runner.py": runner,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def dispatch(descriptor: Descriptor, *_: Any, **__: Any) -> tuple[Any, None]:
    """Return the sizes that the test chose."""
    return descriptor, None


def same_lengths(*_: Any, **__: Any) -> None:
    """Return the length that all requests have: not looked at here."""


def end_step(slots: Any, kept: list[Any], *_: Any) -> None:
    """Keep the slots of a step, and end it."""
    kept.append(slots)
    raise StepOverError


class Sizes(SimpleNamespace):
    """The descriptor of a batch."""

    num_ubatches, cg_mode = 1, "none"


@dataclass
class BatchStep:
    """A step for `BatchRunner.play`.

    Args:
        inputs: the batch, of a workload of `batch_preparation`.
        kind: `"step"`, `"no tokens"`, `"no rank has tokens"`, `"dummy"` or `"pcp"`.
        seed: of tokens, and of what the host knows late.
        exact: leave out the number of padded requests, as for graphs of parts of a model.
        writes: what others write between steps: a function of the runner.
        after_apply: reads tables right after the apply; `play` returns its result, too.
    """

    inputs: InputStep
    kind: str = "step"
    seed: int = 0
    exact: bool = False
    writes: Callable[[Any], None] | None = None
    after_apply: Callable[[Any], Any] | None = None
    num_scheduled_tokens: dict[str, int] = field(init=False, default_factory=dict)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(init=False, default_factory=dict)
    total_num_scheduled_tokens: int = field(init=False, default=0)
    has_structured_output_requests: bool = False
    scheduled_encoder_inputs: None = None
    aux_output_connector_metadata: None = None
    skip_drafts: bool = False


class FastPrefill:
    """Stages logits as vLLM's helper does."""

    def __init__(self, tokens: int, device: torch.device) -> None:
        self.buffer = torch.zeros(tokens, dtype=torch.int32, device=device)

    def prepare(
        self, logits: torch.Tensor, reqs: int, counts: Any, has_prefill: bool, *_: Any, **__: Any
    ) -> Any:
        """Return where the logits are, and how many."""
        if not has_prefill or not len(logits):
            return None
        self.buffer[: len(logits)].copy_(logits)
        self.buffer[len(logits) :] = logits[-1]
        return self.buffer[: reqs + 1], int(np.diff(counts).max())


class BatchRunner(Runner):
    """The rest of a runner, so far as the methods use it.

    Args:
        workload: sizes, and the layout of tables.
        kind: the tables' class; by default whatever the module of the runner has for it now.
        device: where all is.
        fast_prefill: whether logits are staged for a layer's part.
        window: whether the lengths of prompts belong to a batch.

    Attributes:
        waits: let the device finish before the apply.
        spent_ns: host time of the last step from there to the slots.
    """

    waits = use_pp = False
    spent_ns = _began = 0
    adaptive_verification = None
    names: Callable[[], dict[str, Any]]
    initialize_kv_cache: Callable[..., None]

    def __init__(
        self,
        workload: InputWorkload,
        kind: type[Any] | None = None,
        device: torch.device | str = "cpu",
        *,
        fast_prefill: bool = False,
        window: bool = False,
    ) -> None:
        layout = workload.layout
        self.inputs, self.tables_layout = layout, workload.table_layout
        self.device = torch.device(device)
        self.max_num_reqs = layout.max_num_reqs
        self.decode_query_len = layout.num_speculative_steps + layout.num_new_sampled_tokens
        known = self.names()
        self.input_buffers = known["InputBuffers"](
            layout.max_num_reqs, layout.max_num_tokens, self.device
        )
        self.req_states: Any = known["RequestState"](
            *(layout.max_num_reqs, layout.max_model_len, layout.max_num_tokens),
            *(layout.num_speculative_steps, 2**31, self.device, layout.num_lookahead),
        )
        self.fast_prefill: Any = (
            FastPrefill(layout.max_num_tokens, self.device) if fast_prefill else None
        )
        self.model_config = SimpleNamespace(rswa_window=4 if window else None)
        self.model_state: Any = SimpleNamespace(
            num_new_sampled_tokens_per_step=layout.num_new_sampled_tokens,
            preprocess_state=lambda batch, tables, *_: self.found.extend((batch, tables)),
        )
        self._generation: dict[int, str] = {}
        self.initialize_kv_cache(kind)

    def make_tables(self, kind: type[Any] | None) -> None:
        """Build the tables, as `initialize_kv_cache` does."""
        states, state = self.req_states, self.model_state
        super().__init__(self.tables_layout, kind, self.device)
        self.req_states, self.model_state = states, state
        self.kv_cache_config: list[Any] = self.found  # what ends a step puts slots there

    def make(self, step: BatchStep) -> list[Any]:  # type: ignore[override]
        """Make a step; return what it gave the model, and what readers found."""
        inputs, self.found, self._step = step.inputs, [], step  # type: ignore[assignment]
        self._has_read = step.kind == "dummy"
        self.kv_cache_config = self.found
        if step.writes is not None:
            with torch.inference_mode():
                step.writes(self)
        padded = inputs.num_reqs_padded
        is_exact = step.exact and step.kind != "dummy"
        self.cudagraph_manager = Sizes(
            num_reqs=None if is_exact else padded,
            num_tokens=0 if step.kind == "no rank has tokens" else inputs.num_tokens_padded,
            max_query_len=None,
        )
        self.pcp_manager = None
        if step.kind == "pcp":
            rows, most = 2 * self.max_num_reqs, 2 * self.inputs.max_num_tokens
            self.pcp_manager = PrefillParallelism(self.block_tables, rows, most)
            self.pcp_manager.get_num_tokens_for_dispatch = lambda *_: 1
            self.pcp_manager.partition_batch = lambda batch, _: batch
        if step.kind == "dummy":
            step.num_scheduled_tokens = {"dummy": 1}
            step.total_num_scheduled_tokens = 1
        with suppress(StepOverError):
            self.found.append(self.execute_model(step, dummy_run=step.kind == "dummy"))
        self.spent_ns = perf_counter_ns() - self._began
        return self.found

    def begin(self, workload: InputWorkload) -> None:
        """Give rows the requests and blocks that they have before the first step, and no others."""
        states = self.req_states
        for name in [*states.req_id_to_index]:
            states.remove_request(name)
        self._generation = {}
        began: set[int] = set()
        for step in workload.steps:
            new = {append.row for append in step.appends if append.overwrite}
            for row, length in zip(step.rows.tolist(), step.prefill_lens.tolist(), strict=True):
                if row not in began | new:
                    self._add(row, f"s{row}", [7] * length, length, 0)
                began.add(row)
        states.apply_staged_writes()
        written: set[int] = set()
        for append in workload.setup:
            overwrites = append.overwrite or append.row not in written
            written.add(append.row)
            self.block_tables.append_block_ids(append.row, append.block_ids, overwrites)
        self.block_tables.apply_staged_writes()

    def _add(self, row: int, name: str, tokens: list[int], prompt: int, computed: int) -> None:
        states = self.req_states
        if row in self._generation:
            states.remove_request(self._generation[row])
        self._generation[row] = name
        states.free_indices.remove(row)
        states.free_indices.append(row)  # the next one to be taken
        states.add_request(name, prompt, tokens, computed, 5)

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield all buffers that a step may have written."""
        yield from super().named_buffers()
        for each in (*PERSISTENT, "dcp_local_seq_lens"):
            yield each, getattr(self.input_buffers, each)
        for each in STATE:
            yield each, getattr(self.req_states, each).gpu
        for each in ("last_sampled_tokens", "draft_tokens", "next_prefill_tokens"):
            yield each, getattr(self.req_states, each)
        if self.fast_prefill is not None:
            yield "fast_prefill", self.fast_prefill.buffer

    # What the methods call

    def add_requests(self, step: BatchStep) -> None:  # type: ignore[override]
        states, inputs = self.req_states, step.inputs
        rng = np.random.default_rng((step.seed, 1))
        rows = {int(row): place for place, row in enumerate(inputs.rows)}
        new = [append for append in inputs.appends if append.overwrite]
        for append in new:
            place, row = rows[append.row], append.row
            length = int(inputs.prefill_lens[place])
            tokens = rng.integers(0, 2**31, length).tolist()
            prompt = int(rng.integers(1, length + 1))
            self._add(row, f"r{step.seed}-{row}", tokens, prompt, int(inputs.computed[place]))
            self.block_tables.append_block_ids(row, append.block_ids, overwrite=True)
        if new:
            states.apply_staged_writes()

    def update_requests(self, step: BatchStep) -> None:  # type: ignore[override]
        states, inputs = self.req_states, step.inputs
        rng = np.random.default_rng((step.seed, 2))
        rows = torch.tensor(inputs.rows, device=self.device)
        # As the kernels behind the last step left them.
        computed = torch.tensor(inputs.computed, dtype=torch.int32, device=self.device)
        states.num_computed_tokens.gpu[rows] = computed
        for name in ("last_sampled_tokens", "draft_tokens"):
            tensor = getattr(states, name)
            tokens = rng.integers(0, 2**40, tuple(tensor.shape))
            tensor.copy_(torch.tensor(tokens))
        tokens, prefill = states.all_token_ids.gpu, inputs.prefill_lens.tolist()
        for row, first in zip(inputs.rows.tolist(), prefill, strict=True):
            if first < tokens.shape[1]:  # sampled in earlier steps
                tokens[row, first] = int(rng.integers(0, 2**31))
        # The host has an upper bound, where drafts may have been rejected.
        late = rng.integers(0, 3, len(inputs.rows)) * (inputs.computed >= inputs.prefill_lens)
        states.num_computed_tokens_np[inputs.rows] = inputs.computed + late
        for append in inputs.appends:
            if not append.overwrite:
                self.block_tables.append_block_ids(append.row, append.block_ids, overwrite=False)
        np.minimum(
            states.num_computed_tokens_np,
            states.prefill_len.np,
            out=states.num_computed_prefill_tokens,
        )
        self._schedule(step)
        if self.waits and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._began = perf_counter_ns()

    def _schedule(self, step: BatchStep) -> None:
        inputs = step.inputs
        if step.kind == "no tokens":
            step.total_num_scheduled_tokens = 0
            return
        ids = [self._generation[int(row)] for row in inputs.rows]
        step.num_scheduled_tokens = dict(zip(ids, inputs.query_lens.tolist(), strict=True))
        step.total_num_scheduled_tokens = inputs.num_tokens
        if inputs.num_drafts is not None:
            step.scheduled_spec_decode_tokens = {
                name: [0] * count
                for name, count in zip(ids, inputs.num_drafts.tolist(), strict=True)
                if count
            }

    def _read(self, *_: Any) -> None:
        step: Any = self._step
        if step.after_apply is not None and not self._has_read:
            self._has_read = True
            self.found.append(step.after_apply(self.block_tables))


# Stand-ins for vLLM's classes


class StandInBuffers:
    """`InputBuffers`."""

    def __init__(self, reqs: int, tokens: int, device: torch.device) -> None:
        def zeros(size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self.input_ids, self.positions = zeros(tokens), zeros(tokens, torch.int64)
        self.is_padding = zeros(tokens, torch.bool)
        self.query_start_loc, self.seq_lens = zeros(reqs + 1), zeros(reqs)
        self.dcp_local_seq_lens = zeros(reqs)


@dataclass
class StandInBatch:
    """`InputBatch`."""

    req_ids: Any
    num_reqs: Any
    num_reqs_after_padding: Any
    idx_mapping: Any
    idx_mapping_np: Any
    expanded_idx_mapping: Any
    expanded_local_pos: Any
    num_scheduled_tokens: Any
    num_tokens: Any
    num_tokens_after_padding: Any
    num_draft_tokens: Any
    num_draft_tokens_per_req: Any
    query_start_loc: Any
    query_start_loc_np: Any
    seq_lens: Any
    seq_lens_cpu_upper_bound: Any
    dcp_local_seq_lens: Any
    num_computed_tokens_np: Any
    prefill_len_np: Any
    num_computed_prefill_tokens_np: Any
    is_prefilling_np: Any
    has_prefill: Any
    decode_graph_eligible: Any
    input_ids: Any
    positions: Any
    is_padding: Any
    logits_indices: Any
    cu_num_logits: Any
    cu_num_logits_np: Any
    has_structured_output_reqs: Any
    prompt_lens: Any
    max_seq_len_np: Any = None
    fast_prefill: Any = None
    prefill_runs_as_decode_np: Any = None

    @staticmethod
    def make_dummy(reqs: int, tokens: int, buffers: Any) -> None:
        """Write into the buffers, as a dummy batch does."""
        buffers.input_ids[:tokens].zero_()
        buffers.positions[:tokens].zero_()
        buffers.is_padding[:tokens] = True
        buffers.seq_lens[:reqs], buffers.seq_lens[reqs:] = 1, 0
        buffers.query_start_loc[:reqs] = torch.arange(reqs)
        buffers.query_start_loc[reqs:] = tokens


class _Alternating:
    """A tensor of the host with two of the device, in turn the one that was copied last."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.np = np.zeros(rows, np.int32)
        self._both = [torch.zeros(rows, dtype=torch.int32, device=device) for _ in range(2)]
        self.gpu = self._both[0]

    def copy(self) -> None:
        self._both.reverse()
        self._both[0].copy_(torch.from_numpy(self.np))
        self.gpu = self._both[0][:]


class StandInState:
    """`RequestState`."""

    def __init__(
        self, rows: int, length: int, _: int, drafts: int, __: int, device: Any, ahead: int
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.req_id_to_index: dict[str, int] = {}
        self.free_indices = list(range(rows))
        self.prompt_len, self.prefill_len = _Alternating(rows, device), _Alternating(rows, device)
        self.num_computed_tokens = SimpleNamespace(gpu=zeros(rows))
        self.total_len = SimpleNamespace(gpu=zeros(rows))
        self.all_token_ids = SimpleNamespace(gpu=zeros(rows, length))
        self.num_computed_tokens_np = np.zeros(rows, np.int32)
        self.num_computed_prefill_tokens = np.zeros(rows, np.int32)
        self.last_sampled_tokens = zeros(rows, 1, dtype=torch.int64)
        self.draft_tokens = zeros(rows, drafts, dtype=torch.int64)
        self.next_prefill_tokens = zeros(ahead, rows)

    def add_request(self, name: str, prompt: int, tokens: list[int], computed: int, _: int) -> None:
        """Give a request a row."""
        row = self.req_id_to_index[name] = self.free_indices.pop()
        self.prompt_len.np[row], self.prefill_len.np[row] = prompt, len(tokens)
        self.all_token_ids.gpu[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.num_computed_tokens_np[row] = computed

    def remove_request(self, name: str) -> None:
        """Free its row."""
        self.free_indices.append(self.req_id_to_index.pop(name))

    def apply_staged_writes(self) -> None:
        """Copy what the host has changed."""
        self.prompt_len.copy()
        self.prefill_len.copy()


def stand_in_inputs(runner: Any, step: Any, state: Any, sizes: Any, loras: int) -> StandInBatch:
    """Prepare inputs by the reference, in the place of vLLM's `prepare_inputs`."""
    from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
    from bt_kernels.batch_inputs.layout import InputLayout
    from bt_kernels.batch_inputs.variants.reference import Variant

    states, layout = runner.req_states, runner.inputs
    requests = RequestTensors(
        *(states.num_computed_tokens.gpu, states.prefill_len.gpu, states.all_token_ids.gpu),
        *(states.last_sampled_tokens, states.draft_tokens, states.next_prefill_tokens),
    )
    named = [each.name for each in fields(InputLayout)]
    marks = InputLayout(
        **{name: getattr(layout, name) for name in named}
        | {"marks_padding": envs.VLLM_MOE_SKIP_PADDING}
    )
    buffers: Any = runner.input_buffers
    reference = Variant(
        *(runner.tables_layout, marks, requests, "cpu"),
        InputBuffers(*(getattr(buffers, each.name) for each in fields(InputBuffers))),
    )
    drafts = state.num_draft_tokens_np
    if drafts is None and layout.num_new_sampled_tokens == 0:
        drafts = np.zeros(len(state.req_ids), np.int32)
    num_reqs = len(state.req_ids)
    padded = sizes.num_reqs or num_reqs
    if drafts is not None:
        assert (state.num_scheduled_tokens >= drafts + layout.num_new_sampled_tokens).all()
    made = reference.prepare_inputs(
        *(state.idx_mapping_np, state.num_scheduled_tokens, state.prefill_len_np),
        *(state.has_prefill, drafts, padded, max(state.num_tokens, sizes.num_tokens)),
    )
    computed = states.num_computed_tokens_np[state.idx_mapping_np]
    most = np.zeros(padded, np.int32)
    most[:num_reqs] = computed + state.num_scheduled_tokens
    staged = runner.fast_prefill and runner.fast_prefill.prepare(
        *(made.logits_indices, num_reqs, made.cu_num_logits_np, state.has_prefill, sizes, loras)
    )
    of_prompts = runner.model_config.rswa_window is not None
    known = made._asdict()
    for name in ("block_tables", "slot_mappings"):
        del known[name]
    return StandInBatch(
        **known,
        req_ids=state.req_ids,
        num_reqs=num_reqs,
        num_reqs_after_padding=padded,
        idx_mapping_np=state.idx_mapping_np,
        num_scheduled_tokens=state.num_scheduled_tokens,
        num_tokens=state.num_tokens,
        num_tokens_after_padding=len(made.positions),
        num_draft_tokens_per_req=drafts,
        seq_lens_cpu_upper_bound=torch.from_numpy(most),
        dcp_local_seq_lens=None,
        num_computed_tokens_np=computed,
        prefill_len_np=state.prefill_len_np,
        num_computed_prefill_tokens_np=state.num_computed_prefill_tokens_np,
        is_prefilling_np=state.is_prefilling_np,
        has_prefill=state.has_prefill,
        decode_graph_eligible=state.decode_graph_eligible,
        has_structured_output_reqs=step.has_structured_output_requests,
        prompt_lens=states.prompt_len.gpu[made.idx_mapping] if of_prompts else None,
        max_seq_len_np=state.max_seq_len_np,
        fast_prefill=staged,
        prefill_runs_as_decode_np=state.prefill_runs_as_decode_np,
    )
