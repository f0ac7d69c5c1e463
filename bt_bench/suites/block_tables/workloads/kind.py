"""The base of all kinds of workload of block tables; the kinds themselves are in `kinds/`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from bt_bench.base.errors import UsageError
from bt_bench.protocol import WorkloadParameters as CommonParameters
from bt_bench.suites.block_tables.workloads.assemble import estimate_bytes, layout_of
from bt_bench.suites.block_tables.workloads.describe import (
    Description,
    HeldBlocks,
    Tally,
    sizes_of,
)
from bt_bench.suites.block_tables.workloads.layouts.engine_file import read_engine_file
from bt_bench.suites.block_tables.workloads.parameters import TableParameters
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import CUSTOM_OUTPUTS, DUMMY_REQUESTS


class WorkloadParameters(TableParameters, CommonParameters):
    """Validated parameters of a workload of block tables; it is built from nothing else."""

    @abstractmethod
    def build(self) -> Workload:
        """See the base class."""

    def with_files(self, place: Callable[[str, Path], Path]) -> Self:
        """See the base class; `kv_cache_config` is replaced by the parameters that it sets.

        Raises:
            UsageError: naming the file, for wrong contents or a parameter that disagrees with them.
        """
        if self.kv_cache_config is None:
            return super().with_files(place)
        try:
            placed = super().with_files(place)
        except RuntimeError as error:  # the home of an unknown user
            raise UsageError(f"kv_cache_config {self.kv_cache_config}: {error}") from None
        path = Path(str(placed.kv_cache_config))
        of_file = read_engine_file(path)
        given = placed.model_dump(exclude_unset=True) | {"kv_cache_config": None}
        if given.get("max_model_len", 0) > of_file["max_model_len"]:
            raise UsageError(
                f"'max_model_len' is {given['max_model_len']}; expected at most "
                f"{of_file['max_model_len']}, that of kv_cache_config {path}"
            )
        if any(of_file["sliding_window"]) and of_file["cp_size"] > 1:
            of_file["sliding_window"] = None  # the engine does not mask columns then either
        try:
            return type(self).model_validate(of_file | given)
        except ValidationError as error:
            raise UsageError(f"kv_cache_config {path}: {error.errors()[0]['msg']}") from None

    @property
    def features(self) -> frozenset[str]:
        """See the base class."""
        features = set(layout_of(self).features)
        if getattr(self, "dummy_requests", 0):
            features.add(DUMMY_REQUESTS)
        if self.custom_outputs:
            features.add(CUSTOM_OUTPUTS)
        return frozenset(features)

    def num_bytes(self) -> int:
        """See the base class: tables and slots of one variant."""
        return estimate_bytes(layout_of(self))

    def num_programs(self) -> int:
        """See the base class."""
        parts = ("requests", "prefills", "dummy_requests")
        requests = sum(getattr(self, part, 0) for part in parts)
        return programs_of_step(requests, len(self.block_sizes()))

    def text_of(self, key: str) -> str | None:
        """See the base class: sizes per group, even if a model or a default sets them."""
        if key == "groups":
            return str(len(self.block_sizes()))
        if key == "block_size":
            return _sizes_text(self.block_sizes())
        return _sizes_text(self.reaches()) if key == "sliding_window" else None

    def num_prefills(self) -> int | None:
        """Return the requests in prefill in each step; `None`: not distinguished from decodes."""
        return None

    def describe(self, workload: Workload | None = None) -> Description:
        """Describe the workload before anything is timed.

        Args:
            workload: the workload, if it has been built from these parameters.

        Raises:
            UsageError: as from `build`; if a row would have more blocks than columns; or if there
                are no steps.
        """
        built, num_prefills = workload or self.build(), self.num_prefills()
        if not built.steps:
            raise UsageError(f"a workload of kind {self.workload!r} has no steps; expected one")
        sizes = self.tokens_per_column()
        tally = Tally(built.layout, sizes)
        held = HeldBlocks(built, sizes)
        for step in built.steps:
            tally.add(held.after(step, num_prefills))
        return Description(
            kind=self.workload,
            **sizes_of(built.layout, self.features, self.source()),
            requests_served=held.num_requests,
            steps=tally.figures(prefills_known=num_prefills is not None),
            block_allocations=len(held.ids),
            block_reuse=len(held.ids) / len(set(held.ids)) if held.ids else 1.0,
            peak_blocks_in_use=held.peak,
        )


def programs_of_step(requests: int, groups: int) -> int:
    """Estimate the programs of a step's gather and slots: one per request and group, twice."""
    return 2 * groups * (requests + 1)


def _sizes_text(per_group: tuple[int, ...]) -> str:
    return "x".join(map(str, per_group if len(set(per_group)) > 1 else per_group[:1]))
