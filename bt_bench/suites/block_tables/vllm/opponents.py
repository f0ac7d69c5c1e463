"""vLLM's own block tables as opponents of the suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.protocol import Opponent
from bt_bench.suites.block_tables.vllm.source import VLLM, Sources, is_opponent

ADAPTER = Path(__file__).parent / "adapter.py"
NOTE = "was checked by its own definitions; see docs/vllm.md"


class VllmOpponents:
    """The available releases of vLLM.

    Args:
        sources: their files.
        adapter: the file that adapts them.
        what: the part of vLLM that is measured.
    """

    def __init__(
        self, sources: Sources, adapter: Path = ADAPTER, what: str = "BlockTables"
    ) -> None:
        self._reason = sources.reason
        self._known = sources.names()
        self.entries = {
            name: Opponent(f"{what} of vLLM {source.release} itself", adapter, source, NOTE)
            for name, source in self._known.items()
        }
        self.absent = {} if sources.found else {VLLM: sources.reason}

    def expand(self, names: Sequence[str], *, by_name: bool) -> tuple[list[str], dict[str, str]]:
        """Expand `vllm` among names of variants where it stands for several releases.

        Args:
            names: the names, as given.
            by_name: whether all must be available, since the user named them.

        Returns:
            The available names, and the reason why each of the others is left out.

        Raises:
            UsageError: if a required one is not available.
        """
        chosen: dict[str, None] = {}
        absent: dict[str, str] = {}
        for name in names:
            if not is_opponent(name) or name in self._known:
                chosen[name] = None
            elif name == VLLM and self._known:
                chosen |= dict.fromkeys(self._known)
            else:
                there = (
                    f"{other} (vLLM {source.release})" for other, source in self._known.items()
                )
                absent[name] = self._reason or f"only {', '.join(there)} can be used"
                if by_name:
                    raise UsageError(f"variant {name!r} is not available: {absent[name]}")
        return list(chosen), absent
