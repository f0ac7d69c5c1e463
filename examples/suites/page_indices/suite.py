"""The suite of page indices, as the harness sees it without loading torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bt_bench.protocol import Operation, Suite, Workload

from .commands import pages
from .conformance import conformance_workloads
from .parameters import DecodeParameters, MixedParameters

if TYPE_CHECKING:
    from .driver import PageDriver

STAGE = Operation(
    "stage",
    title="Stage lengths (host only)",
    method="set_lengths",
    path=("build",),
    on_host=True,
    stages=True,
)
BUILD = Operation("build", title="Build page indices", stages=True)


class PageIndexSuite(Suite):
    """Page indices in CSR form, brought up to date in every scheduling step."""

    protocol = 1
    name = "page_indices"
    title = "Page indices of paged attention in CSR form, built in every scheduling step"
    operations = (STAGE, BUILD)
    parameters = (DecodeParameters, MixedParameters)
    package = "page_kernels"
    memory_advice = "use smaller max_num_reqs or max_model_len, or raise page_size"

    @property
    def defaults(self) -> tuple[Operation, ...]:
        """See the base class."""
        return (BUILD,)

    def driver(self) -> type[PageDriver]:
        """See the base class."""
        from .driver import PageDriver

        return PageDriver

    def conformance(self, seed: int) -> Mapping[str, Workload]:
        """See the base class."""
        return conformance_workloads(seed)

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        """See the base class."""
        return {"pages": pages}


SUITE = PageIndexSuite()
