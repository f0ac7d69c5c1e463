"""A sequence of steps that two runners make, one with the plugin, compared after each step."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from beside.draw import Batch, Drawn, Rng, Scheduler
from fuzz.comparison import Comparison, Difference
from support.vllm_readers import PERSISTENT, READERS, REPLACES, drafts
from support.vllm_runner import Step

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, messages, settings

KINDS = {"step": 0.7, "no tokens": 0.1, "no rank has tokens": 0.06, "dummy": 0.07, "pcp": 0.07}
PLANTED, FAILS, REMOVED = "planted", "fails", "removed"
EVENTS = {
    PLANTED: "planted bits",
    FAILS: "sequences in which an operation of ours fails",
    REMOVED: "sequences in which the plugin is taken out",
}
"""Events of some sequences, and the name that each is counted by.

Shadow mode must find a planted bit. In each case vLLM's class must go on, with equal results.

Events begin between steps. `tests/kernels/engines/plugin/test_events.py` has those within a step.
Neither overwrites ids before they are applied with fewer: vLLM's class also writes those behind,
which no row has, and ours does not.
"""

_MODES = {settings.ON: 0.6, settings.SHADOW: 0.4}
_EVENT_CHANCE = 0.06  # of each
_PLANTED_CHANCE = 0.1  # of a sequence in shadow mode


@contextmanager
def plugged(mode: str, shadow_steps: int, **variables: str) -> Iterator[None]:
    """Load the plugin with a mode, and take it out at the end."""
    given = {settings.MODE: mode, settings.SHADOW_STEPS: str(shadow_steps), **variables}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    counting.reset()
    messages.forget()
    try:
        plugin.load()
        yield
    finally:
        plugin.remove()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class EngineSession:
    """Two runners of one layout; the first has the plugin's tables, the second vLLM's own.

    Args:
        runner: the runner's class, from the package `vllm` that the plugin acts on.
        drawn: the layout.
        device: device of the tables.
        rng: generator of everything that is drawn.
        num_steps: how many steps `play` makes.
        captures: whether slots of drafts are captured in graphs, or calls.
    """

    def __init__(
        self,
        runner: type[Any],
        drawn: Drawn,
        device: torch.device,
        rng: Rng,
        num_steps: int,
        *,
        captures: bool,
    ) -> None:
        self._captures = captures
        self._runner, self._drawn, self._device, self._rng = runner, drawn, device, rng
        self._num_steps = num_steps
        self.seen: Counter[str] = Counter()
        self._has_groups = bool(drawn.layout.num_groups)
        self.mode = str(rng.choice(list(_MODES), p=list(_MODES.values())))
        # Most of the steps after shadow mode are those of an engine that runs on.
        self.shadow_steps = max(1, int(num_steps * rng.choice((0.2, 0.4, 2))))
        self.event = self._draw_event()
        self.event_at = int(rng.integers(0, max(1, num_steps // 2)))
        if self.event == PLANTED:
            self.shadow_steps = 2 * num_steps
        self._comparison = Comparison(device)
        self._others: list[Difference] = []
        self._number, self._kind, self._happened = 0, "", False
        self._batch: Batch | None = None
        self._graphs: list[DraftGraph] | None = None

    def _draw_event(self) -> str:
        if not self._has_groups:
            return ""
        chance = self._rng.random()
        if self.mode == settings.SHADOW and chance < _PLANTED_CHANCE:
            return PLANTED
        if chance > 1 - 2 * _EVENT_CHANCE:
            return REMOVED if chance < 1 - _EVENT_CHANCE else FAILS
        return ""

    def play(self) -> Iterator[Difference]:
        """Play the steps; yield the differences."""
        with ExitStack() as stack:
            variables = {}
            if self.event == PLANTED:  # its repro file is of no use
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                variables[settings.REPRO] = folder
            stack.enter_context(plugged(self.mode, self.shadow_steps, **variables))
            ours = self._runner(self._drawn.layout, device=self._device)
            theirs_kind = self._runner.tables_class()
            theirs_kind = getattr(theirs_kind, "theirs", theirs_kind)
            theirs = self._runner(self._drawn.layout, theirs_kind, self._device)
            self._both = ours, theirs
            if self._has_groups and type(ours.block_tables) is theirs_kind:
                raise RuntimeError("the plugin did not replace the tables")
            scheduler = Scheduler(self._rng, self._drawn, Counter())
            for number in range(self._num_steps):
                self._number = number
                if number == self.event_at:
                    self._begin_event()
                self._step(scheduler)
                # vLLM's host may be ahead by two applies and no more, so a step is waited for.
                yield from self._read()
            yield from self._check_end(theirs_kind)
            self._count()

    def _read(self) -> Iterator[Difference]:
        yield from self._others
        self._others = []
        yield from self._comparison.read()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _step(self, scheduler: Scheduler) -> None:
        rng = self._rng
        self._kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
        if self._kind == "dummy" and self._batch is None:
            self._kind = "step"
        if self._kind != "dummy":  # it has no new blocks, so the scheduler decides nothing
            self._batch = scheduler.schedule()
        batch = self._batch
        readers: dict[str, Callable[[Any], Any]] = {}
        if self._has_groups and self._kind == "step" and rng.random() < 0.15:
            readers = self._draw_readers()
        redirects = self._kind == "step" and rng.random() < 0.05
        writes = self._has_groups and rng.random() < 0.1
        found = []
        for runner in self._both:
            runner.block_tables.redirect_writes_to_null_block = redirects
            if writes:
                self._write_as_others(runner.block_tables)
            found.append(runner.make(Step(batch, self._kind, **readers)))
        self._same(f"results of the step{' with a reader' * bool(readers)}", *found)
        self._compare()
        self.seen[f"step: {self._kind}"] += 1
        self.seen["steps with redirected writes"] += redirects
        self.seen["steps after which others write"] += writes
        if not self._has_groups or self._kind != "step":
            return
        if rng.random() < 0.3:
            self._same("drafts", *(drafts(runner.block_tables, batch) for runner in self._both))
            self.seen["steps with drafts"] += 1
            self._compare()
        if rng.random() < 0.2:
            self._replay(batch)

    def _draw_readers(self) -> dict[str, Callable[[Any], Any]]:
        moment = str(self._rng.choice(("after_apply", "between")))
        names = [name for name in READERS if (name, moment) != (PERSISTENT, "between")]
        name = str(self._rng.choice(names))
        self.seen[f"reader {moment}: {name}"] += 1
        if name == REPLACES:
            self._graphs = None  # they have the old addresses
        return {moment: READERS[name]}

    @staticmethod
    def _write_as_others(tables: Any) -> None:
        with torch.inference_mode():
            tables.input_block_tables[0][:, :1] = 77
            tables.slot_mappings[:, -1:] = 5

    def _replay(self, batch: Any) -> None:
        """Map slots as a drafter does, in a captured graph or by calls."""
        if self._graphs is None:
            self._graphs = [
                DraftGraph(runner.block_tables, self._device, captures=self._captures)
                for runner in self._both
            ]
        for graph in self._graphs:
            graph.replay(batch.rows, batch.starts)
        self.seen["replays of drafts" if self._captures else "drafts by calls"] += 1
        self._compare()

    # Events

    def _begin_event(self) -> None:
        ours = self._both[0].block_tables
        if self.event == PLANTED:
            variant = ours._shadow.ours._variant
            variant._quick = None  # C would not look at the method
            variant.prepare_step = partial(self._wrong, variant, variant.prepare_step)
        elif self.event == FAILS:
            shadow = vars(ours).get("_shadow")
            variant = (ours if shadow is None else shadow.ours)._variant
            variant._quick, variant.prepare_step = None, self._fail
        elif self.event == REMOVED:
            self._happened = True
            plugin.remove()

    def _wrong(self, variant: Any, correct: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._happened = True
        found = correct(*args, **kwargs)
        variant.slot_mappings[-1, -1] ^= 4
        return found

    def _fail(self, *_: Any, **__: Any) -> Any:
        self._happened = True
        raise ValueError("planted by the study")

    def _check_end(self, theirs: type[Any]) -> Iterator[Difference]:
        counts = plugin.counters()
        expected = {
            "differences": self._happened and self.event == PLANTED,
            "failures": self._happened and self.event == FAILS,
            "tables": self._has_groups,
        }
        for name, value in expected.items():
            if counts[name] != value:
                yield Difference(
                    self._number, "end", f"counters()[{name!r}]", 1, 0, counts[name], int(value)
                )
        is_theirs = type(self._both[0].block_tables) is theirs
        should_be = self._happened or not self._has_groups
        if is_theirs != should_be:
            yield Difference(self._number, "end", "whose tables", 1, 0, is_theirs, should_be)

    def _count(self) -> None:
        counts = plugin.counters()
        for name in ("steps", "launches", "fused", "deferred", "compared"):
            self.seen[f"counter: {name}"] += counts[name]
        for name, count in counts["settled"].items():
            self.seen[f"settled: {name}"] += count
        self.seen[f"mode: {self.mode}"] += 1
        for event, name in EVENTS.items():
            self.seen[name] += self._happened and self.event == event
        self.seen["planted bits that shadow mode found"] += counts["differences"]

    # Comparing

    def _compare(self) -> None:
        pairs = zip(*(runner.named_buffers() for runner in self._both), strict=True)
        for (name, mine), (_, other) in pairs:
            self._comparison.add(self._number, self._kind, name, mine, other)

    def _same(self, name: str, found: Any, expected: Any) -> None:
        """Compare results that consist of tensors, sequences, and values of the host."""
        if isinstance(expected, torch.Tensor):
            if found.shape == expected.shape and found.dtype == expected.dtype:
                self._comparison.add(self._number, self._kind, name, found, expected)
                return
            found, expected = found.shape, expected.shape
        elif isinstance(expected, (list, tuple)) and len(found) == len(expected):
            for mine, other in zip(found, expected, strict=True):
                self._same(name, mine, other)
            return
        if found != expected:
            self._others.append(Difference(self._number, self._kind, name, 1, 0, found, expected))


class DraftGraph:
    """Slots of as many requests as there are rows, by a captured graph or a call."""

    def __init__(self, tables: Any, device: torch.device, *, captures: bool) -> None:
        rows = tables.input_block_tables[0].shape[0]
        self._tables = tables
        self._mapping = torch.full((rows,), -1, dtype=torch.int64, device=device)
        self._starts = torch.zeros(rows + 1, dtype=torch.int32, device=device)
        self._positions = torch.zeros(rows, dtype=torch.int64, device=device)
        self._run: Callable[[], Any] = self._map
        self._map()  # loads the kernels
        if captures:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._map()
            self._run = graph.replay

    def _map(self) -> None:
        with torch.inference_mode():
            self._tables.compute_slot_mappings(
                *(self._mapping, self._starts, self._positions),
                self._tables.slot_mappings.shape[1],
            )

    def replay(self, rows: Sequence[int], starts: Sequence[int]) -> None:
        """Run with one token of each request."""
        num, most = len(rows), len(self._mapping)
        mapping = np.concatenate((np.asarray(rows), np.full(most - num, -1)))
        self._mapping.copy_(torch.tensor(mapping))
        self._starts.copy_(torch.tensor(np.minimum(np.arange(most + 1), num), dtype=torch.int32))
        self._positions[:num].copy_(torch.tensor(np.asarray(starts), dtype=torch.int64))
        self._run()
