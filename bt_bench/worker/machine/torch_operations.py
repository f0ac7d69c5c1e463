"""Torch operations that a GPU would have to run besides a variant's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

OnOperation = Callable[[str, tuple[Any, ...]], None]


class TorchOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """A mode that reports torch operations which would run on a device, while it is entered.

    An operation counts unless it only makes a view or allocates: on a GPU it would be a kernel, a
    copy or a memset.

    Args:
        on_operation: called with name and positional arguments of each.

    Attributes:
        paused: nothing is reported while it is above 0.
    """

    def __init__(self, on_operation: OnOperation) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.paused = 0
        self._on_operation = on_operation

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True, torch's default, imports all of torch._dynamo at the first operation, which takes
        # three seconds and more, whether or not anything is compiled.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.paused and _runs_on_device(func):
            self._on_operation(func.overloadpacket.__name__, args)
        return func(*args, **(kwargs or {}))


def _runs_on_device(func: Any) -> bool:
    name = func.overloadpacket.__name__
    if name.startswith(("empty", "new_empty")) or name in ("detach", "set_", "lift_fresh"):
        return False
    # A view's result aliases its argument without writing to it.
    return not any(
        result.alias_info is not None and not result.alias_info.is_write
        for result in func._schema.returns
    )
