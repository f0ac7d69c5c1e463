"""The preparation of whole batches for an engine, beside its block tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bt_kernels.batch_inputs.fused import OneLaunchInputs
from bt_kernels.one_launch import OneLaunch

if TYPE_CHECKING:
    from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
    from bt_kernels.batch_inputs.layout import InputLayout
    from bt_kernels.engines.vllm import BlockTables


class BatchInputs(OneLaunchInputs):
    """Prepares each batch of an engine by one launch: staged writes, inputs, tables and slots.

    `bt_kernels.batch_inputs.interface.BatchInputOperations` documents `prepare`, which does all of
    it, and `prepare_inputs`. Staging, dummy batches and captures stay methods of the block tables.
    `fallbacks` counts, by reason, the batches that took several launches. An object that can
    prepare no batch by one launch warns when it is built. Call `warmup` before serving.

    Args:
        tables: the engine's block tables, which the launches fill.
        layout: sizes and flags of the inputs.
        requests: the state of the requests, owned by the engine.
        buffers: the engine's persistent outputs; `None`: new ones.

    Raises:
        ValueError: when the layouts disagree, or the tables take several launches for a step.
    """

    def __init__(
        self,
        tables: BlockTables,
        layout: InputLayout,
        requests: RequestTensors,
        buffers: InputBuffers | None = None,
    ) -> None:
        variant = tables._variant
        if not isinstance(variant, OneLaunch):
            reason = (
                "there are no groups"
                if not tables.layout.num_groups
                else "the helpers in C are missing"
            )
            raise ValueError(  # noqa: TRY004  # as for all layouts that do not fit
                f"the block tables take several launches for a step, since {reason}; expected "
                "tables of one launch. Prepare batches by the engine's own code, or by the variant "
                "staged_copy of bt_kernels.batch_inputs"
            )
        super().__init__(tables.layout, layout, requests, tables.device, buffers, variant)
