"""First lines of files of recorded calls."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch

from bt_kernels.engines.recordings import RECORDING, REPRO, Header
from bt_kernels.layout import TableLayout

_ARGUMENTS = (
    *("block_sizes", "max_num_reqs", "max_num_batched_tokens", "max_num_blocks_per_group"),
    *("cp_size", "cp_rank", "cp_interleave"),
    *("slot_mapping_enabled", "dcp_sharded", "sliding_window_reach"),
)


def recording_header(theirs: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Header:
    """Return the first line of a recording of tables that vLLM builds with these arguments.

    Raises:
        ValueError: when the constructor has an argument that recordings have no field for.
    """
    found = inspect.signature(theirs).bind(*args, **kwargs).arguments
    device = found.pop("device")
    if unknown := found.keys() - set(_ARGUMENTS):
        raise ValueError(
            f"vLLM's constructor got {', '.join(sorted(unknown))}; expected only "
            f"{', '.join(_ARGUMENTS)} and device"
        )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }
    return Header(RECORDING, _release(), device.type, _name(device), **values)


def repro_header(layout: TableLayout, device: torch.device) -> Header:
    """Return the first line of a repro file of tables with a layout."""
    return Header(
        *(REPRO, _release(), device.type, _name(device)),
        layout.block_sizes,
        layout.max_num_reqs,
        layout.max_num_batched_tokens,
        layout.widths,
        *(layout.cp_size, layout.cp_rank, layout.cp_interleave),
        layout.slot_mapping_enabled,
        layout.dcp_sharded,
        layout.sliding_window_reach,
    )


def _release() -> str:
    """Return the version of vLLM, or an empty string."""
    return str(getattr(sys.modules.get("vllm"), "__version__", ""))


def _name(device: torch.device) -> str:
    """Return the name of a GPU, or an empty string."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""
