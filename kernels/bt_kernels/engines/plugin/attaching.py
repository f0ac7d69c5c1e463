"""The objects that prepare the batches of a runner, given to its tables once it has all it needs.

The wrappers of `prepare_inputs` and `prepare_attn` look for them there. So they are gone as soon as
tables become vLLM's, after a failure or when the plugin is taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bt_kernels.engines.plugin.comparing import BatchComparer
from bt_kernels.engines.plugin.counting import COUNTS
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.messages import LOGGER, warn_once
from bt_kernels.engines.plugin.preparing import BatchPreparer, UnpreparedError

_Method = Callable[..., Any]


class UnpreparedBatches:
    """Counts why the batches of a runner are not prepared by ours.

    Args:
        reason: for all of them.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def prepare_inputs(self, method: _Method, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Count, and return the batch of vLLM's method."""
        COUNTS.fallbacks[self._reason] += 1
        return method(runner, *args, **kwargs)

    def prepare_attn(self, method: _Method, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the tables and slots of vLLM's method."""
        return method(runner, *args, **kwargs)


def attach(runner: Any, module: Any) -> bool:
    """Prepare the batches of a runner from now on, if that is possible; return whether it may be.

    Args:
        runner: with its final tables, state of requests and buffers.
        module: the runner's module.
    """
    tables = runner.block_tables
    shadow = getattr(tables, "__dict__", {}).get("_shadow")
    ours = tables if shadow is None else shadow.ours
    if not isinstance(ours, DeferringTables):
        return False  # vLLM's
    found: Any
    try:
        found = BatchPreparer(runner, ours, module)
        if shadow is not None:
            tables._inputs = BatchComparer(BatchPreparer(runner, ours, module, apart=True))
        LOGGER.info("bt_kernels: batches are prepared by one launch")
    except (UnpreparedError, ValueError) as error:
        warn_once(f"batches are not prepared: {error}. The engine does that by its own code")
        found = UnpreparedBatches(str(error))
        if shadow is not None:
            tables._inputs = found
    ours._inputs = found
    return True
