"""The plugin that vLLM loads: it replaces vLLM's block tables where `BT_KERNELS` asks for it.

`docs/vllm-plugin.md` describes it. `load` is the entry point of the group `vllm.general_plugins`;
`remove` undoes it. The modules here import torch only once an engine builds its tables.
"""

from __future__ import annotations

from bt_kernels.engines.plugin.counting import counters
from bt_kernels.engines.plugin.loading import load, remove

__all__ = ["counters", "load", "remove"]
