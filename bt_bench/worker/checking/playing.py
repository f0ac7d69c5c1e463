"""Plays scenarios in the process that has the variant; what is seen is compared elsewhere.

Only digests leave this process unless more is asked for. The expected ones never enter it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Contents, Floats, MismatchError, Seen, Suite
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import is_interrupt, load_reference
from bt_bench.worker import activity
from bt_bench.worker.checking.interpreter_guard import guarded_memory
from bt_bench.worker.failures import ArmFailedError, is_fatal, reason_of
from bt_bench.worker.plain_exploring import explorer_of
from bt_bench.worker.plays import Play, Played, Surveyed

_FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
LARGEST = 2**20  # numbers above it are limits of types, at which no size can be
_DIGEST_BYTES = 16


def play(
    task: Play, suite: Suite, arm: str | None, variant: type[Any] | None, device: torch.device
) -> tuple[Played, ...]:
    """Plays scenarios on a variant, or on the reference if there is none.

    Raises:
        ArmFailedError: when the variant has run out of memory or has taken the device with it.
    """
    if variant is None:
        reference = load_reference(suite)
        cpu = torch.device("cpu")
        return tuple(_play(task, suite, None, reference, cpu, each) for each in task.scenarios)
    assert arm is not None
    return tuple(_play(task, suite, arm, variant, device, each) for each in task.scenarios)


def _play(
    task: Play,
    suite: Suite,
    arm: str | None,
    variant: type[Any],
    device: torch.device,
    scenario: Any,
) -> Played:
    explorer = explorer_of(suite)
    digests: list[Mapping[str, str | Floats]] = []
    whole: Seen | None = None
    reason: Reason | None = None
    guard = None if arm is None else _guard_on(device)
    before = activity.current().enter(arm or "")
    try:
        for place, seen in enumerate(explorer.player().play(variant, scenario, device, guard)):
            digests.append({name: _digest(value) for name, value in seen.items()})
            whole = dict(seen) if place == task.whole else whole
            activity.current().leave(activity.current().enter(arm or ""))
    except MismatchError as mismatch:
        reason = Reason(code=ReasonCode.WRONG_RESULT, message=str(mismatch))
    except BaseException as error:  # SystemExit too: a variant must not end the run
        if is_interrupt(error) or arm is None:
            raise
        if is_fatal(error, device):
            raise ArmFailedError(arm, error, task.doing) from error
        reason = reason_of(error, task.doing)
    finally:
        activity.current().leave(before)
    return Played(tuple(digests), reason, whole)


def _guard_on(device: torch.device) -> Callable[..., AbstractContextManager[None]]:
    return guarded_memory if device.type == "cpu" else lambda *_: nullcontext()


def _digest(value: Contents) -> str | Floats:
    if isinstance(value, str | Floats):
        return value
    if value.dtype.kind not in "iub":
        raise TypeError(f"a player yielded an array of {value.dtype}; expected integers, or Floats")
    content = np.ascontiguousarray(value, dtype=np.int64)
    digest = hashlib.blake2b(content.tobytes(), digest_size=_DIGEST_BYTES)
    return f"{value.shape} {digest.hexdigest()}"


def survey(suite: Suite, arms: Mapping[str, type[Any]]) -> dict[str, Surveyed]:
    """What of each arm decides which scenarios it gets.

    Raises:
        ArmFailedError: for one that cannot be looked at.
    """
    explorer = explorer_of(suite)
    found = {}
    for name, variant in arms.items():
        try:
            found[name] = Surveyed(
                frozenset(getattr(variant, "features", ())) | explorer.abilities(variant),
                _sizes_of(suite, variant),
                explorer.unexplored(variant),
            )
        except Exception as error:
            raise ArmFailedError(name, error, "while surveyed") from error
    return found


def files_of(suite: Suite, variant: type[Any]) -> frozenset[Path]:
    """The files that a variant is written in: its own, or if it is shipped the package's.

    As its code names them: modules need not be among those of the process any more.
    """
    files = {
        Path(code.co_filename)
        for kind in variant.__mro__
        for attribute in vars(kind).values()
        if (code := getattr(inspect.unwrap(_function(attribute)), "__code__", None)) is not None
    }
    files = {path for path in files if path.is_file() and "/lib/python" not in str(path)}
    roots = {path: _package_of(path, suite.package) for path in files}
    own = frozenset(path for path, root in roots.items() if root is None)
    if own:
        return own
    return frozenset(path for root in set(roots.values()) if root for path in root.rglob("*.py"))


def _function(attribute: Any) -> Any:
    """The function in a method, a property or a class method."""
    for name in ("fget", "__func__"):
        attribute = getattr(attribute, name, None) or attribute
    return attribute


def _package_of(path: Path, package: str) -> Path | None:
    """The folder of the package of kernels that a file belongs to, if it does."""
    return next((folder for folder in path.parents if folder.name == package), None)


def _sizes_of(suite: Suite, variant: type[Any]) -> tuple[int, ...]:
    """Numbers in the files that a variant is written in."""
    names = _names_of(variant)
    found: set[int] = set()
    for path in files_of(suite, variant):
        found |= numbers_in(path.read_text(encoding="utf-8"), names.get(str(path), {}))
    return tuple(sorted(found))


def _names_of(variant: type[Any]) -> dict[str, dict[str, int]]:
    """Numbers that have names in the modules of a class, also those imported, by file."""
    found: dict[str, dict[str, int]] = {}
    for kind in variant.__mro__:
        for attribute in vars(kind).values():
            function = inspect.unwrap(_function(attribute))
            if not isinstance(function, FunctionType):
                continue
            named = function.__globals__.items()
            values = {name: getattr(value, "value", value) for name, value in named}
            numbers = {name: value for name, value in values.items() if type(value) is int}
            found.setdefault(function.__code__.co_filename, {}).update(numbers)
    return found


def numbers_in(text: str, names: Mapping[str, int]) -> set[int]:
    """Whole numbers from 3 up in Python code, with products, powers and shifts worked out.

    Args:
        text: the code.
        names: of numbers that it may use.
    """
    nodes = list(ast.walk(ast.parse(text)))
    # By how many bits something is shifted is no size.
    bits = {
        id(node.right)
        for node in nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift)
    }
    values = (_value(node, names) for node in nodes if id(node) not in bits)
    return {value for value in values if value is not None and 3 <= value <= LARGEST}


def _value(node: ast.AST, names: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _value(node.left, names), _value(node.right, names)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.LShift):
        return left << right if 0 <= right <= 64 else None
    if isinstance(node.op, ast.Pow):
        return left**right if 0 <= right <= 64 and abs(left) <= 64 else None
    fold = _FOLDED.get(type(node.op))
    if fold is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
        return None
    return fold(left, right)
