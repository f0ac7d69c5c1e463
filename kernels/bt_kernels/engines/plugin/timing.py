"""Tables that measure the host time which the engine spends in their calls, step by step.

A step lasts from one `execute_model` to the next, so the calls of speculators belong to it. Only
steps that apply writes are measured: dummy runs are not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from bt_kernels.engines.plugin.counting import HOST_TIMES

if TYPE_CHECKING:
    from bt_kernels.engines.plugin.deferring import DeferringTables as _Base
else:
    _Base = object

_METHODS = (
    "append_block_ids",
    "apply_staged_writes",
    "gather_block_tables",
    "compute_slot_mappings",
    "get_dummy_block_tables",
    "get_dummy_slot_mappings",
    "settle",
)


class _Timed(_Base):
    """Adds up the time of calls; to be combined with a class of tables."""

    def begin_step(self, *given: Any) -> None:
        waiting = self._waiting
        if waiting.has_applied:
            HOST_TIMES.add(waiting.spent_ns)
        waiting.spent_ns, waiting.has_applied = 0, False
        super().begin_step(*given)


def timed(kind: type[_Base]) -> type[_Base]:
    """Return a subclass of `DeferringTables`, or of one of its subclasses, that measures its calls.

    This takes up to 0.7 µs in each call that Python makes.
    """
    names: dict[str, Any] = {name: _measured(name, getattr(kind, name)) for name in _METHODS}
    names |= {"__module__": __name__, "_bt_kernels_measures": kind}
    return type("TimedTables", (_Timed, kind), names)


def _measured(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    is_apply = name == "apply_staged_writes"

    @functools.wraps(method)
    def measured(tables: Any, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter_ns()
        try:
            return method(tables, *args, **kwargs)
        finally:
            # After a failure they are vLLM's.
            if isinstance(tables, _Timed):
                tables._waiting.spent_ns += perf_counter_ns() - began
                tables._waiting.has_applied |= is_apply

    return measured
