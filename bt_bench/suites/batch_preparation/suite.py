"""The suite of batch preparation: the harness's entry point to it.

It builds on the suite of block tables: a batch's preparation applies staged writes, gathers tables
and computes slots, and more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.base import Bullets
from bt_bench.base.errors import counted
from bt_bench.protocol import Opponents
from bt_bench.suites.batch_preparation.operations import DEFAULTS, OPERATIONS
from bt_bench.suites.batch_preparation.workloads.conformance import conformance_workloads
from bt_bench.suites.batch_preparation.workloads.kinds import KINDS
from bt_bench.suites.block_tables.suite import BlockTableSuite
from bt_bench.suites.block_tables.vllm.opponents import VllmOpponents
from bt_bench.suites.block_tables.vllm.source import INPUT_MODULES, find_sources

if TYPE_CHECKING:
    from bt_bench.base import Document
    from bt_bench.suites.batch_preparation.driver import InputDriver
    from bt_bench.suites.batch_preparation.workloads.workload import InputWorkload
    from bt_bench.suites.block_tables.workloads import WorkloadParameters

_FOLDER = Path(__file__).resolve().parent


class BatchSuite(BlockTableSuite):
    """The preparation of a batch: staged writes, inputs, gathered rows, and slot mappings."""

    name = "batch_preparation"
    title = "Preparation of a batch: inputs, block tables and slots of every scheduling step"
    operations = OPERATIONS
    parameters = KINDS
    defaults = DEFAULTS
    variants = "batch_inputs.variants"
    methods = ()

    @property
    def configs(self) -> Path:
        """See the base class of all suites."""
        return _FOLDER / "configs"

    def driver(self) -> type[InputDriver]:  # type: ignore[override]  # of other workloads
        """See the base class."""
        from bt_bench.suites.batch_preparation.driver import InputDriver

        return InputDriver

    def conformance(self, seed: int) -> Mapping[str, InputWorkload]:  # type: ignore[override]
        """See the base class."""
        return conformance_workloads(seed)

    def explorer(self) -> None:  # type: ignore[override]  # scenarios of its own it has none
        """See the base class of all suites."""

    def opponents(self, folders: Sequence[Path]) -> Opponents:
        """See the base class: vLLM's own preparation of a batch."""
        sources = find_sources(folders, INPUT_MODULES)
        return VllmOpponents(sources, _FOLDER / "vllm" / "adapter.py", "prepare_inputs and tables")

    def describe(
        self, name: str, parameters: WorkloadParameters, workload: Any = None
    ) -> tuple[dict[str, Any], Document]:
        """See the base class; adds figures of drafts and prompts in the window."""
        data, document = super().describe(name, parameters, workload)
        built: Any = workload or parameters.build()
        figures = built.figures()
        count = figures["steps"]
        line = (
            f"inputs: {figures['steps_with_drafts']} of {counted(count, 'step')} with drafts, at "
            f"most {figures['most_drafts']} in one; {figures['steps_with_prompt_tails']} with "
            f"drafts in the tail of a prompt; {figures['steps_with_prefill']} with a prefill; "
            f"{figures['steps_padded']} padded"
        )
        lead = (*document.lead, Bullets((line,)))
        return data | {"inputs": figures}, replace(document, lead=lead)


SUITE = BatchSuite()
