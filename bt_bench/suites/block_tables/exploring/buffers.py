"""The observable state of tables after a call: all their buffers, and where results lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import MismatchError
from bt_bench.suites.block_tables.exploring.arguments import Outputs
from bt_bench.suites.block_tables.exploring.calls import GATHER, SLOTS, Scenario
from bt_kernels.layout import TableLayout

Facts = dict[str, np.ndarray[Any, Any] | str]


class Buffers:
    """The buffers of tables, and the buffers that their caller passes.

    The tensors are looked up once: a variant that writes on a later look-up writes too late.

    Args:
        tables: a variant's or the reference's.
        layout: the scenario's layout.
        before: rows of the tables in front of the scenario's own.

    Attributes:
        filled_with: the value of outputs where no step has written.
    """

    def __init__(self, tables: Any, layout: TableLayout, before: int) -> None:
        self._tables = tables
        self._rows = layout.max_num_reqs
        self._before = before
        self._tensors = self._find()
        self._held: dict[str, torch.Tensor] = {}
        self.filled_with = 0

    def hold(self, outputs: Mapping[int, Outputs]) -> None:
        """Enqueue copies, which hold the contents that the next work in the stream would see."""
        self._held = {name: tensor.clone() for name, tensor in self._every(outputs)}

    def find_anew(self) -> None:
        """Look up the tensors again: the caller has replaced them."""
        self._tensors = self._find()
        self.release()

    def release(self) -> None:
        """Drop the copies, since the caller itself has written to the buffers."""
        self._held = {}

    def seen(self, outputs: Mapping[int, Outputs]) -> Facts:
        """Return all contents, from the copies where there are any, and name the late changes."""
        found: Facts = {}
        late = []
        for name, tensor in self._every(outputs):
            held = self._held.get(name)
            found[name] = _array(tensor if held is None else held)
            if held is not None and not torch.equal(held, tensor):
                late.append(name)
        self.release()
        num_blocks = np.array(self._tables.num_blocks, dtype=np.int64)
        found["num_blocks"] = num_blocks[:, self._before :]
        found["rows without requests"] = "kept" if self._others_are_kept() else "changed"
        now = self._find()
        moved = [n for n, kept in self._tensors.items() if now[n].data_ptr() != kept.data_ptr()]
        found["addresses"] = f"{', '.join(moved)} moved" if moved else "kept"
        found["after the stream"] = f"{', '.join(late)} changed" if late else "kept"
        return found

    def _every(self, outputs: Mapping[int, Outputs]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield all buffers that calls write, by name: the tables' and their caller's."""
        yield from self._tensors.items()
        for key, of_caller in outputs.items():
            for group, table in enumerate(of_caller.tables):
                yield f"out[{group}] of set {key}", table
            yield f"slots_out of set {key}", of_caller.all_slots

    def _find(self) -> dict[str, torch.Tensor]:
        tables = self._tables
        named: dict[str, torch.Tensor] = {}
        for group, table in enumerate(tables.block_tables):
            named[f"block_tables[{group}]"] = table[self._before :]
        for group, table in enumerate(tables.input_block_tables):
            named[f"input_block_tables[{group}]"] = table[: self._rows]
        named["slot_mappings"] = tables.slot_mappings
        return named

    def _others_are_kept(self) -> bool:
        """Return whether the rows outside of the scenario are unchanged."""
        if not self._before:
            return True
        tables = self._tables
        kept = [table[: self._before].aminmax() for table in tables.block_tables]
        filled = [table[self._rows :].aminmax() for table in tables.input_block_tables]
        return (
            all(int(least) == int(most) == 0 for least, most in kept)
            and all(int(least) == int(most) == self.filled_with for least, most in filled)
            and not tables.num_blocks[:, : self._before].any()
        )

    def told(self, method: str, result: Any, outputs: Outputs | None) -> str:
        """Describe a result by the parts of buffers that were returned."""
        if method == GATHER:
            return self.views(result, outputs)
        if method == SLOTS:
            return self.view(result, outputs)
        if not isinstance(result, tuple) or len(result) != 2:
            return f"{type(result).__name__}, not block tables and slots"
        return f"{self.views(result[0], outputs)}; {self.view(result[1], outputs)}"

    def views(self, views: Any, outputs: Outputs | None) -> str:
        """Describe several views as parts of buffers."""
        if not isinstance(views, (tuple, list)):
            return type(views).__name__
        return ", ".join(self.view(view, outputs) for view in views)

    def view(self, view: Any, outputs: Outputs | None) -> str:
        """Describe a view as a part of a buffer."""
        if not isinstance(view, torch.Tensor):
            return type(view).__name__
        size = " x ".join(map(str, view.shape))
        if not view.numel():
            return f"{size} of nothing"
        named = {"slot_mappings": self._tables.slot_mappings}
        for group, table in enumerate(self._tables.input_block_tables):
            named[f"input_block_tables[{group}]"] = table
        if outputs is not None:
            named |= {f"out[{group}]": table for group, table in enumerate(outputs.tables)}
            named["slots_out"] = outputs.slots
        for name, buffer in named.items():
            same = (view.data_ptr(), view.stride()) == (buffer.data_ptr(), buffer.stride())
            if same and view.dtype == buffer.dtype:
                return f"{size} of {name}"
        return f"{size} of memory of its own"


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return contents as int64, whatever the width of the integers."""
    if type(tensor) is not torch.Tensor:
        raise MismatchError(f"a buffer is a {type(tensor).__name__}; expected a plain torch.Tensor")
    if tensor.dtype.is_floating_point or tensor.dtype is torch.bool:
        raise MismatchError(f"a buffer has dtype {tensor.dtype}; expected integers")
    found: np.ndarray[Any, Any] = tensor.detach().to("cpu", torch.int64, copy=True).numpy()
    return found


def rows_before(
    scenario: Scenario, layout: TableLayout, device: torch.device, leave_out: Callable[[str], None]
) -> int:
    """Return the number of rows to put before a scenario's: 0 without a GPU with memory for them.

    Args:
        scenario: gives their number.
        layout: layout of the tables.
        device: where the tables live.
        leave_out: is called with a message if the GPU lacks the memory.
    """
    if not scenario.rows_before or device.type != "cuda":
        return 0
    rows = scenario.rows_before + layout.max_num_reqs
    needed = 3 * 4 * rows * sum(layout.widths)  # source and input tables, and the largest copy
    free, _ = torch.cuda.mem_get_info(device)
    if free < needed:
        told = f"{free >> 30} GiB of the GPU's memory are free, of {needed >> 30} GiB that it takes"
        leave_out(f"far rows: {told}")
        return 0
    return scenario.rows_before
