"""Ways to spread the tokens of a batch over its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from bt_bench.suites.block_tables.exploring.calls import Ints

LENGTHS: Final = (
    *(1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257),
    *(511, 512, 513, 1023, 1024, 1025),
)
"""Thresholds of kernels on the tokens of a request, and their neighbours."""


def starts_of(rng: np.random.Generator, reqs: int, tokens: int, spread: str | None) -> Ints:
    """Draw `query_start_loc` of a batch; without a `spread`, by any of them."""
    if not reqs:
        return np.zeros(1, dtype=np.int64)
    if spread is None:
        spread = _ANY[int(rng.integers(len(_ANY)))]
    lengths = np.maximum(SPREADS[spread](rng, reqs, tokens), 0)
    if reqs <= tokens < lengths.sum() and rng.random() < 0.8:
        lengths = _shortened(rng, lengths, tokens)
    ends = np.minimum(np.cumsum(lengths), tokens)
    # The remaining tokens go to the last request, to a random one, or to the longest.
    if spread in _REST_ANYWHERE:
        ends[int(rng.integers(reqs)) :] += tokens - ends[-1]
    if spread in _REST_TO_THE_LONGEST:
        ends[int(np.argmax(lengths)) :] += tokens - ends[-1]
    ends[-1] = tokens
    return np.concatenate([[0], ends]).astype(np.int64)


def _shortened(rng: np.random.Generator, lengths: Ints, tokens: int) -> Ints:
    """Keep as many of the lengths as fit, anywhere in the batch; cut the others to one token.

    Otherwise, the first requests would get all tokens.
    """
    order = rng.permutation(len(lengths))
    kept = np.cumsum(np.maximum(lengths[order] - 1, 0)) <= tokens - len(lengths)
    found = np.minimum(lengths, 1)
    found[order[kept]] = lengths[order[kept]]
    return found


def _one(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Put all tokens in one request: the first, the last, or another."""
    lengths = np.zeros(reqs, dtype=np.int64)
    lengths[int(rng.choice([0, reqs - 1, int(rng.integers(reqs))]))] = tokens
    return lengths


def _anyhow(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    cuts = np.sort(rng.integers(tokens + 1, size=reqs - 1))
    return np.diff(np.concatenate([[0], cuts, [tokens]]))


def _long_first(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Draw one long request, then short ones."""
    short = rng.integers(1, int(rng.choice([2, 5, 17])), size=reqs)
    short[0] = max(0, tokens - int(short[1:].sum()))
    return short


def _turns(rng: np.random.Generator, reqs: int, _tokens: int) -> Ints:
    """Draw long and short requests in turn."""
    short, long = rng.integers(1, 17, size=reqs), rng.integers(17, 60, size=reqs)
    return np.where((np.arange(reqs) + int(rng.integers(2))) % 2 == 0, long, short)


def _gaps(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Draw requests with empty ones in between."""
    lengths = rng.integers(1, max(2, 2 * tokens // reqs + 2), size=reqs)
    lengths[rng.random(reqs) < 0.5] = 0
    return lengths


def _runs(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Draw lengths at and beside the thresholds of kernels."""
    fitting = [length for length in LENGTHS if length <= max(1, tokens)]
    return rng.choice(fitting, size=reqs)


def _mates(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Draw long requests that end with a span of tokens or a little before, then short ones.

    The second of two requests that may share a program thus begins, or goes on, in a span without
    tokens of a long request.
    """
    lengths: list[int] = []
    total = 0
    while len(lengths) < reqs:
        if len(lengths) % 2:
            lengths.append(1)
            total += 1
        span = int(rng.choice([32, 64, 128, 128, 128, 256]))
        before = int(rng.integers(16))
        long = -(-(total + 17 + before) // span) * span - before - total
        short = [min(16, before + int(rng.integers(1, 9)))]
        until = span + int(rng.integers(span))
        while sum(short) < until:
            short.append(int(rng.integers(1, 17)))
        rest = reqs - len(lengths) - 1 - len(short)
        if lengths and total + long + sum(short) + max(0, rest) > tokens:
            break
        lengths += [long, *short]
        total += long + sum(short)
    lengths += [1] * (reqs - len(lengths))
    return np.array(lengths[:reqs], dtype=np.int64)


def _few(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Give tokens to the first or the last request, and to two others at most."""
    lengths = np.zeros(reqs, dtype=np.int64)
    places = [int(rng.choice([0, reqs - 1]))]
    places += rng.integers(reqs, size=int(rng.integers(3))).tolist()
    for place in places:
        lengths[place] = max(1, tokens // len(places) - int(rng.integers(9)))
    return lengths


def _ends(rng: np.random.Generator, reqs: int, tokens: int) -> Ints:
    """Give some tokens to the first request, and the rest to the last: many in between get none."""
    lengths = np.zeros(reqs, dtype=np.int64)
    lengths[0] = min(tokens, int(rng.integers(1, 100)))
    lengths[-1] = tokens - lengths[0] * (reqs > 1)
    return lengths


SPREADS: Final[dict[str, Callable[[np.random.Generator, int, int], Ints]]] = {
    "even": lambda _rng, reqs, tokens: np.diff(np.arange(reqs + 1) * tokens // reqs),
    "one": _one,
    "anyhow": _anyhow,
    "long first": _long_first,
    "long last": lambda rng, reqs, tokens: _long_first(rng, reqs, tokens)[::-1],
    "turns": _turns,
    "ones": lambda _rng, reqs, _tokens: np.ones(reqs, dtype=np.int64),
    "gaps": _gaps,
    "runs": _runs,
    "mates": _mates,
    "few": _few,
    "ends": _ends,
}
_ANY: Final = ("one", "even", "anyhow", *SPREADS)
_REST_ANYWHERE: Final = frozenset({"turns", "ones", "gaps", "runs"})
_REST_TO_THE_LONGEST: Final = frozenset({"few"})
