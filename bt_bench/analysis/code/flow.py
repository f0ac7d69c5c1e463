"""The control flow of a kernel through its basic blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Args:
        opcode: with modifiers, such as `ld.global.b32` or `LDG.E.64`.
        guarded: whether a predicate may skip it.
        target: label that it branches to.
        place: file and line.
    """

    opcode: str
    guarded: bool
    target: str | None
    place: str

    @property
    def name(self) -> str:
        """Return the opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def ends(self) -> bool:
        """Return whether the kernel, or a function of it, ends here."""
        return self.name in {"ret", "exit", "trap", "RET", "EXIT"}


AnInstruction = TypeVar("AnInstruction", bound=Instruction)


@dataclass
class Block(Generic[AnInstruction]):
    """A basic block: the labels of its beginning, and its instructions."""

    labels: list[str] = field(default_factory=list)
    instructions: list[AnInstruction] = field(default_factory=list)


def blocks_of(lines: Iterable[AnInstruction | str]) -> list[Block[AnInstruction]]:
    """Split instructions and labels at labels and branches; the first block is the entry."""
    blocks: list[Block[AnInstruction]] = [Block()]
    for each in lines:
        if isinstance(each, str):
            if blocks[-1].instructions:
                blocks.append(Block())
            blocks[-1].labels.append(each)
        else:
            blocks[-1].instructions.append(each)
            if each.target is not None or each.ends:
                blocks.append(Block())
    return blocks


def successors_of(blocks: Sequence[Block[AnInstruction]]) -> list[list[int]]:
    """Return for each block those that can follow."""
    places = {label: index for index, block in enumerate(blocks) for label in block.labels}
    found = []
    for index, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        following = [places[last.target]] if last and last.target in places else []
        leaves = last is not None and (last.target is not None or last.ends) and not last.guarded
        if not leaves and index + 1 < len(blocks):
            following.append(index + 1)
        found.append(following)
    return found


@dataclass(frozen=True)
class Flow:
    """The order of basic blocks and their dependences; loops are passed once.

    Args:
        order: the reachable blocks, each behind all of `before`.
        before: for each block, its direct predecessors, less the ends of its own loop.
        deciders: for each block, those earlier in `order` whose branch decides whether it is run.
    """

    order: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    deciders: tuple[tuple[int, ...], ...]


def flow_of(successors: Sequence[Sequence[int]]) -> Flow:
    """Return the flow of blocks; execution begins at the first one.

    Args:
        successors: for each block those that can follow; if there are none, the kernel ends there.
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
    """Return the reverse postorder, by an explicit stack: kernels may have thousands of blocks."""
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
    """Yield pairs of a branching block, and a block that runs or not depending on that branch.

    After Ferrante, Ottenstein and Warren, "The program dependence graph and its use in
    optimization" (1987): a branch from a to s decides all blocks that surely follow s but not a.
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
    """Return for each block its immediate postdominator; `None` if only the end surely follows.

    After Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001), run backwards
    from the end.
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
