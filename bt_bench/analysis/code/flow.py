"""The ways that a kernel can take through its basic blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Flow:
    """How blocks follow each other; loops are passed once.

    Args:
        order: the blocks that can be reached, each behind all of `before`.
        before: for each block, those that come right before it, less the ends of its own loop.
        deciders: for each block, those earlier in `order` whose branch decides whether it is run.
    """

    order: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    deciders: tuple[tuple[int, ...], ...]


def flow_of(successors: Sequence[Sequence[int]]) -> Flow:
    """The flow of blocks, of which the first is run first.

    Args:
        successors: for each block those that can follow; none: the kernel ends there.
    """
    order = _ordered(successors)
    place = {block: index for index, block in enumerate(order)}
    before: list[list[int]] = [[] for _ in successors]
    for block in order:
        for following in successors[block]:
            if place[following] > place[block]:
                before[following].append(block)
    deciders: list[list[int]] = [[] for _ in successors]
    for block, decided in _decisions(successors, order):
        if place[block] < place[decided]:
            deciders[decided].append(block)
    return Flow(tuple(order), tuple(map(tuple, before)), tuple(map(tuple, deciders)))


def _ordered(successors: Sequence[Sequence[int]], begins: Sequence[int] = (0,)) -> list[int]:
    """Reverse postorder, by a stack of its own: kernels may have thousands of blocks."""
    done: list[int] = []
    seen = set(begins)
    stack = [(each, iter(successors[each])) for each in begins if successors]
    while stack:
        block, following = stack[-1]
        new = next((each for each in following if each not in seen), None)
        if new is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(successors[new])))
    return done[::-1]


def _decisions(
    successors: Sequence[Sequence[int]], order: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of a block that branches, and one that is run or not by what it decides.

    Ferrante, Ottenstein and Warren, "The program dependence graph and its use in optimization"
    (1987): of a branch from a to s, all that comes surely after s and not surely after a.
    """
    nearest = _nearest_after(successors, order)
    for block in order:
        if len(set(successors[block])) < 2:
            continue
        for following in set(successors[block]):
            at: int | None = following
            while at is not None and at != nearest[block]:
                yield block, at
                at = nearest[at]


def _nearest_after(
    successors: Sequence[Sequence[int]], order: Sequence[int]
) -> dict[int, int | None]:
    """For each block the first one that comes surely after it; `None`: only the end does.

    Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001), from the end backwards.
    """
    end = len(successors)
    following = {block: set(successors[block]) or {end} for block in order}
    while True:
        leading: list[list[int]] = [[] for _ in range(end + 1)]
        for block in order:
            for each in following[block]:
                leading[each].append(block)
        backwards = _ordered(leading, [end])
        endless = [block for block in order if block not in set(backwards)]
        if not endless:
            break
        following[endless[-1]].add(end)  # as if it ended there
    place = {block: index for index, block in enumerate(backwards)}
    nearest = {end: end}

    def common(one: int, other: int) -> int:
        while one != other:
            if place[one] > place[other]:
                one = nearest[one]
            else:
                other = nearest[other]
        return one

    changed = True
    while changed:
        changed = False
        for block in backwards[1:]:
            known = [each for each in following[block] if each in nearest]
            found = known[0]
            for each in known[1:]:
                found = common(found, each)
            if nearest.get(block) != found:
                nearest[block] = found
                changed = True
    return {block: None if at == end else at for block, at in nearest.items() if block != end}
