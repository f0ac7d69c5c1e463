"""The tree of a step's calls over repetitions, from the events of Python's profiling hook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, Literal

import numpy as np

from bt_bench.protocol import default_suite
from bt_bench.results import FloatArray, HandlerCost, HostFrame
from bt_bench.variants import TOOL, installed_places

# The event, the frame's code (for a call of a builtin, the caller's), the instruction that the
# frame is at, and the time in ns. Where names are taken, the builtin's name replaces the time.
Event = tuple[str, CodeType, int, Any]
Kind = Literal["python", "c"]

LOW, HIGH = 10, 90
"""Percentiles that bound the spread of a frame."""

# Calls that are nested deeper count as the one above them, since JSON is not read much deeper.
MOST_DEPTH = 80
OUTSIDE = 0  # the node of the step's caller
UNNAMED = "a call of C"

_DIGITS = 4  # of µs
_TORCH = "_VariableFunctionsClass."  # the class whose methods torch's functions are


@dataclass
class _Node:
    """A place in the tree: its parent, and the function that is called there."""

    parent: int
    depth: int
    code: CodeType | None = None  # `None`: a builtin
    names: dict[str, None] = field(default_factory=dict)
    children: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Repetition:
    """The calls of each node, and its own time in ns, in one repetition."""

    calls: Mapping[int, int]
    self_ns: Mapping[int, int]

    @property
    def shape(self) -> frozenset[int]:
        """The nodes that were called; a loop may call them more often in one repetition."""
        return frozenset(self.calls)


class CallTree:
    """All places that were called in any repetition.

    The builtins of a caller are distinguished by the instruction that calls them. Keeping a builtin
    would keep the object that it is a method of, and looking up its name would take longer than
    most builtins do. Therefore, names come from repetitions of their own, which are not timed.
    """

    def __init__(self) -> None:
        self._nodes = [_Node(OUTSIDE, 0)]

    def timed(self, events: Iterable[Event]) -> Repetition:
        """Add and return a repetition, from events with times."""
        calls: Counter[int] = Counter()
        self_ns: Counter[int] = Counter()
        node, before = OUTSIDE, None
        for event, next_node, now in self._walk(events):
            if before is not None:
                self_ns[node] += now - before
            before = now
            node = next_node
            if event in ("call", "c_call"):
                calls[node] += 1
        return Repetition(calls, self_ns)

    def name(self, events: Iterable[Event]) -> None:
        """Add the names of builtins, from events with names in place of times."""
        for event, node, name in self._walk(events):
            if event == "c_call" and self._nodes[node].code is None:
                self._nodes[node].names[name] = None

    def is_named(self, shape: Iterable[int]) -> bool:
        """Return whether the names of all builtins among some nodes are known."""
        nodes = [self._nodes[node] for node in shape]
        return all(node.code is not None or node.names for node in nodes)

    def frames(
        self, repetitions: Sequence[Repetition], python: HandlerCost, c: HandlerCost
    ) -> list[HostFrame]:
        """Return the outermost functions of repetitions of the same shape.

        A repeated step makes the same calls, unless it waits for a clock or for the device in a
        loop. There the handler runs instead of waiting, and its cost is not subtracted.

        Args:
            repetitions: at least one repetition.
            python: the handler's cost for a call of a Python function.
            c: the handler's cost for a call of a builtin.
        """
        costs: dict[Kind, HandlerCost] = {"python": python, "c": c}
        merged = self._merged(repetitions[0].shape)
        own = {place: _samples(nodes, repetitions) for place, nodes in merged.items()}
        for place in merged:
            cost = costs[place[-1].kind]
            calls, self_us = own[place]
            if _vary(calls):
                continue
            self_us -= calls * cost.within_us
            if len(place) > 1:
                own[place[:-1]][1][:] -= calls * cost.around_us
        for _, self_us in own.values():
            np.maximum(self_us, 0.0, out=self_us)
        return _frames_below((), own)

    def _walk(self, events: Iterable[Event]) -> Iterator[tuple[str, int, Any]]:
        """Yield each event with the node that runs after it, and with its time or name."""
        stack = [OUTSIDE]
        for event, code, instruction, what in events:
            if event == "call":
                stack.append(self._child(stack[-1], id(code), code))
            elif event == "c_call":
                # A negative key differs from the id of every object.
                stack.append(self._child(stack[-1], -1 - instruction, None))
            elif len(stack) > 1:
                stack.pop()
            yield event, stack[-1], what

    def _child(self, parent: int, key: int, code: CodeType | None) -> int:
        above = self._nodes[parent]
        found = above.children.get(key)
        if found is None:
            if above.depth == MOST_DEPTH:
                return parent
            found = above.children[key] = len(self._nodes)
            # The node keeps the code alive, and no other code can have the same id.
            self._nodes.append(_Node(parent, above.depth + 1, code))
        return found

    def _merged(self, shape: Iterable[int]) -> dict[_Place, list[int]]:
        """Return the nodes by place, parents first; equal names at one place are merged."""
        places: dict[int, _Place] = {OUTSIDE: ()}
        merged: dict[_Place, list[int]] = {}
        for node in sorted(shape):  # a node is made after its parent
            of = self._nodes[node]
            places[node] = place = (*places[of.parent], _function(of))
            merged.setdefault(place, []).append(node)
        return merged


@dataclass(frozen=True)
class _Function:
    name: str
    kind: Kind
    file: str | None = None
    line: int | None = None


_Place = tuple[_Function, ...]
_Samples = tuple[FloatArray, FloatArray]  # calls, and µs in the function itself; per repetition


def _function(node: _Node) -> _Function:
    if node.code is None:
        return _Function(" or ".join(node.names) or UNNAMED, "c")
    code = node.code
    return _Function(
        code.co_qualname, "python", relative_file(code.co_filename), code.co_firstlineno
    )


def _samples(nodes: Sequence[int], repetitions: Sequence[Repetition]) -> _Samples:
    calls = [sum(each.calls[node] for node in nodes) for each in repetitions]
    self_ns = [sum(each.self_ns.get(node, 0) for node in nodes) for each in repetitions]
    return np.asarray(calls, float), np.asarray(self_ns, float) / 1e3


def _vary(calls: FloatArray) -> bool:
    """Return whether the number of calls differs in more than a few repetitions."""
    low, high = np.percentile(calls, [LOW, HIGH])
    return bool(low < high)


def _frames_below(place: _Place, own: Mapping[_Place, _Samples]) -> list[HostFrame]:
    """Return the frames right below a place, in the order of their first calls."""
    below: dict[_Place, list[_Place]] = {}
    for each in own:
        below.setdefault(each[:-1], []).append(each)

    def made(place: _Place) -> tuple[HostFrame, FloatArray]:
        children = [made(child) for child in below.get(place, ())]
        calls, self_us = own[place]
        total = self_us + sum((samples for _, samples in children), np.zeros(len(self_us)))
        low, middle, high = np.percentile(self_us, [LOW, 50, HIGH])
        frame = HostFrame(
            **asdict(place[-1]),
            calls=int(np.median(calls)),
            calls_vary=_vary(calls),
            self_us=round(float(middle), _DIGITS),
            self_low_us=round(float(low), _DIGITS),
            self_high_us=round(float(high), _DIGITS),
            total_us=round(float(np.median(total)), _DIGITS),
            children=[frame for frame, _ in children],
        )
        return frame, total

    return [made(child)[0] for child in below.get(place, ())]


def builtin_name(builtin: Any) -> str:
    """Return the qualified name of a builtin: `time.sleep`, `dict.get`, `Tensor.copy_`, `len`."""
    name = str(getattr(builtin, "__qualname__", None) or getattr(builtin, "__name__", UNNAMED))
    if name.startswith(_TORCH):
        return f"torch.{name.removeprefix(_TORCH)}"
    module = getattr(builtin, "__module__", None)
    if isinstance(module, str) and module != "builtins" and "." not in name:
        return f"{module}.{name}"
    return name


@cache
def relative_file(path: str) -> str:
    """Return the path of a Python file from its package on: `torch/_ops.py`.

    The result is the same in each checkout. A file of no package is its name alone. A file of the
    suite's kernels begins with their package. A text that is no file, such as `<string>`, is
    returned unchanged.
    """
    if path.startswith("<"):
        return path
    file = Path(path)
    package = default_suite().package
    if package in file.parts[:-1]:
        return Path(*file.parts[file.parts.index(package) :]).as_posix()
    resolved = file.resolve()
    roots = [TOOL.parent] if resolved.is_relative_to(TOOL) else installed_places()
    found = [resolved.relative_to(root) for root in roots if resolved.is_relative_to(root)]
    return min(found, key=lambda each: len(each.parts)).as_posix() if found else file.name
