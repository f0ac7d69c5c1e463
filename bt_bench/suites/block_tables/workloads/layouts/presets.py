"""Presets by model: groups of tables as vLLM makes them, from `models.json`.

vLLM's own code derives them (`studies/layouts/derive.py`) from the dimensions in a model's config,
under the conditions that the file states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

ATTENTION_ALIGNMENT = 128
"""Tokens that vLLM rounds the length of a row of attention up to, in whole blocks."""


@dataclass(frozen=True)
class GroupLayout:
    """One KV cache group of a model.

    Args:
        kind: vLLM's name for what its layers store, such as `SlidingWindowSpec`.
        block_size: tokens per block.
        token_alignment: tokens that rows are rounded up to; `None`: rows are not rounded.
        spare_blocks: columns for the states of drafted tokens.
        reach: tokens before a request's first computed one that are still read; 0: no window.
        slot_mapping_enabled: whether its tokens have slots.
        dcp_sharded: whether ranks share its tokens.
    """

    kind: str
    block_size: int
    token_alignment: int | None = ATTENTION_ALIGNMENT
    spare_blocks: int = 0
    reach: int = 0
    slot_mapping_enabled: bool = True
    dcp_sharded: bool = True

    def width(self, max_model_len: int, cp_size: int = 1) -> int:
        """Return the columns of a row, on each rank, for requests of up to so many tokens."""
        tokens = self.block_size * (cp_size if self.dcp_sharded else 1)
        blocks = -(-max_model_len // tokens) + self.spare_blocks
        if self.token_alignment is None:
            return blocks
        return aligned_width(blocks, self.block_size, self.token_alignment)


@dataclass(frozen=True)
class Preset:
    """The tables of a model.

    Args:
        model: the published model.
        release: the engine and its release.
        groups: its groups, in the engine's order.
    """

    model: str
    release: str
    groups: tuple[GroupLayout, ...]

    @property
    def source(self) -> str:
        """The model and the engine, in words."""
        return f"{self.model} in {self.release}"


def aligned_width(blocks: int, block_size: int, token_alignment: int = ATTENTION_ALIGNMENT) -> int:
    """Return a number of columns, rounded up to whole multiples of the alignment, as vLLM does."""
    step = token_alignment // math.gcd(token_alignment, block_size)
    return -(-blocks // step) * step


def _read() -> Mapping[str, Preset]:
    text = files(__package__).joinpath("models.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return MappingProxyType(
        {
            name: Preset(entry["model"], document["release"], tuple(_groups(entry["groups"])))
            for name, entry in document["models"].items()
        }
    )


def _groups(entries: list[dict[str, Any]]) -> list[GroupLayout]:
    return [
        GroupLayout(**{key: value for key, value in entry.items() if key != "count"})
        for entry in entries
        for _ in range(entry["count"])
    ]


MODEL_PRESETS = _read()
"""The presets, by the names that a config gives as `model`."""
