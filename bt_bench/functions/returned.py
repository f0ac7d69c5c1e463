"""Compare results of callables with the first one's.

Each result is copied before the next function is called, which may write to the same tensor.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from bt_bench.base.errors import UsageError

_PLAIN = (bool, int, float, complex, str)
_SHALLOW = 20  # levels of lists and mappings


def compare_first_calls(
    functions: Mapping[str, Callable[[], object]], wait: Callable[[], object]
) -> str:
    """Call each function once, and return in words how the results compare with the first one's.

    Compared are tensors, numbers and texts, also in tuples, lists and mappings.

    Args:
        functions: callables by name, two or more.
        wait: waits until the device is idle.

    Raises:
        UsageError: for a function that returns before its work is done or queued.
    """
    found = {}
    for name, function in functions.items():
        value = function()
        _refuse_unfinished(name, value)
        wait()
        found[name] = dict(_leaves(value))
    left_out = {_kind(leaf) for leaves in found.values() for leaf in leaves.values()} - {""}
    (first, right), *others = found.items()
    if not any(map(_has_bits, right.values())):
        return f"Results were not compared: {first} returns {min(left_out, default='no tensor')}."
    beside = f" Not compared: {', '.join(sorted(left_out))}." if left_out else ""
    apart = [text for name, mine in others if (text := _apart(name, mine, first, right))]
    if apart:
        return f"Results differ, in the first call: {'; '.join(apart)}.{beside}"
    return f"All returned the same, bit for bit, in the first call.{beside}"


def _refuse_unfinished(name: str, value: object) -> None:
    is_lazy = inspect.isgenerator(value) or inspect.isasyncgen(value)
    if not is_lazy and not inspect.isawaitable(value) and not isinstance(value, Future):
        return
    if inspect.iscoroutine(value):
        value.close()  # or Python warns of it
    raise UsageError(
        f"bench has {name!r}, which returns a {type(value).__name__}: its work is not done when it "
        "returns; expected a function that does it, such as lambda: asyncio.run(f()), "
        "lambda: list(f()) or lambda: f().result()"
    )


def _leaves(value: Any, place: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield copies of tensors, and other values, by their places; `None` is nothing."""
    if isinstance(value, Mapping) and level < _SHALLOW:
        for key, each in value.items():
            yield from _leaves(each, f"{place}[{key!r}]", level + 1)
    elif isinstance(value, tuple | list) and level < _SHALLOW:
        for number, each in enumerate(value):
            yield from _leaves(each, f"{place}[{number}]", level + 1)
    elif value is not None:
        yield place, value.detach().clone() if _has_bits(value) else value


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _has_bits(value: Any) -> bool:
    """Return whether a value is a tensor with memory of its own, not sparse and the like."""
    import torch

    return (
        _is_tensor(value)
        and value.layout is torch.strided
        and not (value.is_nested or value.is_quantized or value.is_meta)
    )


def _kind(value: Any) -> str:
    """Return the kind of a value that cannot be compared; empty: it can be."""
    if isinstance(value, _PLAIN) or _has_bits(value):
        return ""
    kind = f"a {type(value).__name__}"
    return f"{kind} of layout {value.layout} on {value.device}" if _is_tensor(value) else kind


def _apart(name: str, mine: Mapping[str, Any], first: str, right: Mapping[str, Any]) -> str:
    """Return how a function's results differ from the first one's; empty: they do not."""
    if {place: _shape(each) for place, each in mine.items()} != {
        place: _shape(each) for place, each in right.items()
    }:
        return f"{name}'s have other shapes or dtypes than {first}'s"
    differing = [place for place in right if not _same(mine[place], right[place])]
    if not differing:
        return ""
    text = f"{name}'s differ from {first}'s"
    for place in differing:
        if not _is_tensor(right[place]):
            return f"{text}: {mine[place]!r} in place of {right[place]!r}"
    distances = [_distance(mine[place], right[place]) for place in differing]
    if None in distances:
        return text
    most = max(filter(None, distances), default=0.0)
    if most == 0:
        return f"{text} in bits alone, as 0.0 does from -0.0"
    return f"{text} by up to {most:.3g}" if most < math.inf else f"{text}, also in NaN or infinity"


def _shape(value: Any) -> object:
    # Tensors without memory of their own may have no shape; of them, the kind has to do.
    kind = _kind(value) or type(value)
    return (value.shape, value.dtype, value.device) if _has_bits(value) else kind


def _same(mine: Any, theirs: Any) -> bool:
    if _kind(theirs):
        return True
    if not _is_tensor(theirs):
        return bool(mine == theirs) or (mine != mine and theirs != theirs)
    from bt_bench.worker.checking.comparing import same_bits

    return same_bits(mine, theirs)


def _distance(mine: Any, theirs: Any) -> float | None:
    """Return the largest difference of two tensors; `None`: their numbers cannot be read.

    It is infinite where one has NaN and the other has not. Integers that differ do so by 1 or more.
    """
    import torch

    is_whole = not theirs.dtype.is_floating_point and not theirs.dtype.is_complex
    wide = torch.complex128 if theirs.dtype.is_complex else torch.float64
    try:
        one, two = mine.to(wide), theirs.to(wide)
        apart = torch.where(one == two, 0, one - two).abs()
        if is_whole:
            apart = torch.where(mine == theirs, 0, apart.clamp(min=1))
        most = float(torch.where(one.isnan() & two.isnan(), 0, apart).max())
    except RuntimeError:  # torch cannot convert float4, or there is too little memory
        return None
    return math.inf if math.isnan(most) else most
