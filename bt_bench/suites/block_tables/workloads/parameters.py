"""Parameters of the tables, shared by every kind of workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bt_bench.base.errors import names_hint
from bt_bench.protocol import wrong_parameter
from bt_bench.results import Noun

MAX_GROUPS = 64
MAX_REQS = 16_384  # a fused launch has two programs per request on a grid axis of 65,535
MAX_TOKENS = 4_194_304
MAX_MODEL_LEN = 16_777_216
MAX_BLOCK_SIZE = 4_194_304
MAX_CP_SIZE = 256

BlockSize = Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)]
BlockSizes = Annotated[list[BlockSize], Field(min_length=1, max_length=MAX_GROUPS)]
Reach = Annotated[int, Field(ge=0, le=MAX_MODEL_LEN)]
Reaches = Annotated[list[Reach], Field(min_length=1, max_length=MAX_GROUPS)]
DummyRequests = Annotated[
    int,
    Field(ge=0, le=MAX_REQS, description="further requests, of one token and no row each"),
]
GroupIndex = Annotated[int, Field(ge=0, le=MAX_GROUPS - 1)]

MODEL_PRESETS: dict[str, list[int]] = {
    # Block size per KV cache group, in tokens. The number of groups is what vLLM's planning rule
    # gives for the model (docs/block-tables.md). Where vLLM's default is known, the size is that:
    # 16 for dense attention, 64 for latent attention (DeepSeek-V3), 544 and 262144 for the
    # attention and the state groups of a hybrid (Qwen3-Next).
    # DeepSeek-V4: six groups are vLLM's plan, and its blog speaks of a unified logical block of
    # 256 tokens; that three groups have 64 here is a stand-in, to have unequal widths. Measured
    # block sizes of that model are not known to this project.
    "llama-3.1-70b": [16],
    "qwen3-32b": [16],
    "deepseek-v3": [64],
    "gpt-oss-120b": [16, 16],
    "llama-4-maverick": [16, 16, 16, 16],
    "qwen3-next-80b": [544, 262_144, 262_144, 262_144],
    "deepseek-v4": [256, 256, 256, 64, 64, 64],
    "gemma-3-27b": [16, 16, 16, 16, 16, 16, 16],
}


class TableParameters(Noun):
    """Groups, sizes and options of the tables."""

    model: str | None = Field(default=None, description="preset of groups and block sizes")
    groups: int | None = Field(default=None, ge=1, le=MAX_GROUPS, description="KV cache groups")
    block_size: BlockSize | BlockSizes | None = Field(
        default=None, description="tokens per block: one for all groups, or a list of one per group"
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
    seed: int = Field(default=0, ge=0)

    def block_sizes(self) -> tuple[int, ...]:
        """Return the tokens per block of each group; the default is one group of block size 16."""
        if self.model is not None:
            return tuple(MODEL_PRESETS[self.model])
        if isinstance(self.block_size, list):
            return tuple(self.block_size)
        return (self.block_size or 16,) * (self.groups or 1)

    def reaches(self) -> tuple[int, ...]:
        """Return the reach of each group's sliding window, in tokens; 0: no window."""
        if isinstance(self.sliding_window, list):
            return tuple(self.sliding_window)
        return (self.sliding_window or 0,) * len(self.block_sizes())

    @model_validator(mode="after")
    def _groups_agree(self) -> TableParameters:
        if self.model is not None:
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
        num_groups = len(self.block_sizes())
        _check_indices("disabled_groups", self.disabled_groups, num_groups)
        _check_indices("unsharded_groups", self.unsharded_groups, num_groups)
        if len(self.reaches()) != num_groups:
            raise wrong_parameter(
                "sliding_window",
                f"sliding_window lists {len(self.reaches())} reaches for {_groups(num_groups)}; "
                "expected one per group, or one for all",
            )
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
            if group not in self.unsharded_groups and size % self.cp_interleave:
                raise wrong_parameter(
                    "cp_interleave",
                    f"cp_interleave is {self.cp_interleave}; expected a divisor of the block size "
                    f"of every sharded group; group {group} has {size}",
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
