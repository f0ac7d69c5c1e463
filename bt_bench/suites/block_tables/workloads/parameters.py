"""Parameters of the tables, shared by every kind of workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bt_bench.base.errors import names_hint
from bt_bench.protocol import UserFile, wrong_parameter
from bt_bench.results import Noun
from bt_bench.suites.block_tables.workloads.layouts.presets import (
    MODEL_PRESETS,
    GroupLayout,
    aligned_width,
)
from bt_bench.suites.block_tables.workloads.maxima import (
    MAX_BLOCK_SIZE,
    MAX_CP_SIZE,
    MAX_GROUPS,
    MAX_MODEL_LEN,
    MAX_REQS,
    MAX_TOKENS,
    MAX_WIDTH,
)

BlockSize = Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)]
BlockSizes = Annotated[list[BlockSize], Field(min_length=1, max_length=MAX_GROUPS)]
Reach = Annotated[int, Field(ge=0, le=MAX_MODEL_LEN)]
Reaches = Annotated[list[Reach], Field(min_length=1, max_length=MAX_GROUPS)]
DummyRequests = Annotated[
    int,
    Field(ge=0, le=MAX_REQS, description="further requests, of one token and no row each"),
]
GroupIndex = Annotated[int, Field(ge=0, le=MAX_GROUPS - 1)]

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Widths = Annotated[list[Width], Field(min_length=1, max_length=MAX_GROUPS)]

SET_BY_FILE = (
    *("model", "groups", "block_size", "widths"),
    *("cp_size", "cp_interleave", "unsharded_groups", "layout_source"),
)
"""Parameters that `kv_cache_config` sets and no case may give beside it."""

SET_BY_RECORDING = (
    *SET_BY_FILE,
    *("kv_cache_config", "max_num_reqs", "max_num_batched_tokens", "max_model_len"),
    *("sliding_window", "disabled_groups", "cp_rank"),
)
"""Parameters that the file of a recording sets."""


class TableParameters(Noun):
    """Groups, sizes and options of the tables."""

    model: str | None = Field(
        default=None, description="preset of a model's groups", examples=[*MODEL_PRESETS]
    )
    kv_cache_config: Annotated[str | None, UserFile()] = Field(
        default=None,
        min_length=1,
        description="path of a file with the groups and sizes of a running engine",
    )
    groups: int | None = Field(default=None, ge=1, le=MAX_GROUPS, description="KV cache groups")
    block_size: BlockSize | BlockSizes | None = Field(
        default=None, description="tokens per block: one for all groups, or a list of one per group"
    )
    widths: Literal["plain", "aligned"] | Widths | None = Field(
        default=None,
        description="columns per row: plain, as few as hold max_model_len tokens; aligned, rounded "
        "up as vLLM does for attention; or a list of one number per group. Default: plain, or the "
        "model's",
    )
    max_num_reqs: int = Field(default=1024, ge=1, le=MAX_REQS, description="rows of a table")
    max_num_batched_tokens: int = Field(
        default=8192, ge=1, le=MAX_TOKENS, description="slots per group; the token budget"
    )
    max_model_len: int = Field(default=8192, ge=1, le=MAX_MODEL_LEN, description="tokens of a row")
    idx_mapping_dtype: Literal["int32", "int64"] = "int64"
    pad_requests: bool = Field(
        default=False, description="pad batch and tokens to the next CUDA graph size"
    )
    disabled_groups: list[GroupIndex] = Field(
        default=[], description="groups, from 0, whose slots are all PAD"
    )
    sliding_window: Reach | Reaches | None = Field(
        default=None,
        description="reach: tokens before a request's first computed one that are still read, "
        "a model's window less 1; one for all groups, or a list of one per group; 0: no window",
    )
    cp_size: int = Field(
        default=1, ge=1, le=MAX_CP_SIZE, description="ranks that share the tokens of a sequence"
    )
    cp_rank: int = Field(default=0, ge=0, le=MAX_CP_SIZE - 1, description="this rank, from 0")
    cp_interleave: int = Field(
        default=1, ge=1, le=MAX_BLOCK_SIZE, description="consecutive tokens that go to one rank"
    )
    unsharded_groups: list[GroupIndex] = Field(
        default=[], description="groups, from 0, whose tokens all ranks have, each for itself"
    )
    custom_outputs: bool = Field(
        default=False, description="gather and slots write into buffers of the caller"
    )
    layout_source: str | None = Field(
        default=None, description="whose tables these are, in words; set by kv_cache_config"
    )
    seed: int = Field(default=0, ge=0)

    def block_sizes(self) -> tuple[int, ...]:
        """Return the tokens per block of each group; the default is one group of block size 16."""
        if self.model is not None:
            return tuple(group.block_size for group in self._preset())
        if isinstance(self.block_size, list):
            return tuple(self.block_size)
        return (self.block_size or 16,) * (self.groups or 1)

    def row_widths(self) -> tuple[int, ...]:
        """Return the columns of each group's rows."""
        if isinstance(self.widths, list):
            return tuple(self.widths)
        if self.model is not None and self.widths is None:
            return tuple(
                group.width(self.max_model_len, self.cp_size if sharded else 1)
                for group, sharded in zip(self._preset(), self.sharded(), strict=True)
            )
        plain = [-(-self.max_model_len // tokens) for tokens in self._tokens_per_block()]
        if self.widths != "aligned":
            return tuple(plain)
        return tuple(map(aligned_width, plain, self.block_sizes()))

    def reaches(self) -> tuple[int, ...]:
        """Return the reach of each group's sliding window, in tokens; 0: no window."""
        if isinstance(self.sliding_window, list):
            return tuple(self.sliding_window)
        if self.model is not None and self.sliding_window is None and self.cp_size == 1:
            return tuple(group.reach for group in self._preset())
        return (self.sliding_window or 0,) * len(self.block_sizes())

    def with_slots(self) -> tuple[bool, ...]:
        """Return whether the tokens of each group have slots."""
        enabled = [group not in self.disabled_groups for group in range(len(self.block_sizes()))]
        if self.model is not None:
            of_model = [group.slot_mapping_enabled for group in self._preset()]
            return tuple(map(all, zip(enabled, of_model, strict=True)))
        return tuple(enabled)

    def sharded(self) -> tuple[bool, ...]:
        """Return whether ranks share the tokens of each group."""
        shared = [group not in self.unsharded_groups for group in range(len(self.block_sizes()))]
        if self.model is not None:
            of_model = [group.dcp_sharded for group in self._preset()]
            return tuple(map(all, zip(shared, of_model, strict=True)))
        return tuple(shared)

    def tokens_per_column(self) -> tuple[int, ...]:
        """Return the tokens of a sequence for which each group gets one more block.

        That is a block's tokens over all ranks; more in a ring, whose few columns serve any length.
        """
        pairs = zip(self._tokens_per_block(), self.row_widths(), strict=True)
        return tuple(max(tokens, -(-self.max_model_len // width)) for tokens, width in pairs)

    def source(self) -> str | None:
        """Return whose tables these are, in words; `None`: nobody's."""
        return self.layout_source if self.model is None else MODEL_PRESETS[self.model].source

    def _preset(self) -> tuple[GroupLayout, ...]:
        return MODEL_PRESETS[self.model].groups if self.model is not None else ()

    def _tokens_per_block(self) -> list[int]:
        """Return the tokens of a sequence in a block of each group, over all ranks."""
        pairs = zip(self.block_sizes(), self.sharded(), strict=True)
        return [size * (self.cp_size if shared else 1) for size, shared in pairs]

    @model_validator(mode="after")
    def _groups_agree(self) -> TableParameters:
        if self.kv_cache_config is not None:
            self._check_file(self.kv_cache_config)
        elif self.model is not None:
            self._check_model(self.model)
        elif isinstance(self.block_size, list) and self.groups is not None:
            sizes = len(self.block_size)
            if sizes != self.groups:
                raise wrong_parameter(
                    "block_size",
                    f"block_size lists {sizes} sizes for {self.groups} groups; expected one per "
                    "group, one size for all, or no 'groups'",
                )
        return self

    @model_validator(mode="after")
    def _options_agree(self) -> TableParameters:
        if self.kv_cache_config is not None:
            return self  # checked with the contents of the file
        num_groups = len(self.block_sizes())
        _check_indices("disabled_groups", self.disabled_groups, num_groups)
        _check_indices("unsharded_groups", self.unsharded_groups, num_groups)
        if len(self.reaches()) != num_groups:
            raise wrong_parameter(
                "sliding_window",
                f"sliding_window lists {len(self.reaches())} reaches for {_groups(num_groups)}; "
                "expected one per group, or one for all",
            )
        self._check_widths()
        if self.cp_rank >= self.cp_size:
            raise wrong_parameter(
                "cp_rank",
                f"cp_rank is {self.cp_rank}; expected less than 'cp_size', {self.cp_size}",
            )
        if self.cp_size > 1:
            self._check_context_parallelism()
        return self

    def _check_context_parallelism(self) -> None:
        if any(self.reaches()):
            raise wrong_parameter(
                "sliding_window",
                f"sliding_window is given beside cp_size {self.cp_size}, which turns it off, since "
                "a column then is not a range of consecutive tokens; remove one of the two",
            )
        for group, size in enumerate(self.block_sizes()):
            if self.sharded()[group] and size % self.cp_interleave:
                raise wrong_parameter(
                    "cp_interleave",
                    f"cp_interleave is {self.cp_interleave}; expected a divisor of the block size "
                    f"of every sharded group; group {group} has {size}",
                )

    def _check_widths(self) -> None:
        """Refuse rows too short for a request, but for groups without slots, which may be rings."""
        widths, slots = self.row_widths(), self.with_slots()
        if len(widths) != len(slots):
            raise wrong_parameter(
                "widths",
                f"widths lists {len(widths)} widths for {_groups(len(slots))}; expected one per "
                "group",
            )
        for group, tokens in enumerate(self._tokens_per_block()):
            needed = -(-self.max_model_len // tokens)
            if slots[group] and widths[group] < needed:
                raise wrong_parameter(
                    "widths",
                    f"widths[{group}] is {widths[group]}; expected at least {needed} for "
                    f"'max_model_len', {self.max_model_len}, of {tokens} tokens to a column; only "
                    "groups in 'disabled_groups' may have shorter rows",
                )

    def _check_file(self, path: str) -> None:
        for name in SET_BY_FILE:
            if name in self.model_fields_set and getattr(self, name) is not None:
                raise wrong_parameter(
                    name,
                    f"{name} is given beside kv_cache_config {path!r}, which sets it; remove one "
                    "of the two",
                )

    def _check_model(self, model: str) -> None:
        if model not in MODEL_PRESETS:
            raise wrong_parameter(
                "model", f"unknown model {model!r}; {names_hint(model, MODEL_PRESETS)}"
            )
        for name in ("groups", "block_size"):
            if getattr(self, name) is not None:
                raise wrong_parameter(
                    name,
                    f"{name} is given beside model {model!r}, which sets groups and block sizes; "
                    "remove one of the two",
                )


def _check_indices(field: str, indices: Sequence[int], num_groups: int) -> None:
    for index in indices:
        if index >= num_groups:
            raise wrong_parameter(
                field,
                f"{field} has group {index} of {_groups(num_groups)}; they count from 0",
            )


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"
