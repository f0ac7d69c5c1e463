"""vLLM's own block tables as opponents of the suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bt_bench.protocol import Opponent
from bt_bench.suites.block_tables.vllm.source import VLLM, Sources, expand_opponents

ADAPTER = Path(__file__).parent / "adapter.py"
NOTE = "was checked by its own definitions; see docs/vllm.md"


class VllmOpponents:
    """The available releases of vLLM.

    Args:
        sources: their files.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.entries = {
            name: Opponent(f"BlockTables of vLLM {source.release} itself", ADAPTER, source, NOTE)
            for name, source in sources.names().items()
        }
        self.absent = {} if sources.found else {VLLM: sources.reason}

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        """Expand `vllm` among names of variants where it stands for several releases."""
        return expand_opponents(names, self._sources, by_name=by_name)
