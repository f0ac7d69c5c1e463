"""Say which program of a step in one launch writes which element, in numpy, without running it.

`noted_launches` keeps what host code gives a kernel in place of launching it, so that all numbers
are those of the real host code. `writers` then follows the kernels program by program, vectorised,
and `check` holds that each slot, each gathered column, each staged id and each number of blocks has
exactly one writer. `test_cut.py` holds that the kernels themselves write what this says.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bt_kernels import one_launch
from bt_kernels.batch_inputs import carried, fused
from bt_kernels.device_code import CARRIED, MARKED, PIECE_IDS
from bt_kernels.one_launch import carrying, fixed, native_step, shapes, tables

FIXED_BY = (carrying, fixed, native_step, shapes, tables, carried, fused)
"""Modules that have a name of their own for a constant of `shapes`."""


@contextmanager
def sizes(monkeypatch, constants):
    """Have host code and kernels cut steps by other constants than those of a GPU."""
    with monkeypatch.context() as patch:
        for name, number in constants.items():
            for module in FIXED_BY:
                if hasattr(module, name):
                    patch.setattr(module, name, number)
        yield


def small_sizes(rng):
    """Draw constants by which a step of few rows and tokens takes every way."""
    columns, tile = rng.choice((4, 8)), rng.choice((2, 2, 4))
    few = one_launch.Shape(1, columns, rng.choice((2, 4)), 1)
    many = one_launch.Shape(tile, 4, rng.choice((2, 4)), 1)
    return {
        "FEW": few,
        "MANY": many,
        "SHAPES": (few, many),
        "FIXED": one_launch.Shape(1, 4, rng.choice((4, 8)), 1),
        "MANY_ROWS_INTERPRETED": rng.choice((0, 4, 9)),
        "SPAN": rng.choice((4, 8)),
        "SEARCHED": rng.choice((4, 8)),
        "MAX_SPANS": rng.choice((1, 3, 50)),
        "FIXED_SPANS": rng.choice((1, 2)),
        "WIDE_COLUMNS": rng.choice((4, 8)),
        "REST": rng.choice((2, 4)),
        "OWN_COLUMNS": rng.choice((4, 8, 12)),
        "MAX_CHUNKS": rng.choice((1, 3)),
        "MAX_WIDE_PROGRAMS": rng.choice((1, 6, 40)),
        "MAX_PADS": rng.choice((1, 2, 3)),
        "BLOCK": rng.choice((4, 8)),
        "WORDS_WRITTEN": rng.choice((1, 2, 4)),
        "MOST_CARRIED": rng.choice((3, 6)),
        "PROGRAMS_INTERPRETED": rng.choice((1, 3, 7)),
        "PAYLOADS_INTERPRETED": one_launch.PAYLOADS._replace(
            single_ids=2, few_ids=3, many_ids=rng.choice((4, 9)), few_apart=3, many_apart=5
        ),
    }


def gpu_sizes():
    """Return the constants by which steps are cut on a GPU; the interpreter has some of its own."""
    return {
        "MANY_ROWS_INTERPRETED": shapes.MANY_ROWS,
        "PROGRAMS_INTERPRETED": shapes.MAX_PROGRAMS,
        "PAYLOADS_INTERPRETED": shapes.PAYLOADS,
    }


@dataclass
class Launch:
    """What a kernel of a step in one launch is given; `programs` is 0 if its grid varies."""

    grid: int
    programs: int
    starts: np.ndarray  # of requests among the tokens, one more than there are requests
    mapping: np.ndarray  # their rows; -1 if they have none
    num_rows: int
    num_words: int
    num_pieces: int
    num_spans: int
    num_wide: int
    num_chunks: int
    num_pads: int
    num_slots: int
    sizes: object
    features: object

    @property
    def num_tiles(self):
        return -(-self.num_rows // self.sizes.tile)

    @property
    def in_group(self):
        return self.num_spans + self.num_tiles + self.num_wide * self.num_chunks + self.num_pads

    @property
    def where(self):
        return self.features.where


class NotedKernel:
    """Take the place of a kernel, and note what it is given."""

    def __init__(self, noted, read, kernel):
        self._noted, self._read, self._kernel = noted, read, kernel

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            self._noted.append(self._read(grid[0], arguments))
            if self._kernel is not None:
                self._kernel[grid](*arguments, **options)

        return launch


@contextmanager
def noted_launches(monkeypatch, run=None):
    """Keep what kernels are given in a list.

    Args:
        monkeypatch: of the test.
        run: has kernels `carrying` and `captured` that are launched, too; else none is.
    """
    noted = []
    with monkeypatch.context() as patch:
        for module, name, read in (
            (carrying, "carrying", launch_of_carrying),
            (fixed, "captured", launch_of_captured),
        ):
            kernel = NotedKernel(noted, read, run and getattr(run, name))
            patch.setattr(module, f"one_launch_{name}_kernel", kernel)
        yield noted


def launch_of_carrying(grid, arguments):
    """Read what the kernel that carries what is staged is given."""
    _, mapping, starts, _, _, _, _, num_slots, step, num_reqs, num_rows, *numbers = arguments[:17]
    *_, its_sizes, features = arguments
    mapping = mapping[::step].numpy() if step == 1 else mapping.numpy().view(np.int64)
    return Launch(
        *(grid, 0, starts.numpy()[: num_reqs + 1].astype(np.int64), mapping[:num_reqs]),
        *(num_rows, *numbers, num_slots, its_sizes, features),
    )


def launch_of_captured(grid, arguments):
    """Read what the kernel of a launch that never changes is given, from the first header."""
    _, staging, _, _, _, num_slots, num_spans, programs, its_sizes, features = arguments
    headers = staging.numpy()[: programs * 4 * 2].view(np.int64).reshape(programs, 4)
    assert (headers == headers[0]).all()
    first, second, third, last = headers[0].tolist()
    num_reqs, num_rows = first >> 48 & 0xFFFF, second >> 48 & 0xFFFF
    address = 2**48 - 1
    starts = _at(second & address, np.int32, num_reqs + 1)
    mapping = _at(first & address, np.int64 if last & 1 else np.int32, num_reqs)
    if features.options:
        options = staging.numpy()[programs * 4 * 2 :][: programs * 8 * 2].view(np.int64)
        num_slots = int(options[5])
    return Launch(
        *(grid, programs, starts.astype(np.int64), mapping),
        *(num_rows, last >> 1 & 0x7FFFFFFF, 0, num_spans if second & address else 0),
        *(num_rows, third >> 56 & 0xFF, third >> 48 & 0xFF, num_slots, its_sizes, features),
    )


def _at(address, dtype, size):
    import ctypes

    if not address or not size:
        return np.zeros(size, dtype)
    memory = (ctypes.c_char * (size * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).copy()


@dataclass
class Written:
    """Elements of one buffer that programs write: indices and parts, of equal length."""

    elements: np.ndarray
    parts: np.ndarray


@dataclass
class Group:
    """What is known of a group: its width, and what each row has after the step and is staged."""

    width: int
    length: np.ndarray  # [max_num_reqs]
    start: np.ndarray  # of the interval of a row; 0 if there is none
    end: np.ndarray
    staged: np.ndarray


def _ranges(begins, ends, owners):
    """Concatenate ranges; return their elements, and the owner of each."""
    counts = np.maximum(ends - begins, 0)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return within + np.repeat(begins, counts), np.repeat(owners, counts)


def slots_of(launch):
    """Return who writes which slots of a group, by the parts of the group."""
    sizes_, starts = launch.sizes, launch.starts
    if not launch.features.maps or not launch.in_group:
        return Written(np.zeros(0, np.int64), np.zeros(0, np.int64))
    num_reqs, num_tokens = len(starts) - 1, int(starts[-1])
    tile = np.arange(launch.num_tiles)
    first = starts[np.minimum(tile * sizes_.tile, num_reqs)]
    past_last = starts[np.minimum((tile + 1) * sizes_.tile, num_reqs)]
    found = [_ranges(first, np.minimum(first + sizes_.tokens, past_last), launch.num_spans + tile)]
    if launch.num_spans and num_tokens:
        found.append(_slots_of_spans(launch, num_tokens))
    # Whoever has a chunk of the buffer pads what lies in it behind the tokens.
    padded = np.arange(min(num_tokens, launch.num_slots), launch.num_slots)
    first_pad = launch.in_group - launch.num_pads
    if launch.num_pads:
        found.append((padded, first_pad + padded // sizes_.block % launch.num_pads))
    elements, parts = zip(*found, strict=True)
    return Written(np.concatenate(elements), np.concatenate(parts))


def _slots_of_spans(launch, num_tokens):
    sizes_, starts = launch.sizes, launch.starts
    span = np.arange(-(-num_tokens // sizes_.span))
    ended = np.searchsorted(starts[1:], span * sizes_.span, side="right")
    begun = np.searchsorted(starts[:-1], (span + 1) * sizes_.span, side="left")
    request = np.arange(len(starts) - 1)
    first_of_tile = starts[request // sizes_.tile * sizes_.tile]
    distance = np.concatenate((starts[1:] - first_of_tile, [0]))
    edges = np.stack((ended, begun), axis=1).ravel()
    farthest = np.maximum.reduceat(distance, np.minimum(edges, len(request)))[::2]
    maps = (farthest > sizes_.tokens) & (begun > ended)
    token = np.flatnonzero(np.repeat(maps, sizes_.span)[:num_tokens])
    its_request = np.searchsorted(starts[1:], token, side="right")
    token = token[token - first_of_tile[its_request] >= sizes_.tokens]
    return token, token // sizes_.span % launch.num_spans


def columns_of(launch, group):
    """Return who writes which columns of a group's target, and which of its source beside them.

    Elements are `batch index * width + column`, and `row * width + column`.
    """
    sizes_ = launch.sizes
    batch = np.arange(launch.num_rows if launch.features.gathers else 0)
    row = np.full(launch.num_rows, -1)
    row[: len(launch.mapping)] = launch.mapping
    row = row[: len(batch)]
    known = (row >= 0) & (row < len(group.length))
    safe = np.where(known, row, 0)
    start, end = (np.where(known, values[safe], 0) for values in (group.start, group.end))
    staged = known & group.staged[safe]
    length = np.where(known, group.length[safe], group.width)
    fours = np.where(staged, np.minimum(start, length), length) // 4 * 4
    apart = (end - start > 1) & (launch.where != CARRIED.value)
    first_wide = launch.num_rows - launch.num_wide
    shared = (launch.num_chunks > 0) & (batch >= first_wide)
    own = np.where(shared, np.minimum(length, sizes_.own_columns), length)
    its_tile = launch.num_spans + batch // sizes_.tile
    pieces = [(batch, 0 * own, own, its_tile, np.minimum(fours, own // 4 * 4))]
    count = np.where(shared, -(-(length - sizes_.own_columns) // sizes_.wide_columns), 0)
    nth, which = _ranges(0 * count, count, batch)
    if len(which):
        begin = sizes_.own_columns + nth * sizes_.wide_columns
        part = launch.num_spans + launch.num_tiles
        part = part + (which - first_wide) * launch.num_chunks + nth % launch.num_chunks
        past_last = np.minimum(length[which], begin + sizes_.wide_columns)
        copied = np.clip(fours[which], begin, begin + sizes_.wide_columns)
        pieces.append((which, begin, past_last, part, copied))
    target, source = [], []
    for which, begin, past_last, part, copied in pieces:
        rest = np.where(apart[which], np.minimum(past_last, start[which]), past_last)
        first = np.maximum(begin, start[which])
        last = np.where(apart[which], np.minimum(past_last, end[which]), first)
        place = np.arange(len(which))
        for low, high in ((begin, copied), (copied, rest), (first, last)):
            column, at = _ranges(low, high, place)
            target.append((which[at] * group.width + column, part[at]))
        if launch.where not in (CARRIED.value, MARKED.value):
            column, at = _ranges(first, last, place)
            source.append((row[which[at]] * group.width + column, part[at]))
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    return tuple(
        Written(*map(np.concatenate, zip(*(found or [empty]), strict=True)))
        for found in (target, source)
    )


def writes_of(launch, intervals, groups):
    """Return who writes staged ids, by group, and numbers of blocks, `group * rows + row`."""
    none = np.zeros(0, np.int64)
    ids = [[(none, none)] for _ in groups]
    counted, programs = [], []
    # Words are in the order of groups and rows; records and pieces in that of staging.
    places = sorted((group, row) for group, row, _, _ in intervals)
    ranks = {place: rank for rank, place in enumerate(places)}
    piece = first_piece = -(-launch.num_words // launch.sizes.words)
    for index, (group, row, start, count) in enumerate(intervals):
        part = index if launch.programs else ranks[group, row] // launch.sizes.words
        counted.append(group * len(groups[group].length) + row)
        programs.append(part)
        first = row * groups[group].width + start
        if launch.programs or count == 1:
            ids[group].append((np.arange(first, first + count), np.full(count, part)))
            continue
        left = launch.where == CARRIED.value or row not in launch.mapping
        for begin in range(0, count, PIECE_IDS.value):
            size = min(count - begin, PIECE_IDS.value) if left else 0
            ids[group].append((first + begin + np.arange(size), np.full(size, piece)))
            piece += 1
    assert len(intervals) == launch.num_words
    assert launch.programs or piece == first_piece + launch.num_pieces
    return (
        [Written(*map(np.concatenate, zip(*found, strict=True))) for found in ids],
        Written(np.array(counted, np.int64), np.array(programs, np.int64)),
    )


def writers(launch, intervals, groups):
    """Return the elements of each buffer that programs of a launch write, with their numbers.

    Returns:
        By buffer and group: `("slots", 0)`, `("target", 0)`, `("source", 0)`; `("num_blocks", 0)`
        is of all groups.
    """
    if launch.programs:
        num_writers = launch.num_words
        assert launch.grid == launch.programs
    else:
        num_writers = -(-launch.num_words // launch.sizes.words) + launch.num_pieces
        assert launch.grid == num_writers + len(groups) * launch.in_group
    ids, counted = writes_of(launch, intervals, groups)
    slots = slots_of(launch)
    found = {("num_blocks", 0): counted}
    for index, group in enumerate(groups):
        first = num_writers + index * launch.in_group
        target, source = columns_of(launch, group)
        found["slots", index] = Written(slots.elements, first + slots.parts)
        found["target", index] = Written(target.elements, first + target.parts)
        found["source", index] = Written(
            np.concatenate((ids[index].elements, source.elements)),
            np.concatenate((ids[index].parts, first + source.parts)),
        )
    if launch.programs:
        for written in found.values():
            written.parts = written.parts % launch.programs
    return found


def check(launch, intervals, groups):
    """Hold that each element which a step must write has exactly one writer, and no other has any.

    Of a row that is in the batch more than once, each request may write the staged ids.

    Raises:
        AssertionError: naming buffer, group and element.
    """
    found = writers(launch, intervals, groups)
    max_num_reqs = len(groups[0].length)
    rows = np.full(launch.num_rows, -1)
    rows[: len(launch.mapping)] = launch.mapping
    known = (rows >= 0) & (rows < max_num_reqs)
    safe = np.where(known, rows, 0)
    counted = np.zeros(len(groups) * max_num_reqs, bool)
    counted[[group * max_num_reqs + row for group, row, _, _ in intervals]] = True
    _hold(found["num_blocks", 0], counted, "num_blocks", launch)
    own_rows = rows[known]
    repeated = len(np.unique(own_rows)) < len(own_rows)
    for index, group in enumerate(groups):
        column = np.arange(group.width)
        slots = np.ones(launch.num_slots, bool)
        _hold(found["slots", index], slots, f"slots of group {index}", launch)
        length = np.where(known, group.length[safe], group.width)
        gathered = (column < length[:, None]).ravel()
        _hold(found["target", index], gathered, f"target of group {index}", launch)
        fresh = (column >= group.start[:, None]) & (column < group.end[:, None])
        name = f"source of group {index}"
        _hold(found["source", index], fresh.ravel(), name, launch, repeated=repeated)


def _hold(written, wanted, name, launch, *, repeated=False):
    """Hold that a buffer's elements have one writer where that is wanted, and else none."""
    counts = np.bincount(written.elements, minlength=len(wanted))
    if repeated:
        counts = np.minimum(counts, 1)
    if len(counts) > len(wanted) or (counts != wanted).any():
        padded = np.zeros(len(counts), bool)
        padded[: len(wanted)] = wanted
        places = {
            "without a writer": padded & (counts == 0),
            "with several": padded & (counts > 1),
            "not to be written": ~padded & (counts > 0),
        }
        found = [f"{what} {np.flatnonzero(at)[:6]}" for what, at in places.items() if at.any()]
        raise AssertionError(f"{name}: {', '.join(found)}; {launch}")


def groups_of(tables_, intervals):
    """Return what is known of each group of tables, before a step's writes are cleared."""
    shape = tables_.num_blocks.shape
    start, end, staged = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    for group, row, first, count in intervals:
        start[group, row], end[group, row], staged[group, row] = first, first + count, True
    length = tables_.num_blocks.astype(np.int64)
    return [
        Group(width, length[g], start[g], end[g], staged[g])
        for g, width in enumerate(tables_.layout.widths)
    ]


def intervals_of(tables_):
    """Return what is staged: group, row, start and number of ids of each interval."""
    return [(g, row, start, len(ids)) for g, row, start, ids in tables_._staged.intervals()]
