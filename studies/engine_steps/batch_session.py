"""A sequence of steps whose whole batches the plugin prepares for one runner, and vLLM for another.

Compared are all buffers, whole, and every field of the batches. New tensors of each batch are held,
and compared again at the end.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from beside.input_session import engine_of
from fuzz.comparison import Comparison, Difference
from support.vllm_batches import BatchStep, envs, write_batch_package
from support.vllm_readers import PERSISTENT as GATHERS_ONLY
from support.vllm_readers import READERS
from support.vllm_runner import imported_from

from bt_bench.suites.batch_preparation.workloads.conformance import workload_of
from bt_kernels.batch_inputs.interface import NEW
from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import settings
from engine_steps.session import FAILS, PLANTED, REMOVED, plugged

KINDS = {"step": 0.8, "no tokens": 0.06, "no rank has tokens": 0.04, "dummy": 0.06, "pcp": 0.04}
VIEWS = ("input_ids", "positions", "is_padding", "query_start_loc", "seq_lens")
OUTPUTS = (*VIEWS, *NEW, "next_prefill_tokens", "block_tables", "slot_mappings")
"""Where a wrong bit is planted."""

_EVENTS = {"": 0.6, PLANTED: 0.24, FAILS: 0.08, REMOVED: 0.08}


@contextmanager
def batch_package(wheel: Path | None) -> Iterator[Callable[[str], ModuleType]]:
    """Let modules of a package `vllm` be imported, as `engine_package` does."""
    with (
        tempfile.TemporaryDirectory() as folder,
        imported_from(write_batch_package(Path(folder), wheel)) as module,
    ):
        yield module


class BatchSession:
    """Two runners that prepare the same batches; the first by the plugin.

    Args:
        runner: their class, from the package that the plugin acts on.
        device: where both are.
        rng: generator of everything that is drawn.
        num_steps: how many steps `play` makes.

    Attributes:
        mode, event: of the plugin in this sequence; set them before `play` to choose.
        seen: counts of what was made.
    """

    def __init__(
        self, runner: type[Any], device: torch.device, rng: np.random.Generator, num_steps: int
    ) -> None:
        self._runner, self._device, self._rng = runner, device, rng
        self.engine = replace(engine_of(rng, num_steps, large=device.type == "cuda"), repeats=False)
        self.workload = workload_of(self.engine, rng)
        self.mode = str(rng.choice((settings.ON, settings.SHADOW)))
        self.shadow_steps = max(1, int(num_steps * rng.choice((0.3, 0.5, 2))))
        self.event = str(rng.choice(list(_EVENTS), p=list(_EVENTS.values())))
        self.event_at = int(rng.integers(0, max(1, num_steps // 2)))
        self.planted = str(rng.choice(OUTPUTS))
        self.seen: Counter[str] = Counter()
        self._comparison = Comparison(device)
        self._others: list[Difference] = []
        self._number, self._kind, self._happened = 0, "", False
        self._held: list[tuple[int, Any, Any, dict[str, torch.Tensor]]] = []

    def play(self) -> Iterator[Difference]:
        """Play the steps; yield the differences."""
        if self.event == PLANTED:  # in mode `on` it would be used
            self.mode, self.shadow_steps = settings.SHADOW, 10**6
        before = envs.VLLM_MOE_SKIP_PADDING
        envs.VLLM_MOE_SKIP_PADDING = self.engine.marks_padding
        try:
            with plugged(self.mode, self.shadow_steps, **{settings.INPUTS: "on"}):
                yield from self._play()
        finally:
            envs.VLLM_MOE_SKIP_PADDING = before

    def _play(self) -> Iterator[Difference]:
        rng = self._rng
        options = {"fast_prefill": rng.random() < 0.3, "window": rng.random() < 0.3}
        ours = self._runner(self.workload, device=self._device, **options)
        kind = self._runner.tables_class()
        theirs = self._runner(self.workload, getattr(kind, "theirs", kind), self._device, **options)
        self._both = ours, theirs
        if getattr(ours.block_tables, "_inputs", None) is None:
            raise RuntimeError("the plugin does not prepare batches")
        last = None
        for number, inputs in enumerate(self.workload.steps):
            self._number = number
            if number == self.event_at:
                self._begin_event()
            kinds = KINDS if last is not None else {"step": 1.0}
            self._kind = str(rng.choice(list(kinds), p=list(kinds.values())))
            if self._kind == "dummy":
                if last is not None and last.num_reqs_padded <= last.num_tokens_padded:
                    self._make(BatchStep(last, "dummy", number))
                    yield from self._read()
                self._kind = "step"
            self._make(self._step(inputs))
            yield from self._read()
            last = inputs
        yield from self._check_end()

    def _step(self, inputs: Any) -> BatchStep:
        rng = self._rng
        after = None
        if self._kind == "step" and rng.random() < 0.06:
            names = [name for name in READERS if name != GATHERS_ONLY]
            name = str(rng.choice(names))
            after = READERS[name]
            self.seen[f"reader after the apply: {name}"] += 1
        exact = inputs.num_reqs_padded == inputs.num_reqs and rng.random() < 0.5
        writes = self._writer() if rng.random() < 0.3 else None
        self.seen["steps with drafts"] += inputs.num_drafts is not None
        self.seen["steps with prefills"] += inputs.has_prefill
        self.seen["steps padded"] += inputs.num_tokens_padded > inputs.num_tokens
        self.seen["steps before which others write"] += writes is not None
        return BatchStep(inputs, self._kind, self._number, exact, writes, after)

    def _writer(self) -> Callable[[Any], None]:
        """Return a function that writes into a runner's buffers, as speculators do."""
        seed = int(self._rng.integers(2**31))

        def write(runner: Any) -> None:
            rng = np.random.default_rng(seed)
            buffers = [getattr(runner.input_buffers, name) for name in VIEWS]
            buffers += [runner.req_states.next_prefill_tokens, runner.block_tables.slot_mappings]
            for tensor in buffers:
                if rng.random() < 0.6:
                    values = torch.tensor(rng.integers(0, 99, tuple(tensor.shape)))
                    tensor.copy_(values > 49 if tensor.dtype is torch.bool else values)

        return write

    def _make(self, step: BatchStep) -> None:
        found = [runner.make(replace(step)) for runner in self._both]
        self._same("results", *found)
        pairs = zip(*(runner.named_buffers() for runner in self._both), strict=True)
        for (name, mine), (_, other) in pairs:
            self._comparison.add(self._number, self._kind, name, mine, other)
        self.seen[f"step: {step.kind}"] += 1
        batch = next((each for each in found[0] if is_dataclass(each)), None)
        if batch is not None and step.kind == "step":
            mine, other = self._both[0].input_buffers, batch
            for name in VIEWS:
                self._same(
                    f"address of {name}",
                    getattr(other, name).data_ptr(),
                    getattr(mine, name).data_ptr(),
                )
            other = next(each for each in found[1] if is_dataclass(each))
            copies = {name: getattr(other, name).clone() for name in NEW}
            self._held.append((self._number, batch, other, copies))

    def _read(self) -> Iterator[Difference]:
        yield from self._others
        self._others = []
        yield from self._comparison.read()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    # Events

    def _begin_event(self) -> None:
        if self.event == REMOVED:
            self._happened = True
            plugin.remove()
            return
        tables = self._both[0].block_tables
        found = tables._inputs
        inputs = getattr(found, "_ours", found).inputs
        correct = inputs.prepare
        if self.event == FAILS:
            inputs.prepare = self._fail
        elif self.event == PLANTED:
            inputs.prepare = lambda *given: self._wrong(inputs, correct(*given))

    def _fail(self, *_: Any) -> Any:
        self._happened = True
        raise ValueError("planted by the study")

    def _wrong(self, inputs: Any, batch: Any) -> Any:
        name = self.planted
        if name == "next_prefill_tokens":
            target = inputs.requests.next_prefill_tokens
        elif name in VIEWS:
            target = getattr(inputs.buffers, name)
        elif name == "block_tables":
            target = inputs.tables.input_block_tables[-1]
        elif name == "slot_mappings":
            target = inputs.tables.slot_mappings
        else:
            target = getattr(batch, name).clone()
            batch = batch._replace(**{name: target})
        if target.numel() and not self._happened:
            self._happened = True
            flat = target.view(-1)
            place = int(self._rng.integers(len(flat)))
            flat[place] = ~flat[place] if flat.dtype is torch.bool else flat[place] ^ 4
            self.seen[f"planted: {name}"] += 1
        return batch

    def _check_end(self) -> Iterator[Difference]:
        for number, mine, _, copies in self._held:
            for name, wanted in copies.items():
                self._comparison.add(number, "held", name, getattr(mine, name), wanted)
        counts = plugin.counters()
        expected = {
            "differences": self._happened and self.event == PLANTED,
            "failures": self._happened and self.event == FAILS,
        }
        for name, value in expected.items():
            self._same(f"counters()[{name!r}]", counts[name], int(value))
        for name in ("steps", "launches", "prepared", "fused", "compared"):
            self.seen[f"counter: {name}"] += counts[name]
        for reason, count in counts["fallbacks"].items():
            self.seen[f"fallback: {reason}"] += count
        self.seen[f"mode: {self.mode}"] += 1
        self.seen["planted bits"] += self._happened and self.event == PLANTED
        self.seen["planted bits that shadow mode found"] += counts["differences"]
        self.seen["sequences in which ours fails"] += self._happened and self.event == FAILS
        self.seen["sequences in which the plugin is taken out"] += self.event == REMOVED
        yield from self._read()

    def _same(self, name: str, found: Any, expected: Any) -> None:
        """Compare results: tensors, batches, arrays, sequences and values of the host."""
        if is_dataclass(expected):
            for each in fields(expected):
                mine, other = (getattr(batch, each.name, None) for batch in (found, expected))
                self._same(each.name, mine, other)
            return
        if isinstance(expected, np.ndarray):
            found = (found.dtype, found.tolist()) if found is not None else None
            expected = expected.dtype, expected.tolist()
        elif isinstance(expected, torch.Tensor):
            if found.shape == expected.shape and found.dtype == expected.dtype:
                where = self._number, self._kind, name
                self._comparison.add(*where, found, expected)
                return
            found, expected = (found.shape, found.dtype), (expected.shape, expected.dtype)
        elif isinstance(expected, (list, tuple)) and len(found) == len(expected):
            for place, (mine, other) in enumerate(zip(found, expected, strict=True)):
                self._same(f"{name}[{place}]", mine, other)
            return
        if found != expected:
            self._others.append(Difference(self._number, self._kind, name, 1, 0, found, expected))
