"""The catalogue of variants, and vLLM as an opponent."""

from __future__ import annotations

from bt_bench.variants.catalogue import (
    REFERENCE,
    VariantEntry,
    choose,
    default_variants,
    find_variants,
    load_apart,
    load_reference,
    shipped_folder,
)
from bt_bench.variants.isolation import (
    FreshSourceLoader,
    Isolation,
    add_variants_path,
    installed_places,
)
from bt_bench.variants.raised import ignore_interrupts, is_interrupt, text_of
from bt_bench.variants.vllm.differences import (
    INT32_SLOTS,
    MEANINGS,
    ONE_LENGTH,
    OUT_PTRS,
    POSITIONS_OUTSIDE,
    REFUSALS,
    ROWS_KEPT,
    SLOTS_KEPT,
    WRITES_TO_A_ROW,
    Opponent,
)
from bt_bench.variants.vllm.source import VLLM, expand_opponents, find_sources, is_opponent

__all__ = [
    "INT32_SLOTS",
    "MEANINGS",
    "ONE_LENGTH",
    "OUT_PTRS",
    "POSITIONS_OUTSIDE",
    "REFERENCE",
    "REFUSALS",
    "ROWS_KEPT",
    "SLOTS_KEPT",
    "VLLM",
    "WRITES_TO_A_ROW",
    "FreshSourceLoader",
    "Isolation",
    "Opponent",
    "VariantEntry",
    "add_variants_path",
    "choose",
    "default_variants",
    "expand_opponents",
    "find_sources",
    "find_variants",
    "ignore_interrupts",
    "installed_places",
    "is_interrupt",
    "is_opponent",
    "load_apart",
    "load_reference",
    "shipped_folder",
    "text_of",
]
