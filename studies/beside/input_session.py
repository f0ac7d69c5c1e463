"""A sequence of steps that vLLM's preparation of batches and ours make side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bt_bench.suites.batch_preparation.inputs import Requests, StepInputs, inputs_on
from bt_bench.suites.batch_preparation.workloads.conformance import Engine, workload_of
from bt_bench.suites.batch_preparation.workloads.workload import InputWorkload
from bt_bench.suites.block_tables.checking.buffers import tensors_of
from bt_kernels.batch_inputs.interface import NEW, PERSISTENT

LATE_CYCLES = 2_000_000  # of the GPU's clock, about a millisecond

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Difference:
    """A tensor that differs after a step.

    Args:
        step: number of the step in its sequence.
        what: the step's kind.
        name: the tensor.
        detail: the first element that differs.
    """

    step: int
    what: str
    name: str
    detail: str


def engine_of(rng: np.random.Generator, num_steps: int, *, large: bool) -> Engine:
    """Draw an engine.

    Args:
        rng: source of its sizes.
        num_steps: steps of the sequence.
        large: draw the sizes of a GPU, not those that are interpreted.
    """
    drafts = int(rng.choice([0, 0, 1, 2, 3, 5, 8]))
    tokens = int(rng.choice([40, 64, 90] if not large else [256, 2048, 8192]))
    requests = int(rng.integers(1, 9 if not large else 257))
    groups = int(rng.choice([1, 1, 2, 3]))
    # With smaller blocks, tables of a GPU's sizes would be large: each step is kept whole.
    known = [16, 16, 64, 256] if large else [1, 4, 8, 16, 64]
    sizes = tuple(int(size) for size in rng.choice(known, groups))
    windows = rng.random() < 0.4
    long_prompt = not large and rng.random() < 0.03
    length = 3000 if long_prompt else (120 if not large else 8192)
    return Engine(
        max_num_reqs=min(requests, 3) if long_prompt else requests,
        max_num_tokens=2600 if long_prompt else tokens,
        max_model_len=length,
        block_sizes=tuple(max(size, 16) for size in sizes) if long_prompt else sizes,
        reaches=tuple(int(rng.integers(0, 20)) for _ in sizes) if windows else (),
        drafts=drafts,
        lookahead=int(rng.choice([1, 1, 2, 3, 7])),
        bonus=int(rng.random() > 0.1) if drafts else 1,
        marks_padding=rng.random() < 0.8,
        prompt=2700 if long_prompt else int(rng.choice([3, 12, length // 2])),
        pads=rng.random() < 0.8,
        repeats=rng.random() < 0.3,
        num_steps=num_steps,
    )


@dataclass(frozen=True)
class Choice:
    """A step, and how it is made.

    Args:
        step: the step.
        fill: the value of all outputs before it; `None`: as the last step left them.
        dummy: requests and tokens of a dummy batch before it; `None`: there is none.
        early: writes that a step without tokens applies before it.
        in_parts: ours makes it by separate calls for inputs and tables.
        again: inputs are prepared once more.
    """

    step: StepInputs
    fill: int | None
    dummy: tuple[int, int] | None
    early: int
    in_parts: bool
    again: bool


@dataclass
class Side:
    """One of the two that prepare the same batches.

    Args:
        variant: its object.
        requests: the state of its requests.

    Attributes:
        results: the batches that its calls returned, by step.
        kept: by step, copies of the outputs that were new, made at once.
        reads: by step, copies of all other outputs.
        reader: reads them.
    """

    variant: Any
    requests: Requests
    results: list[Any] = field(default_factory=list)
    kept: list[Tensors] = field(default_factory=list)
    reads: list[Tensors] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = Reader(self.outputs())

    def fill(self, value: int) -> None:
        """Fill all outputs with a value."""
        for name, tensor in self.outputs().items():
            if not name.startswith("block_tables"):
                tensor.fill_(bool(value % 2) if tensor.dtype is torch.bool else value)

    def outputs(self) -> Tensors:
        """Return all persistent tensors by name, tables and slots among them."""
        buffers = self.variant.buffers
        names = (*PERSISTENT, "dcp_local_seq_lens")
        found: Tensors = {name: getattr(buffers, name) for name in names}
        found["next_prefill_tokens"] = self.requests.tensors.next_prefill_tokens
        return found | tensors_of(self.variant.tables)

    def state(self) -> Tensors:
        """Return what no call may change."""
        return {**self.requests.by_step(), "sequences": self.requests.sequences}


class Reader:
    """Reads buffers as a captured graph of the model does, which knows their addresses alone.

    Without a GPU, it reads tensors that it has found at the beginning.

    Args:
        buffers: the buffers, as they are before the first step.
    """

    def __init__(self, buffers: Mapping[str, torch.Tensor]) -> None:
        self._buffers = dict(buffers)
        self._read = {name: torch.empty_like(each) for name, each in buffers.items()}
        self._graph: torch.cuda.CUDAGraph | None = None
        if next(iter(buffers.values())).is_cuda:
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._copy()

    def _copy(self) -> None:
        for name, tensor in self._read.items():
            tensor.copy_(self._buffers[name])

    def read(self) -> Tensors:
        """Return copies of the buffers, in the order of the stream."""
        if self._graph is None:
            self._copy()
        else:
            self._graph.replay()
        return {name: tensor.clone() for name, tensor in self._read.items()}


class InputSession:
    """A sequence of an engine's steps.

    Args:
        theirs: vLLM's functions as a variant.
        ours: a variant of ours.
        rng: source of all choices.
        device: where both live.
        num_steps: steps to make.

    Attributes:
        seen: counts of what was made.
    """

    def __init__(
        self,
        theirs: type[Any],
        ours: type[Any],
        rng: np.random.Generator,
        device: torch.device,
        num_steps: int,
    ) -> None:
        self.seen: Counter[str] = Counter()
        self.engine = engine_of(rng, num_steps, large=device.type == "cuda")
        self.workload: InputWorkload = workload_of(self.engine, rng)
        self._rng = rng
        self._late = device.type == "cuda" and rng.random() < 0.5
        self._dirty = rng.random() < 0.5
        layouts = self.workload.table_layout, self.workload.layout
        of_theirs, of_ours = (
            Requests.of(self.workload.layout, self.workload.tokens, device) for _ in range(2)
        )
        # As in an engine, ours prepares buffers that vLLM has made.
        made = theirs.InputBuffers(self.engine.max_num_reqs, self.engine.max_num_tokens, device)
        self._theirs = Side(theirs(*layouts, of_theirs.tensors, device), of_theirs)
        self._ours = Side(ours(*layouts, of_ours.tensors, device, made), of_ours)
        self._sides = self._theirs, self._ours
        self._choices = [self._choose(step) for step in inputs_on(device, self.workload)]

    def play(self) -> Iterator[Difference]:
        """Make all steps; yield what differs.

        Where the device is late, ours makes all of its steps before anything waits. vLLM's tables
        cannot do that: they write to pinned memory that an earlier step may still have to read.
        """
        if self._late:
            for side in self._sides:
                for choice in self._choices:
                    self._make(side, choice)
            yield from self._compared(range(len(self._choices)))
        else:
            for number, choice in enumerate(self._choices):
                for side in self._sides:
                    self._make(side, choice)
                yield from self._compared([number])
        yield from self._kept_differences()

    def _make(self, side: Side, choice: Choice) -> None:
        """Make a step on a side."""
        is_ours, step = side is self._ours, choice.step
        if choice.fill is not None:
            side.fill(choice.fill)
        if choice.dummy is not None:
            self._theirs.variant.make_dummy(*choice.dummy, side.variant.buffers)
            side.variant.tables.get_dummy_block_tables(choice.dummy[0])
            side.variant.tables.get_dummy_slot_mappings(choice.dummy[1])
        for append in step.appends[: choice.early]:
            side.variant.append_block_ids(append.row, append.block_ids, append.overwrite)
        if choice.early:  # a step without tokens, which applies writes
            side.variant.tables.apply_staged_writes()
        for append in step.appends[choice.early :]:
            side.variant.append_block_ids(append.row, append.block_ids, append.overwrite)
        side.requests.take(step)
        if self._late and is_ours:
            torch.cuda._sleep(LATE_CYCLES)
        if choice.in_parts and is_ours:
            batch = self._in_parts(side.variant, step)
        else:
            batch = side.variant.prepare(*step.arguments())
        if choice.again:
            side.variant.prepare_inputs(*step.arguments())
        side.results.append(batch)
        side.kept.append({name: getattr(batch, name).clone() for name in NEW})
        side.reads.append(side.reader.read())
        if self._late and not is_ours:
            torch.cuda.synchronize()

    def _in_parts(self, variant: Any, step: StepInputs) -> Any:
        """Prepare inputs, and gather and compute slots by the calls of block tables."""
        variant.tables.apply_staged_writes()
        batch = variant.prepare_inputs(*step.arguments())
        tables, slots = variant.tables.gather_and_compute_slot_mappings(
            batch.idx_mapping,
            batch.query_start_loc,
            batch.positions,
            step.num_reqs_padded,
            step.num_tokens_padded,
            num_computed_tokens=variant.requests.num_computed_tokens,
        )
        return batch._replace(block_tables=tables, slot_mappings=slots)

    def _compared(self, numbers: Iterable[int]) -> Iterator[Difference]:
        """Yield what differs in some steps, and in the state that no step may change."""
        theirs, ours = self._sides
        for number in numbers:
            what = "ours in parts" if self._choices[number].in_parts else "whole"
            for name, wanted in theirs.reads[number].items():
                yield from _difference(number, what, name, ours.reads[number][name], wanted)
            yield from self._result_differences(number, what)
        for name, wanted in theirs.state().items():
            found = ours.state()[name]
            yield from _difference(len(ours.results) - 1, "state", name, found, wanted)

    def _result_differences(self, number: int, what: str) -> Iterator[Difference]:
        theirs, ours = (side.results[number] for side in self._sides)
        for name in NEW:
            found, wanted = getattr(ours, name), getattr(theirs, name)
            if found.dtype != wanted.dtype:
                yield Difference(number, what, name, f"{found.dtype}, expected {wanted.dtype}")
            yield from _difference(number, what, name, found, wanted)
        for name in ("query_start_loc_np", "cu_num_logits_np", "num_draft_tokens"):
            if not np.array_equal(getattr(ours, name), getattr(theirs, name)):
                yield Difference(number, what, name, f"{getattr(ours, name)}")
        views = {name: getattr(self._ours.variant.buffers, name) for name in PERSISTENT}
        for name, whole in views.items():
            view, wanted = getattr(ours, name), getattr(theirs, name)
            if view.shape != wanted.shape or view.data_ptr() != whole.data_ptr():
                yield Difference(number, what, name, "is not a view of its buffer, in this size")
        tables = zip((*ours.block_tables, ours.slot_mappings), self._table_views(ours), strict=True)
        sizes = (*theirs.block_tables, theirs.slot_mappings)
        for (view, whole), wanted in zip(tables, sizes, strict=True):
            if view.shape != wanted.shape or view.data_ptr() != whole.data_ptr():
                yield Difference(number, what, "tables", "a view is not of its buffer")

    def _table_views(self, _batch: Any) -> list[torch.Tensor]:
        tables = self._ours.variant.tables
        return [*tables.input_block_tables, tables.slot_mappings]

    def _kept_differences(self) -> Iterator[Difference]:
        """Yield outputs of earlier steps that a later one has changed, while they were held."""
        for number, (batch, kept) in enumerate(
            zip(self._ours.results, self._ours.kept, strict=True)
        ):
            for name, wanted in kept.items():
                yield from _difference(number, "held", name, getattr(batch, name), wanted)

    def _choose(self, step: StepInputs) -> Choice:
        """Draw how a step is made, the same way on both sides."""
        rng, engine = self._rng, self.engine
        fill = int(rng.integers(-(2**31), 2**31)) if self._dirty else None
        dummy = None
        if rng.random() < 0.12:
            reqs = int(rng.integers(1, engine.max_num_reqs + 1))
            if reqs <= engine.max_num_tokens:
                most = min(engine.max_num_tokens, reqs + 9)
                dummy = reqs, int(rng.integers(reqs, most + 1))
        early = int(rng.random() < 0.15 and len(step.appends) > 0)
        choice = Choice(step, fill, dummy, early, bool(rng.random() < 0.2), rng.random() < 0.15)
        self._note(choice)
        return choice

    def _note(self, choice: Choice) -> None:
        step = choice.step
        computed = step.num_computed_tokens.cpu().numpy()[step.rows]
        ends = computed + step.query_lens
        tails = (step.prefill_lens > computed) & (step.prefill_lens < ends)
        features = {
            "step: ours in parts": choice.in_parts,
            "step: whole": not choice.in_parts,
            "dummy batches": choice.dummy is not None,
            "steps without tokens": choice.early > 0,
            "steps prepared again": choice.again,
            "steps of a late device": self._late,
            "steps with drafts": step.num_drafts is not None,
            "steps with a prompt's tail and drafts": step.num_drafts is not None
            and bool((tails & (step.num_drafts > 0)).any()),
            "steps with a prefill": step.has_prefill,
            "steps with a row twice": len(set(step.rows.tolist())) < len(step.rows),
            "steps padded": step.num_tokens_padded > int(step.query_lens.sum()),
            "steps without logits": self.engine.bonus == 0 and step.num_drafts is None,
        }
        self.seen.update({name: int(true) for name, true in features.items()})


def _difference(
    number: int, what: str, name: str, found: torch.Tensor, wanted: torch.Tensor
) -> Iterator[Difference]:
    if found.shape != wanted.shape:
        yield Difference(number, what, name, f"{tuple(found.shape)}, not {tuple(wanted.shape)}")
    elif not torch.equal(found, wanted):
        where = tuple((found != wanted).nonzero()[0].tolist())
        detail = f"[{where}] is {found[where].item()}, expected {wanted[where].item()}"
        yield Difference(number, what, name, detail)
