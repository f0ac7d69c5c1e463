"""The suite of block tables: the harness's entry point to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.protocol import Opponents, Suite
from bt_bench.suites.block_tables.exploring import TableExplorer
from bt_bench.suites.block_tables.operations import DEFAULTS, OPERATIONS
from bt_bench.suites.block_tables.sizes import memory_note
from bt_bench.suites.block_tables.vllm.opponents import VllmOpponents
from bt_bench.suites.block_tables.vllm.source import find_sources, is_opponent
from bt_bench.suites.block_tables.workloads import conformance_workloads
from bt_bench.suites.block_tables.workloads.kinds import find_kinds
from bt_bench.suites.block_tables.workloads.parameters import SET_BY_FILE, SET_BY_RECORDING

if TYPE_CHECKING:
    from bt_bench.base import Document
    from bt_bench.suites.block_tables.driver import TableDriver
    from bt_bench.suites.block_tables.workloads import Workload, WorkloadParameters

_PACKAGE = Path(__file__).resolve().parents[2]


class BlockTableSuite(Suite):
    """Block tables: staged writes, gathered rows, and slot mappings."""

    protocol = 1
    name = "block_tables"
    title = "Block tables of the paged KV cache, brought up to date in every scheduling step"
    operations = OPERATIONS
    parameters = find_kinds()
    defaults = DEFAULTS
    package = "bt_kernels"
    kernels = None  # the package is installed beside the harness
    methods: tuple[str, ...] = ("snapshot", "restore")
    includes: Mapping[str, tuple[str, ...]] = {
        "model": ("groups", "block_size"),
        "kv_cache_config": SET_BY_FILE,
    }
    memory_advice = "use smaller max_num_reqs, max_model_len or groups, or raise block_size"

    @property
    def configs(self) -> Path:
        """See the base class: inside the package when installed, else the checkout's."""
        packaged = _PACKAGE / "configs"
        return packaged if packaged.is_dir() else _PACKAGE.parent / "configs"

    def driver(self) -> type[TableDriver]:
        """See the base class."""
        from bt_bench.suites.block_tables.driver import TableDriver

        return TableDriver

    def conformance(self, seed: int) -> Mapping[str, Workload]:
        """See the base class."""
        return conformance_workloads(seed)

    def explorer(self) -> TableExplorer:
        """See the base class."""
        return TableExplorer()

    def opponents(self, folders: Sequence[Path]) -> Opponents:
        """See the base class: vLLM's own block tables."""
        return VllmOpponents(find_sources(folders))

    def is_opponent(self, name: str) -> bool:
        """See the base class."""
        return is_opponent(name)

    def replaced_by(self, key: str, value: object) -> tuple[str, ...]:
        """See the base class: a list of block sizes also replaces the number of groups.

        A recording replaces the tables of the defaults.
        """
        replaced = super().replaced_by(key, value)
        if key == "block_size" and isinstance(value, list):
            return (*replaced, "groups")
        if key == "file":
            return (*replaced, *SET_BY_RECORDING)
        return ("window.name",) if key == "window.at" else replaced

    def tells_apart(self, named: Collection[str], key: str, values: Sequence[object]) -> bool:
        """See the base class: the number of groups distinguishes most lists of block sizes."""
        lengths = {len(sizes) for sizes in values if isinstance(sizes, list)}
        return key == "block_size" and "groups" in named and len(lengths) == len(values)

    def memory_note(self, key: str, value: int, given: Mapping[str, object]) -> str:
        """See the base class."""
        return memory_note(key, value, given)

    def describe(
        self, name: str, parameters: WorkloadParameters, workload: Any = None
    ) -> tuple[dict[str, Any], Document]:
        """See the base class."""
        from bt_bench.suites.block_tables.report import workload_document

        description = parameters.describe(workload)
        return description.model_dump(mode="json"), workload_document(name, description)


SUITE = BlockTableSuite()
