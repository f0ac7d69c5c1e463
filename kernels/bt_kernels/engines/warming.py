"""The connection of `BlockTables.warmup` to vLLM's registry of kernels to compile ahead."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from bt_kernels.engines.vllm import BlockTables
from bt_kernels.layout import TableLayout

_KERNELS: WeakKeyDictionary[BlockTables, Any] = WeakKeyDictionary()


class _Key(NamedTuple):
    """The key under which a registry compiles all kernels of some tables, at once."""

    name: str
    layout: TableLayout
    device: str


class _AllKernels:
    """All kernels of some tables, with the methods of vLLM's `VllmJitKernel`.

    A registry lives as long as its runner, which may build its tables anew, so it must not keep
    them.
    """

    tables: ReferenceType[BlockTables]

    def get_warmup_keys(self) -> list[_Key]:
        """Return a single key; none once the tables are gone."""
        tables = self.tables()
        if tables is None:
            return []
        return [_Key("bt_kernels.BlockTables", tables.layout, str(tables.device))]

    def compile(self, _key: _Key) -> None:
        """Compile and load all kernels of the tables."""
        tables = self.tables()
        if tables is not None:
            tables.warmup()


def register_warmup(tables: BlockTables, registry: Any) -> bool:
    """Let vLLM's warm-up of kernels compile those of tables, as `BlockTables.warmup` does.

    vLLM 0.33.0 compiles all registered kernels before it captures graphs and serves, unless
    `kernel_config.enable_jit_warmup` is off. Call this once the tables are built. Calling it again
    for the same tables changes nothing, and tables that are gone are passed over. vLLM itself is
    not imported.

    Args:
        tables: the tables.
        registry: `jit_warmup_registry` of the model runner; `None` if it has none, as in older
            releases.

    Returns:
        Whether the tables are registered: not without a registry, nor with one whose module has no
        `VllmJitKernel`; then call `BlockTables.warmup` before serving.
    """
    base = _kernel_class(registry)
    if base is None:
        return False
    kernel = _KERNELS.get(tables)
    if not isinstance(kernel, base):
        kernel = type("BlockTablesKernels", (_AllKernels, base), {})()
        kernel.tables = ref(tables)
        _KERNELS[tables] = kernel
    with registry.activate():
        kernel.register_warmup()
    return True


def _kernel_class(registry: Any) -> Any:
    """Return `VllmJitKernel` of the module that defines a registry; `None` without it."""
    for kind in type(registry).__mro__:
        found = getattr(sys.modules.get(kind.__module__), "VllmJitKernel", None)
        if found is not None:
            return found
    return None
