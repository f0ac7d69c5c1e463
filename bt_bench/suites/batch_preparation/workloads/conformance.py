"""Conformance workloads: small engines at random, each with a corner that it is bound to reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from bt_bench.suites.batch_preparation.workloads.workload import (
    InputStep,
    InputWorkload,
    num_tokens_needed,
    tokens_of,
)
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_kernels.batch_inputs.layout import InputLayout
from bt_kernels.layout import TableLayout


@dataclass(frozen=True)
class Engine:
    """An engine whose steps are drawn at random.

    Args:
        max_num_reqs: request rows.
        max_num_tokens: the token budget.
        max_model_len: the longest sequence.
        block_sizes: of each group of block tables.
        reaches: of each group's sliding window; empty: none has one.
        drafts: the most draft tokens of a request.
        lookahead: rows of `next_prefill_tokens`.
        bonus: logits of a request beyond its drafts, 0 or 1.
        marks_padding: whether steps write `is_padding`.
        prompt: the longest prompt.
        shortest: the shortest prompt.
        pads: whether steps are padded, as for captured graphs.
        repeats: whether decodes may have a row twice in a step.
        num_steps: steps to draw.
    """

    max_num_reqs: int = 6
    max_num_tokens: int = 64
    max_model_len: int = 96
    block_sizes: tuple[int, ...] = (4,)
    reaches: tuple[int, ...] = ()
    drafts: int = 0
    lookahead: int = 1
    bonus: int = 1
    marks_padding: bool = True
    prompt: int = 40
    shortest: int = 1
    pads: bool = True
    repeats: bool = False
    num_steps: int = 5

    def layouts(self) -> tuple[TableLayout, InputLayout]:
        """Return the layouts of tables and inputs."""
        tables = TableLayout.for_length(
            self.block_sizes,
            self.max_model_len,
            self.max_num_reqs,
            self.max_num_tokens,
            sliding_window_reach=self.reaches,
        )
        inputs = InputLayout(
            self.max_num_reqs,
            self.max_num_tokens,
            self.max_model_len,
            self.drafts,
            self.lookahead,
            self.bonus,
            self.marks_padding,
        )
        return tables, inputs


CORNERS: Mapping[str, Engine] = {
    "decodes and prefills": Engine(),
    "drafts and prompt tails": Engine(drafts=3, prompt=12, num_steps=9),
    "many drafts": Engine(drafts=8, prompt=10, max_num_tokens=60, num_steps=4),
    "lookahead of a prompt": Engine(lookahead=3, prompt=60),
    "drafts, lookahead, two groups": Engine(
        drafts=2, lookahead=2, block_sizes=(4, 16), reaches=(12, 0), repeats=True
    ),
    "no token of its own": Engine(drafts=4, bonus=0),
    "no mark of padding": Engine(marks_padding=False, drafts=1),
    "rows twice": Engine(repeats=True, prompt=3, num_steps=9),
    "long prompts": Engine(
        max_num_reqs=3,
        max_num_tokens=2600,
        max_model_len=3000,
        block_sizes=(64,),
        prompt=2700,
        shortest=1800,
        num_steps=4,
    ),
    "one request": Engine(max_num_reqs=1, max_num_tokens=9, max_model_len=30, drafts=1),
    "no padding": Engine(pads=False, drafts=2),
}


def conformance_workloads(seed: int) -> dict[str, InputWorkload]:
    """Return a workload for each corner, by name."""
    return {
        name: workload_of(engine, np.random.default_rng((seed, number)))
        for number, (name, engine) in enumerate(CORNERS.items())
    }


def workload_of(engine: Engine, rng: np.random.Generator) -> InputWorkload:
    """Return a workload of an engine."""
    tables, inputs = engine.layouts()
    steps = tuple(_Requests(engine, rng).steps())
    tokens = tokens_of(rng, num_tokens_needed(inputs, len(steps)))
    return InputWorkload(tables, inputs, tokens, (), steps)


@dataclass
class _Requests:
    """The requests of an engine, by row."""

    engine: Engine
    rng: np.random.Generator
    computed: dict[int, int] = field(default_factory=dict)
    prompts: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, list[int]] = field(default_factory=dict)

    def steps(self) -> Iterator[InputStep]:
        """Yield steps; the first one has a request."""
        for _ in range(self.engine.num_steps):
            yield self._step()

    def _step(self) -> InputStep:
        rng, engine = self.rng, self.engine
        for row in list(self.computed):
            if rng.random() < 0.15 or self._left(row) < 1 + engine.drafts:
                self._end(row)
        rows = [row for row in self.computed if rng.random() < 0.9] or list(self.computed)
        free = [row for row in range(engine.max_num_reqs) if row not in self.computed]
        arriving = int(rng.integers(0 if rows else 1, len(free) + 1))
        new = rng.permutation(free)[:arriving].tolist()
        for row in new:
            self.computed[row] = int(rng.integers(0, 4)) if rng.random() < 0.3 else 0
            length = int(rng.integers(engine.shortest, engine.prompt + 1))
            self.prompts[row] = length + self.computed[row]
            self.blocks[row] = [0] * len(engine.block_sizes)
        has_drafts = engine.drafts > 0 and rng.random() < 0.8
        batch: list[tuple[int, int, int]] = []
        budget = engine.max_num_tokens
        spare = engine.max_num_reqs - len(rows) - len(new)
        for row in rng.permutation(rows + new).tolist():
            length, drafts = self._query(row, budget, has_drafts)
            if length:
                batch.append((row, length, drafts))
                budget -= length
                is_decode = self.computed[row] >= self.prompts[row]
                room = spare > 0 and budget >= length
                if engine.repeats and is_decode and room and rng.random() < 0.5:
                    batch.append((row, length, drafts))
                    budget -= length
                    spare -= 1
        return self._scheduled(batch, has_drafts)

    def _left(self, row: int) -> int:
        return self.engine.max_model_len - self.computed[row]

    def _end(self, row: int) -> None:
        del self.computed[row], self.prompts[row], self.blocks[row]

    def _query(self, row: int, budget: int, has_drafts: bool) -> tuple[int, int]:
        """Return the tokens of a request in a step, and how many of them are drafts."""
        rng, engine = self.rng, self.engine
        most = min(budget, self._left(row))
        of_prompt = self.prompts[row] - self.computed[row]
        drafts = int(rng.integers(0, engine.drafts + 1)) if has_drafts else 0
        if of_prompt <= 0:
            new = engine.bonus
            if new + drafts == 0:
                new = 1  # an engine schedules no request without a token
        else:
            whole = rng.random() < 0.6
            new = of_prompt if whole else int(rng.integers(1, of_prompt + 1))
            # Other drafts come with chunks, whether or not these end the prompt.
            # A query that ends exactly with the prompt has no place for any.
            kind = rng.random()
            if kind < 0.4:
                drafts = 0
            elif kind < 0.6 and 0 < drafts < of_prompt:
                new = of_prompt - drafts
        if new + drafts > most:
            drafts = max(0, min(drafts, most - new))
            new = min(new, most - drafts)
        return new + drafts, drafts

    def _scheduled(self, batch: list[tuple[int, int, int]], has_drafts: bool) -> InputStep:
        rng, engine = self.rng, self.engine
        computed = [self.computed[row] for row, _, _ in batch]
        appends = []
        for row in dict.fromkeys(row for row, _, _ in batch):
            end = self.computed[row] + max(length for r, length, _ in batch if r == row)
            is_new = not any(self.blocks[row])
            ids = tuple(self._take(row, group, end) for group in range(len(engine.block_sizes)))
            if any(ids):
                appends.append(Append(row, ids, overwrite=is_new))
        num_tokens = sum(length for _, length, _ in batch)
        num_reqs = len(batch)
        pads = engine.pads and rng.random() < 0.7
        rows_padded = int(rng.integers(num_reqs, engine.max_num_reqs + 1)) if pads else num_reqs
        most = min(engine.max_num_tokens, num_tokens + 9)
        tokens_padded = int(rng.integers(num_tokens, most + 1)) if pads else num_tokens
        step = InputStep(
            tuple(appends),
            np.array([row for row, _, _ in batch], dtype=np.int64),
            np.array(computed, dtype=np.int32),
            np.array([length for _, length, _ in batch], dtype=np.int32),
            np.array([self.prompts[row] for row, _, _ in batch], dtype=np.int32),
            np.array([drafts for *_, drafts in batch], dtype=np.int32) if has_drafts else None,
            rows_padded,
            tokens_padded,
        )
        for row, length, drafts in dict.fromkeys(batch):
            rejected = int(rng.integers(0, drafts + 1))
            self.computed[row] += length - rejected
        return step

    def _take(self, row: int, group: int, end: int) -> list[int]:
        """Return new block ids for the tokens of a row up to `end`."""
        needed = -(-end // self.engine.block_sizes[group]) - self.blocks[row][group]
        self.blocks[row][group] += max(needed, 0)
        ids: list[int] = self.rng.integers(1, 2**20, max(needed, 0)).tolist()
        return ids
