"""The parameters of a scheduler that serves the requests of a trace."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bt_bench.protocol import UserFile
from bt_bench.suites.block_tables.workloads.parameters import TableParameters
from bt_bench.suites.block_tables.workloads.serving.columns import Columns, Part
from bt_bench.suites.block_tables.workloads.serving.trace import BUNDLED_TRACES


class ServingParameters(TableParameters):
    """Validated parameters of the served trace, and of the speed and blocks of its scheduler."""

    trace: Annotated[str, UserFile(tuple(BUNDLED_TRACES))] = Field(
        min_length=1, description="azure_conv, azure_code, or the path of a CSV or JSONL"
    )
    columns: Columns = Columns()
    part: Part = Part()
    rate: float = Field(default=1.0, gt=0, le=10_000, description="factor on the arrival rate")
    base_ms: float = Field(default=20.0, gt=0, le=10_000, description="a step lasts base_ms …")
    per_token_us: float = Field(
        default=5.0, ge=0, le=1_000_000, description="… plus this for each of its tokens"
    )
    num_blocks: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="blocks per group in the free list; default: enough for every row",
    )
    prefix_caching: bool = Field(
        default=False, description="start with the tokens of cached blocks of the prompt computed"
    )
