"""Calls on a variant and on the reference, compared after each; shared by the demos."""

from __future__ import annotations

import importlib.util
import random
from array import array
from pathlib import Path

import numpy as np
import torch

from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout
from bt_kernels.variants.reference import Variant as Reference

HERE = Path(__file__).parent


class Differs(Exception):
    """The variant does not do what the reference, or the document, does."""


def load(folder: str, name: str):
    spec = importlib.util.spec_from_file_location(
        f"sixth_{folder}_{name}", HERE / folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Variant


def i32(*values):
    return torch.tensor(values, dtype=torch.int32)


def i64(*values):
    return torch.tensor(values, dtype=torch.int64)


def as_reference(state: TableState) -> TableState:
    return TableState(
        [t.long() for t in state.block_tables],
        [t.long() for t in state.input_block_tables],
        state.slot_mappings.clone(),
        np.array(state.num_blocks),
        state.num_dirty_rows,
    )


class Pair:
    """A variant and the reference, called in step."""

    def __init__(self, variant, layout: TableLayout) -> None:
        self.layout = layout
        self.v, self.r = variant(layout, "cpu"), Reference(layout)
        self.addresses = self._addresses()
        self.compare("new tables")

    def _addresses(self):
        v = self.v
        return [t.data_ptr() for t in (*v.block_tables, *v.input_block_tables, v.slot_mappings)]

    # ---- comparison

    def compare(self, what: str) -> None:
        v, r = self.v, self.r
        for name in ("block_tables", "input_block_tables"):
            for group, (mine, its) in enumerate(
                zip(getattr(v, name), getattr(r, name), strict=True)
            ):
                if mine.dtype != torch.int32 or mine.shape != its.shape:
                    raise Differs(f"{what}: {name}[{group}] is {mine.dtype} {tuple(mine.shape)}")
                if not torch.equal(mine.long(), its):
                    at = (mine.long() != its).nonzero()[0].tolist()
                    raise Differs(
                        f"{what}: {name}[{group}]{at} is {mine[tuple(at)]}, not {its[tuple(at)]}"
                    )
        if v.slot_mappings.dtype != torch.int64 or not torch.equal(
            v.slot_mappings, r.slot_mappings
        ):
            at = (v.slot_mappings != r.slot_mappings).nonzero()[0].tolist()
            raise Differs(
                f"{what}: slot_mappings{at} is {v.slot_mappings[tuple(at)]}, not {r.slot_mappings[tuple(at)]}"
            )
        if v.num_blocks.shape != r.num_blocks.shape or not (v.num_blocks == r.num_blocks).all():
            raise Differs(
                f"{what}: num_blocks is {np.array(v.num_blocks).tolist()}, not {r.num_blocks.tolist()}"
            )
        if v.num_dirty_rows != r.num_dirty_rows:
            raise Differs(f"{what}: num_dirty_rows is {v.num_dirty_rows}, not {r.num_dirty_rows}")
        if self._addresses() != self.addresses:
            raise Differs(f"{what}: an address has changed")

    def _same(self, what, mine, its, buffers):
        """Returned tensors are views of the buffers, and equal."""
        if len(mine) != len(its):
            raise Differs(f"{what}: returns {len(mine)} tensors")
        for a, b, buffer in zip(mine, its, buffers, strict=True):
            if a.shape != b.shape or not torch.equal(a.long(), b.long()):
                raise Differs(f"{what}: returns something else")
            if a.numel() and (
                a.data_ptr() != buffer.data_ptr()
                or a.stride() != buffer[:1].stride()
                and a.shape[0] > 1
            ):
                raise Differs(f"{what}: returns no view of the buffer")

    def _call(self, what, call, *arguments, **options):
        try:
            return call(*arguments, **options)
        except Exception as error:  # noqa: BLE001
            raise Differs(f"{what}: raises {type(error).__name__}: {error}") from error

    def refused(self, what: str, call) -> None:
        """The variant must raise a `ValueError` and change nothing."""
        try:
            call()
        except ValueError:
            pass
        except Exception as error:  # noqa: BLE001
            raise Differs(f"{what}: raises {type(error).__name__}, no ValueError") from error
        else:
            raise Differs(f"{what}: is not refused")
        self.compare(f"{what} (refused)")

    # ---- operations

    def append(self, row, ids, overwrite=False) -> None:
        plain = [[int(x) for x in one] for one in ids]
        self._call("append", self.v.append_block_ids, row, ids, overwrite)
        self.r.append_block_ids(int(row), plain, overwrite)
        self.compare("append")

    def append_many(self, rows, ids, overwrite) -> None:
        if not hasattr(self.v, "append_many"):
            for one in zip(rows, ids, overwrite, strict=True):
                self.append(*one)
            return
        plain = [[[int(x) for x in one] for one in lists] for lists in ids]
        self._call("append_many", self.v.append_many, rows, ids, overwrite)
        for one in zip(rows, plain, overwrite, strict=True):
            self.r.append_block_ids(*one)
        self.compare("append_many")

    def redirect(self, on: bool) -> None:
        self.v.redirect_writes_to_null_block = on
        self.r.redirect_writes_to_null_block = on

    def apply(self) -> None:
        self._call("apply", self.v.apply_staged_writes)
        self.r.apply_staged_writes()
        self.compare("apply")

    def gather(self, mapping, padded, out=None, out_ptrs=None, computed=None) -> None:
        options = {} if out is None and computed is None else {"num_computed_tokens": computed}
        its_out = None
        if out is not None:
            its_out = [table.clone() for table in out]
            options |= {"out": out, "out_ptrs": out_ptrs}
        kept = mapping.clone()
        mine = self._call("gather", self.v.gather_block_tables, mapping, padded, **options)
        its = self.r.gather_block_tables(mapping, padded, its_out, None, computed)
        self._after_gather("gather", mine, its, padded, out, its_out)
        if not torch.equal(kept, mapping):
            raise Differs("gather: changes its input")
        self.compare("gather")

    def _after_gather(self, what, mine, its, padded, out, its_out):
        if out is not None:
            for group, (a, b) in enumerate(zip(out, its_out, strict=True)):
                if not torch.equal(a, b):
                    raise Differs(f"{what}: out[{group}] differs")
        self._same(what, mine, its, self.v.input_block_tables if out is None else out)

    def _after_slots(self, what, mine, its, out, its_out):
        if out is not None and not torch.equal(out, its_out):
            raise Differs(f"{what}: the caller's slots differ")
        self._same(what, [mine], [its], [self.v.slot_mappings if out is None else out])

    def slots(self, mapping, starts, positions, padded, out=None) -> None:
        options = {} if out is None else {"out": out}
        its_out = None if out is None else out.clone()
        mine = self._call(
            "slots", self.v.compute_slot_mappings, mapping, starts, positions, padded, **options
        )
        its = self.r.compute_slot_mappings(mapping, starts, positions, padded, its_out)
        self._after_slots("slots", mine, its, out, its_out)
        self.compare("slots")

    def both(self, mapping, starts, positions, rows, tokens, **options) -> None:
        self._both(
            "gather_and_compute_slot_mappings", mapping, starts, positions, rows, tokens, options
        )

    def step(self, mapping, starts, positions, rows, tokens, **options) -> None:
        self._both("prepare_step", mapping, starts, positions, rows, tokens, options)

    def _both(self, name, mapping, starts, positions, rows, tokens, options) -> None:
        its_options = dict(options)
        out, slots_out = options.get("out"), options.get("slots_out")
        if out is not None:
            its_options["out"] = [table.clone() for table in out]
        if slots_out is not None:
            its_options["slots_out"] = slots_out.clone()
        kept = [t.clone() for t in (mapping, starts, positions)]
        mine = self._call(
            name, getattr(self.v, name), mapping, starts, positions, rows, tokens, **options
        )
        its = getattr(self.r, name)(mapping, starts, positions, rows, tokens, **its_options)
        self._after_gather(name, mine[0], its[0], rows, out, its_options.get("out"))
        self._after_slots(name, mine[1], its[1], slots_out, its_options.get("slots_out"))
        if not all(map(torch.equal, kept, (mapping, starts, positions))):
            raise Differs(f"{name}: changes its input")
        self.compare(name)

    def dummy_tables(self, rows) -> None:
        mine = self._call("dummy tables", self.v.get_dummy_block_tables, rows)
        self._same(
            "dummy tables", mine, self.r.get_dummy_block_tables(rows), self.v.input_block_tables
        )
        self.compare("dummy tables")

    def dummy_slots(self, tokens) -> None:
        mine = self._call("dummy slots", self.v.get_dummy_slot_mappings, tokens)
        self._same(
            "dummy slots", [mine], [self.r.get_dummy_slot_mappings(tokens)], [self.v.slot_mappings]
        )
        self.compare("dummy slots")

    def snapshot(self):
        state = self._call("snapshot", self.v.snapshot), self.r.snapshot()
        self.compare("snapshot")
        return state

    def restore(self, state) -> None:
        mine, its = state
        self._call("restore", self.v.restore, mine)
        self.r.restore(its)
        self.compare("restore")

    def poison(self, value: int, source: bool = False) -> None:
        """What a harness, or an attention kernel of a warm-up, does to the outputs."""
        for t in (self.v, self.r):
            for table in (*t.input_block_tables, *(t.block_tables if source else ())):
                table.fill_(value)
            t.slot_mappings.fill_(value)

    # ---- captured steps; a plain step takes the replay's place

    def capture(self, mapping, starts, positions, rows, tokens):
        """`capture_step` outside of a capture makes a step."""
        step = self._call(
            "capture_step", self.v.capture_step, mapping, starts, positions, rows, tokens
        )
        self.r_publish(rows)
        self.r.prepare_step(mapping, starts, positions, rows, tokens)
        return step

    def r_publish(self, rows) -> None:
        for table in self.r.input_block_tables:
            table[rows : self.r.num_dirty_rows] = 0
        self.r.num_dirty_rows = rows

    def publish(self, step, rows, compare=True) -> None:
        self._call("publish", step.publish)
        self.r_publish(rows)
        if compare:
            self.compare("publish")


# ---- ordinary steps


def ordinary(variant, seed: int = 0, runs: int = 12, steps: int = 8) -> None:
    """Decode and prefill of random requests on small tables, as a first test of a variant has them."""
    rng = random.Random(seed)
    for run in range(runs):
        num_groups = rng.choice((1, 1, 2, 3))
        sizes = tuple(rng.choice((4, 8, 16)) for _ in range(num_groups))
        if run % 3 == 0:
            sizes = sizes[:1] * num_groups
        layout = TableLayout.for_length(sizes, rng.choice((64, 100, 130)), 8, 64)
        pair = Pair(variant, layout)
        lengths: dict[int, int] = {}
        owned: dict[int, list[int]] = {}
        free = iter(range(1, 100_000))
        for _ in range(steps):
            fresh = [row for row in range(8) if row not in lengths]
            pair.poison(rng.randrange(-99, 99))
            batch = []
            if fresh and rng.random() < 0.6:  # a prefill
                row = rng.choice(fresh)
                batch.append((row, 0, rng.randint(1, 20), True))
            for row in rng.sample(list(lengths), rng.randint(0, len(lengths))):
                if lengths[row] < 60:
                    batch.append((row, lengths[row], 1, False))
            if not batch:
                continue
            rng.shuffle(batch)
            for row, before, count, new in batch:
                lengths[row] = before + count
                have = [0] * num_groups if new else owned[row]
                need = [-(-lengths[row] // size) for size in sizes]
                owned[row] = need
                ids = [[next(free) for _ in range(b - a)] for a, b in zip(have, need, strict=True)]
                if new or any(ids):
                    pair.append(row, ids, new)
            mapping = torch.tensor(
                [row for row, *_ in batch], dtype=rng.choice((torch.int32, torch.int64))
            )
            counts = [count for _, _, count, _ in batch]
            starts = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
            positions = torch.tensor([p for _, b, c, _ in batch for p in range(b, b + c)])
            rows = rng.randint(len(batch), 8)
            tokens = rng.randint(len(positions), 64)
            if rng.random() < 0.5:
                pair.step(mapping, starts, positions, rows, tokens)
            else:
                pair.apply()
                pair.gather(mapping, rows)
                pair.slots(mapping, starts, positions, tokens)
            for row in [row for row in lengths if rng.random() < 0.1]:
                del lengths[row]


# ---- random legal calls


def random_layout(rng: random.Random, features) -> TableLayout:
    num_groups = rng.choice((1, 1, 2, 3, 4, 9))
    sizes = tuple(
        rng.choice((1, 2, 3, 4, 5, 8, 16, 12, 2**20, 2**31 - 1)) for _ in range(num_groups)
    )
    widths = tuple(rng.choice((1, 2, 3, 5, 7, 8, 13, 40)) for _ in range(num_groups))
    options = {}
    if "disabled_groups" in features and rng.random() < 0.3:
        options["slot_mapping_enabled"] = tuple(rng.random() < 0.6 for _ in range(num_groups))
    if "sliding_window" in features and rng.random() < 0.5:
        options["sliding_window_reach"] = tuple(
            rng.choice((0, 1, 3, 8, 17)) for _ in range(num_groups)
        )
    if "context_parallelism" in features and rng.random() < 0.3:
        interleave = rng.choice((1, 1, 2, 4))
        ranks = rng.randint(2, 7)
        sizes = tuple(interleave * rng.choice((1, 2, 3, 4, 5)) for _ in range(num_groups))
        options |= {
            "cp_size": ranks,
            "cp_rank": rng.randrange(ranks),
            "cp_interleave": interleave,
            "dcp_sharded": tuple(rng.random() < 0.7 for _ in range(num_groups)),
        }
    return TableLayout(
        sizes, widths, rng.choice((1, 2, 5, 9, 20)), rng.choice((1, 7, 33, 100)), **options
    )


def sliced(rng, tensor):
    """A slice of a longer tensor, with likely values around it."""
    before, behind = rng.randint(0, 3), rng.randint(0, 3)
    whole = torch.randint(0, 3, (before + tensor.numel() + behind,), dtype=tensor.dtype)
    whole[before : before + tensor.numel()] = tensor
    return whole[before : before + tensor.numel()]


def random_ids(rng, count):
    ids = [
        rng.choice(
            (rng.randrange(1000), rng.randrange(-(2**31), 2**31), -(2**31), 2**31 - 1, -1, 0)
        )
        for _ in range(count)
    ]
    kind = rng.randrange(6)
    if kind == 1:
        return tuple(ids)
    if kind == 2:
        return np.array(ids, dtype=np.int64)
    if kind == 3:
        return np.array(ids, dtype=np.int32)
    if kind == 4:
        return array("q", ids)
    return ids


class RandomCalls:
    """Random legal calls, and some to be refused, on one pair."""

    def __init__(self, variant, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        torch.manual_seed(seed)
        self.features = variant.features
        self.layout = random_layout(rng, self.features)
        self.pair = Pair(variant, self.layout)
        self.others = [Pair(variant, self.layout)]
        self.states = []
        self.variant = variant

    def run(self, calls: int) -> None:
        ways = (
            *(self.append,) * 4,
            *(self.many,) * 2,
            *(self.apply,) * 3,
            *(self.gather,) * 3,
            *(self.slots,) * 3,
            *(self.both,) * 3,
            *(self.step,) * 5,
            self.dummy,
            self.snapshot,
            self.restore,
            self.poison,
            *(self.refuse,) * 3,
            self.toggle,
            self.swap,
        )
        for _ in range(calls):
            way = self.rng.choice(ways)
            try:
                way()
            except Differs as error:
                raise Differs(f"{way.__name__}: {error} on {self.layout}") from error

    def write(self, counts):
        rng, layout = self.rng, self.layout
        row, overwrite = rng.randrange(layout.max_num_reqs), rng.random() < 0.3
        ids = []
        for group, width in enumerate(layout.widths):
            before = 0 if overwrite else int(counts[group][row])
            count = rng.choice((0, 1, rng.randint(0, width)))
            ids.append(random_ids(rng, min(count, width - before)))
            counts[group][row] = before + len(ids[-1])
        return row, ids, overwrite

    def append(self):
        row, ids, overwrite = self.write(np.array(self.pair.r.num_blocks))
        self.pair.append(row, ids, overwrite)
        self.spoil(ids)

    def spoil(self, ids):
        for one in ids:
            if not isinstance(one, tuple):
                for place in range(len(one)):
                    one[place] = 12345

    def many(self):
        counts = np.array(self.pair.r.num_blocks)
        writes = [self.write(counts) for _ in range(self.rng.randint(0, 4))]
        rows, ids, overwrite = ([w[i] for w in writes] for i in range(3))
        self.pair.append_many(rows, ids, overwrite)
        for one in ids:
            self.spoil(one)

    def apply(self):
        self.pair.apply()

    def batch(self, validates=False):
        rng, layout = self.rng, self.layout
        num_reqs = rng.randint(0, layout.max_num_reqs)
        rows = [rng.randrange(layout.max_num_reqs) for _ in range(num_reqs)]
        if rng.random() < 0.5 and num_reqs:
            rows = rng.sample(range(layout.max_num_reqs), num_reqs)
        dtype = rng.choice((torch.int32, torch.int64))
        if "dummy_requests" in self.features and rng.random() < 0.4:
            past = layout.max_num_reqs
            odd = [-1] if self.pair.v.validate else [-1, -1, past, past + 5, 2**31 - 1]
            if dtype == torch.int64 and not self.pair.v.validate:
                odd += [2**32, 2**40 + 1]
            rows = [rng.choice(odd) if rng.random() < 0.3 else row for row in rows]
        mapping = sliced(rng, torch.tensor(rows, dtype=dtype))
        return num_reqs, mapping, rng.randint(num_reqs, layout.max_num_reqs)

    def tokens(self, num_reqs, room):
        rng, layout = self.rng, self.layout
        counts = [
            rng.choice((0, 1, 1, rng.randint(0, 9), rng.randint(0, room))) for _ in range(num_reqs)
        ]
        starts = [0]
        for count in counts:
            starts.append(min(starts[-1] + count, room))
        total = starts[-1]
        group = rng.randrange(layout.num_groups)
        end = layout.widths[group] * layout.tokens_per_block[group]
        positions = [
            rng.choice(
                (
                    rng.randrange(end),
                    rng.randint(0, min(end, 50)),
                    end - 1,
                    end,
                    -1,
                    -(2**40),
                    2**42,
                )
            )
            if rng.random() < 0.3
            else rng.randrange(end)
            for _ in range(total)
        ]
        if rng.random() < 0.5:
            first = rng.randrange(end)
            positions = list(range(first, first + total))
        starts = sliced(rng, torch.tensor(starts, dtype=torch.int32))
        positions = sliced(rng, torch.tensor(positions, dtype=torch.int64))
        return starts, positions, rng.randint(total, room)

    def gather_options(self, rows):
        rng, layout = self.rng, self.layout
        options = {}
        if "sliding_window" in self.features and rng.random() < 0.6:
            options["num_computed_tokens"] = torch.randint(
                0,
                rng.choice((20, 200)),
                (layout.max_num_reqs + rng.randint(0, 2),),
                dtype=torch.int32,
            )
        if "custom_outputs" in self.features and rng.random() < 0.3:
            options["out"] = [
                torch.full((rows + rng.randint(0, 4), w), 77, dtype=torch.int32)
                for w in layout.widths
            ]
            if rng.random() < 0.5:
                dtype = rng.choice((torch.int64, torch.uint64))
                options["out_ptrs"] = torch.tensor(
                    [t.data_ptr() for t in options["out"]], dtype=dtype
                )
        return options

    def slots_out(self):
        rng, layout = self.rng, self.layout
        if "custom_outputs" not in self.features or rng.random() < 0.7:
            return None, layout.max_num_batched_tokens
        columns = rng.randint(0, 2 * layout.max_num_batched_tokens)
        whole = torch.full((layout.num_groups, columns + rng.randint(0, 3)), 88, dtype=torch.int64)
        return whole[:, :columns], columns

    def gather(self):
        _, mapping, rows = self.batch()
        options = self.gather_options(rows)
        computed = options.pop("num_computed_tokens", None)
        self.pair.gather(mapping, rows, computed=computed, **options)
        self.overwrite(mapping)

    def overwrite(self, *tensors):
        for tensor in tensors:
            tensor.fill_(2)

    def slots(self):
        num_reqs, mapping, _ = self.batch()
        out, room = self.slots_out()
        starts, positions, tokens = self.tokens(num_reqs, room)
        self.pair.slots(mapping, starts, positions, tokens, out)
        self.overwrite(mapping, starts, positions)

    def both(self, name="both"):
        num_reqs, mapping, rows = self.batch()
        options = self.gather_options(rows)
        out, room = self.slots_out()
        if out is not None:
            options["slots_out"] = out
        starts, positions, tokens = self.tokens(num_reqs, room)
        getattr(self.pair, name)(mapping, starts, positions, rows, tokens, **options)
        self.overwrite(mapping, starts, positions)

    def step(self):
        self.both("step")

    def dummy(self):
        if self.rng.random() < 0.5:
            self.pair.dummy_tables(self.rng.randint(0, self.layout.max_num_reqs))
        else:
            self.pair.dummy_slots(self.rng.randint(0, self.layout.max_num_batched_tokens))

    def snapshot(self):
        self.states.append(self.pair.snapshot())

    def restore(self):
        if self.states:
            mine, its = self.rng.choice(self.states)
            if self.rng.random() < 0.3:
                its = as_reference(its)
                mine = TableState(
                    [t.int() for t in its.block_tables],
                    [t.int() for t in its.input_block_tables],
                    its.slot_mappings.clone(),
                    its.num_blocks.astype(np.int32),
                    its.num_dirty_rows,
                )
            self.pair.restore((mine, its))

    def swap(self):
        """Go on with other tables of the layout."""
        self.others.append(self.pair)
        self.pair = self.others.pop(0)
        self.pair.compare("other tables")

    def poison(self):
        self.pair.poison(self.rng.randrange(-500, 500), source=self.rng.random() < 0.3)
        if self.rng.random() < 0.5:
            dirty = self.rng.randint(0, self.layout.max_num_reqs)
            self.pair.v.num_dirty_rows = self.pair.r.num_dirty_rows = dirty
            self.pair.compare("set dirty rows")

    def toggle(self):
        if self.rng.random() < 0.5:
            self.pair.v.validate = self.rng.random() < 0.5
        else:
            self.pair.redirect(self.rng.random() < 0.4)

    def refuse(self):
        rng, layout, p = self.rng, self.layout, self.pair
        v = p.v
        G, R, N = layout.num_groups, layout.max_num_reqs, layout.max_num_batched_tokens
        fine = [[] for _ in range(G)]
        num_reqs, mapping, rows = self.batch()
        starts, positions, tokens = self.tokens(num_reqs, N)
        custom = "custom_outputs" in self.features
        operation = rng.choice(("gather_and_compute_slot_mappings", "prepare_step"))
        big = [
            list(range(layout.widths[-1] + 1)) if g == G - 1 else [5][: layout.widths[g]]
            for g in range(G)
        ]

        def bad(place, **changes):
            batch = {
                "idx_mapping": mapping,
                "query_start_loc": starts,
                "positions": positions,
                "num_reqs_padded": rows,
                "num_tokens_padded": tokens,
                **changes,
            }
            self.refused = place
            which = rng.randrange(3)
            gather_only = {
                k: v
                for k, v in changes.items()
                if k in ("idx_mapping", "num_reqs_padded", "out", "out_ptrs", "num_computed_tokens")
            }
            slots_only = {
                k: v
                for k, v in changes.items()
                if k in ("idx_mapping", "query_start_loc", "positions", "num_tokens_padded")
            }
            if which == 0 and gather_only:
                return lambda: (
                    v.gather_block_tables(mapping, rows)
                    if not gather_only
                    else v.gather_block_tables(
                        **{"idx_mapping": mapping, "num_reqs_padded": rows, **gather_only}
                    )
                )
            if which == 1 and slots_only:
                return lambda: v.compute_slot_mappings(
                    **{
                        "idx_mapping": mapping,
                        "query_start_loc": starts,
                        "positions": positions,
                        "num_tokens_padded": tokens,
                        **slots_only,
                    }
                )
            return lambda: getattr(v, operation)(**batch)

        cases = [
            lambda: ("row", lambda: v.append_block_ids(R, fine, False)),
            lambda: ("row -1", lambda: v.append_block_ids(-1, fine, True)),
            lambda: ("row type", lambda: v.append_block_ids(0.0, fine, True)),
            lambda: ("lists", lambda: v.append_block_ids(0, [*fine, []], False)),
            lambda: (
                "too wide",
                lambda: v.append_block_ids(rng.randrange(R), big, rng.random() < 0.5),
            ),
            lambda: ("large id", lambda: v.append_block_ids(0, [*fine[1:], [2**31]], True)),
            lambda: (
                "large id in numpy",
                lambda: v.append_block_ids(0, [*fine[1:], np.array([-(2**31) - 1])], True),
            ),
            lambda: ("id of float", lambda: v.append_block_ids(0, [*fine[1:], [1.0]], True)),
            lambda: ("no list", lambda: v.append_block_ids(0, [*fine[1:], 7], True)),
            lambda: ("dtype of mapping", bad("m", idx_mapping=mapping.to(torch.int16))),
            lambda: (
                "shape of mapping",
                bad("m", idx_mapping=mapping.view(-1, 1) if num_reqs else mapping.view(0, 1)),
            ),
            lambda: ("padded rows", bad("r", num_reqs_padded=R + 1)),
            lambda: ("float rows", bad("r", num_reqs_padded=float(rows))),
            lambda: ("dtype of starts", bad("s", query_start_loc=starts.long())),
            lambda: ("short starts", bad("s", query_start_loc=starts[:num_reqs])),
            lambda: ("dtype of positions", bad("p", positions=positions.int())),
            lambda: ("padded tokens", bad("t", num_tokens_padded=N + 1)),
            lambda: ("negative tokens", bad("t", num_tokens_padded=-1)),
            lambda: (
                "strided positions",
                bad("p", positions=torch.zeros(8, dtype=torch.int64)[::2]),
            ),
            lambda: ("dummy rows", lambda: v.get_dummy_block_tables(R + 1)),
            lambda: ("dummy tokens", lambda: v.get_dummy_slot_mappings(N + 1)),
            lambda: (
                "many requests",
                bad("m", idx_mapping=torch.zeros(R + 1, dtype=torch.int64), num_reqs_padded=R),
            ),
        ]
        if num_reqs:
            cases.append(lambda: ("few rows", bad("r", num_reqs_padded=num_reqs - 1)))
        if custom:
            out = [torch.zeros(rows, w, dtype=torch.int32) for w in layout.widths]
            cases += [
                lambda: ("out of int64", bad("o", out=[t.long() for t in out])),
                lambda: ("few out", bad("o", out=out[1:])),
                lambda: (
                    "width of out",
                    bad(
                        "o",
                        out=[torch.zeros(rows, w + 1, dtype=torch.int32) for w in layout.widths],
                    ),
                ),
                lambda: ("out_ptrs alone", bad("o", out_ptrs=torch.zeros(G, dtype=torch.int64))),
            ]
            if rows:
                cases.append(lambda: ("short out", bad("o", out=[t[1:] for t in out])))
            cases.append(
                lambda: (
                    "slots_out of int32",
                    lambda: getattr(v, operation)(
                        mapping,
                        starts,
                        positions,
                        rows,
                        tokens,
                        slots_out=torch.zeros(G, N, dtype=torch.int32),
                    ),
                )
            )
        if "sliding_window" in self.features:
            cases.append(
                lambda: (
                    "computed",
                    bad("c", num_computed_tokens=torch.zeros(R, dtype=torch.int64)),
                )
            )
            cases.append(
                lambda: (
                    "few computed",
                    bad("c", num_computed_tokens=torch.zeros(R - 1, dtype=torch.int32)),
                )
            )
        if hasattr(v, "append_many"):
            cases += [
                lambda: (
                    "many too wide",
                    lambda: v.append_many(
                        [0, R - 1], [[[1][:0] for _ in range(G)], big], [True, False]
                    ),
                ),
                lambda: ("many lengths", lambda: v.append_many([0], [fine], [])),
            ]
        if v.validate and num_reqs:
            wrong = mapping.clone()
            wrong[-1] = R
            cases += [lambda: ("validated row", bad("m", idx_mapping=wrong))] * 3
            down = starts.clone()
            down[0] = 1
            cases += [lambda: ("validated start", bad("s", query_start_loc=down))] * 3
            if starts[num_reqs] > 0:
                cases += [lambda: ("validated end", bad("p", positions=positions[:-1]))] * 3
        what, call = rng.choice(cases)()
        p.refused(what, call)
