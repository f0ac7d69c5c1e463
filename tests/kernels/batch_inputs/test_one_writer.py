"""In a launch that prepares a batch, each element of each output has one writer.

Kernels run in numpy, and note every store. No address may be stored to twice, whatever the sizes by
which a batch is cut into programs; and the addresses are those that the batch has to write.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from support import cuts
from support.quick_triton import QuickKernels

from bt_kernels.batch_inputs import InputLayout, RequestTensors, carried
from bt_kernels.batch_inputs.fused import OneLaunchInputs
from bt_kernels.batch_inputs.variants.reference import Variant as Reference
from bt_kernels.layout import TableLayout

CUTS = 100_000
PARTS = 20
STEPS = 8  # of an engine


def sizes_of(rng, monkeypatch):
    drawn = cuts.gpu_sizes() if rng.random() < 0.1 else cuts.small_sizes(rng)
    few, span = rng.choice((1, 2, 4, 32)), rng.choice((2, 4, 8, 32))
    drawn |= {
        "FEW_INTERPRETED": few,
        "SPAN_INTERPRETED": span,
        "ROOMS_INTERPRETED": (rng.choice((1, 2, 5)), carried.MOST_REQUESTS),
        "MOST_LOGITS": rng.choice((1, 2, 16)),
        "MOST_LOOKAHEAD": rng.choice((1, 2, 8)),
    }
    return cuts.sizes(monkeypatch, drawn)


class Engine:
    """An engine of random sizes, with the reference beside it."""

    def __init__(self, rng):
        self.rng = rng
        self.num_reqs = int(rng.integers(1, 13))
        self.drafts = int(rng.choice((0, 0, 1, 3)))
        self.bonus = int(self.drafts == 0 or rng.random() < 0.8)
        self.num_tokens = int(rng.integers(self.num_reqs * (1 + self.drafts), 90))
        self.tables = self._tables(rng)
        self.layout = InputLayout(
            self.num_reqs,
            self.num_tokens,
            200,
            self.drafts,
            int(rng.integers(1, 5)),
            self.bonus,
            bool(rng.random() < 0.8),
        )
        self.requests = RequestTensors.zeros(self.layout, "cpu")
        self.requests.all_token_ids.random_(1, 2**31 - 1)
        self.requests.last_sampled_tokens.random_(1, 2**40)
        self.requests.draft_tokens.random_(1, 2**40)
        self.variant = OneLaunchInputs(self.tables, self.layout, self.requests, "cpu")
        beside = RequestTensors(
            **vars(self.requests)
            | {"next_prefill_tokens": self.requests.next_prefill_tokens.clone()}
        )
        self.reference = Reference(self.tables, self.layout, beside)

    def _tables(self, rng):
        groups = int(rng.integers(1, 3))
        reaches = (9, 0)[:groups] if rng.random() < 0.4 else ()
        return TableLayout.for_length(
            (4, 8)[:groups], 200, self.num_reqs, self.num_tokens, sliding_window_reach=reaches
        )

    def draw(self):
        """Draw a batch, and put the requests into its state; return the call's arguments."""
        rng = self.rng
        rows = rng.permutation(self.num_reqs)[: rng.integers(1, self.num_reqs + 1)]
        drafts = None
        least = np.ones(len(rows), np.int32)
        if self.drafts and rng.random() < 0.8:
            drafts = rng.integers(0, self.drafts + 1, len(rows)).astype(np.int32)
            least = np.maximum(least, drafts + self.bonus).astype(np.int32)
        lengths = least.copy()
        spare = self.num_tokens - int(lengths.sum())
        if rng.random() < 0.6:
            more = int(rng.integers(0, spare + 1))
            lengths[rng.integers(0, len(rows))] += more
            spare -= more
        computed = rng.integers(0, 200 - lengths).astype(np.int32)
        near = computed + rng.integers(-3, lengths + 4)
        prefill_lens = np.clip(near, 0, 200).astype(np.int32)
        self.requests.num_computed_tokens[rows] = torch.from_numpy(computed)
        self.requests.prefill_len[rows] = torch.from_numpy(prefill_lens)
        reqs = int(rng.integers(len(rows), self.num_reqs + 1))
        tokens = int(lengths.sum()) + int(rng.integers(0, spare + 1))
        has_prefill = bool((computed < prefill_lens).any())
        return rows, lengths, prefill_lens, has_prefill, drafts, reqs, tokens

    def stage(self):
        """Stage writes to some rows, in both."""
        rng = self.rng
        for row in rng.permutation(self.num_reqs)[: int(rng.choice((0, 1, 4, 12)))]:
            most = int(rng.choice((2, 4, 25)))
            ids = [rng.integers(1, 99, int(rng.integers(0, most))).tolist() for _ in self._groups]
            for each in (self.variant, self.reference):
                each.append_block_ids(int(row), ids, True)

    @property
    def _groups(self):
        return range(self.tables.num_groups)


def expected_addresses(engine, given, batch, *, alone):
    """Addresses that a batch has to write in outputs of its inputs, by output."""
    rows, lengths, prefill_lens, has_prefill, drafts, _, tokens = given
    variant, requests = engine.variant, engine.requests
    buffers, num_reqs, num_tokens = variant.buffers, len(rows), int(lengths.sum())
    computed = requests.num_computed_tokens.numpy()[rows]
    num_logits = engine.bonus + (0 if drafts is None else drafts)
    ids, start = [], 0
    for c, q, p, n in zip(computed, lengths, prefill_lens, num_logits + 0 * lengths, strict=True):
        if has_prefill and c < p:
            ids += range(start, start + q)
        elif c + q > p:  # drafts, and the sampled token
            ids += range(start + q - n + (not (c + q - n >= p)) * engine.bonus, start + q)
        start += q
    in_prefill = rows[computed < prefill_lens] if has_prefill else rows[:0]
    found = {
        "input_ids": (buffers.input_ids, ids),
        "positions": (buffers.positions, range(num_tokens)),
        "is_padding": (buffers.is_padding, range(tokens * engine.layout.marks_padding)),
        "query_start_loc": (buffers.query_start_loc, range(engine.num_reqs + 1)),
        "seq_lens": (buffers.seq_lens, range(engine.num_reqs)),
        "next": (
            requests.next_prefill_tokens,
            [
                ahead * engine.num_reqs + row
                for ahead in range(engine.layout.num_lookahead)
                for row in in_prefill
            ],
        ),
    }
    has_one_each = drafts is None and engine.bonus == 1
    is_decode = has_one_each and num_tokens == num_reqs
    new = ["idx_mapping"] + ["logits_indices"] * (not is_decode)
    if not has_one_each:
        new += ["expanded_idx_mapping", "expanded_local_pos", "cu_num_logits"]
    found |= {name: (getattr(batch, name), range(len(getattr(batch, name)))) for name in new}
    return {
        name: {tensor.data_ptr() + tensor.itemsize * int(place) for place in places}
        for name, (tensor, places) in found.items()
    }


def hold_one_writer(monkeypatch, rng, kernels, num_cuts):
    made = 0
    while made < num_cuts:
        with sizes_of(rng, monkeypatch), monkeypatch.context() as patch:
            patch.setattr(carried, "one_launch_carrying_kernel", kernels.carrying)
            engine = Engine(np.random.default_rng(rng.randrange(2**32)))
            for _ in range(STEPS):
                given = engine.draw()
                alone = rng.random() < 0.2
                if not alone:
                    engine.stage()
                hold_step(engine, given, kernels, alone=alone)
                made += engine.tables.num_groups


def hold_step(engine, given, kernels, *, alone):
    method = "prepare_inputs" if alone else "prepare"
    wanted = getattr(engine.reference, method)(*given)
    stores = kernels.record()
    batch = getattr(engine.variant, method)(*given)
    assert not engine.variant.fallbacks
    written = np.concatenate([at for all_ in stores.values() for at in all_])
    once, counts = np.unique(written, return_counts=True)
    assert counts.max() == 1, "an element has two writers"
    addresses = set(once.tolist())
    for name, expected in expected_addresses(engine, given, batch, alone=alone).items():
        assert expected <= addresses, f"{name} has elements without a writer"
        addresses -= expected
    tables = engine.variant.tables
    places = [] if alone else [*tables.block_tables, *tables.input_block_tables]
    places += [] if alone else [tables.slot_mappings, tables.num_blocks_on_device]
    others = np.array(sorted(addresses), np.int64)
    for tensor in places:
        first = tensor.data_ptr()
        others = others[(others < first) | (others >= first + tensor.nbytes)]
    assert others.size == 0, f"{others.size} stores to other places"
    for name, mine in batch._asdict().items():
        theirs = getattr(wanted, name)
        if name in ("input_ids", "positions", "is_padding"):  # with what no step has written
            mine, theirs = (getattr(e.buffers, name) for e in (engine.variant, engine.reference))
        if isinstance(mine, torch.Tensor):
            assert torch.equal(mine, theirs), name
        elif isinstance(mine, np.ndarray):
            assert np.array_equal(mine, theirs), name
    for mine, theirs in zip(batch.block_tables, wanted.block_tables, strict=True):
        assert torch.equal(mine, theirs)
    mine, theirs = (e.requests.next_prefill_tokens for e in (engine.variant, engine.reference))
    assert torch.equal(mine, theirs)


def test_each_element_has_one_writer(monkeypatch):
    hold_one_writer(monkeypatch, random.Random(0), QuickKernels(), 120)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_each_element_has_one_writer_in_many_cuts(monkeypatch, part):
    """In 100,000 cuts of groups, a twentieth of them here."""
    hold_one_writer(monkeypatch, random.Random(1 + part), QuickKernels(), CUTS // PARTS)


def test_all_that_is_behind_the_requests_is_written(monkeypatch):
    """Of a layout with more rows than a program writes at a time."""
    kernels = QuickKernels()
    monkeypatch.setattr(carried, "one_launch_carrying_kernel", kernels.carrying)
    layout = InputLayout(2600, 9, 20)
    tables = TableLayout.for_length((4,), 20, 2600, 9)
    variant = OneLaunchInputs(tables, layout, RequestTensors.zeros(layout, "cpu"), "cpu")
    buffers = variant.buffers
    buffers.query_start_loc.fill_(7)
    buffers.seq_lens.fill_(7)
    one = np.ones(2, np.int32)
    variant.prepare_inputs(np.arange(2), one, 0 * one, False, None, 2, 2)
    assert buffers.query_start_loc.tolist() == [0, 1] + [2] * 2599
    assert buffers.seq_lens.tolist() == [1, 1] + [0] * 2598
