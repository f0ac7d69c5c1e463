"""Batches of a running engine, as the vLLM plugin has recorded them.

The window begins at a given batch, at the "start", around the "middle", or it is the one with the
most tokens ("busiest", the first such window). A recording that ends earlier gives a shorter
window. Its setup holds the blocks of all rows when it begins, one append for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from bt_bench.base.errors import UsageError, counted, listed, shown
from bt_bench.protocol import UserFile
from bt_bench.suites.block_tables.workloads.assemble import layout_of
from bt_bench.suites.block_tables.workloads.describe import Description, RecordedFigures
from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters, programs_of_step
from bt_bench.suites.block_tables.workloads.recorded.batches import Batches, TableImage
from bt_bench.suites.block_tables.workloads.recorded.file import (
    RecordedFacts,
    RecordedFile,
    facts_of,
    is_known,
)
from bt_bench.suites.block_tables.workloads.steps import Step
from bt_bench.suites.block_tables.workloads.window import Window, first_step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.engines.recordings import Gather, Slots, Snapshot
from bt_kernels.layout import DUMMY_REQUESTS, TableLayout


class RecordedParameters(WorkloadParameters):
    """Batches of a running engine, as the vLLM plugin has recorded them."""

    workload: Literal["recorded"]
    file: Annotated[str, UserFile()] = Field(
        min_length=1, description="path of a recording of the vLLM plugin"
    )
    window: Window = Window()

    def with_files(self, place: Callable[[str, Path], Path]) -> Self:
        """See the base class; the recording sets the tables.

        Raises:
            UsageError: naming the file, for wrong contents or a parameter that disagrees with them.
        """
        if self.kv_cache_config is not None or self.model is not None:
            name = "kv_cache_config" if self.kv_cache_config is not None else "model"
            raise UsageError(
                f"{name} is given beside the recording {self.file!r}, which sets the tables; leave "
                "it out"
            )
        try:
            placed = super().with_files(place)
        except RuntimeError as error:  # the home of an unknown user
            raise UsageError(f"file {self.file}: {error}") from None
        recorded = RecordedFile(Path(placed.file))
        of_file = _parameters_of(recorded)
        given = placed.model_dump(exclude_unset=True)
        for name, value in of_file.items():
            if name in given and given[name] != value:
                raise UsageError(
                    f"{name} is {shown(given[name])}; {recorded.path} was recorded with "
                    f"{shown(value)}: leave it out"
                )
        try:
            return type(self).model_validate(given | of_file)
        except ValidationError as error:
            # Parameters that also take a word report that first.
            found = max(error.errors(), key=lambda each: each["type"] != "literal_error")
            name = ".".join(map(str, found["loc"][:1])) or "tables"
            raise UsageError(f"{recorded.path}: byte 0: {name}: {found['msg']}") from None

    def check(self) -> None:
        """See the base class."""
        if self.pad_requests or self.custom_outputs:
            name = "pad_requests" if self.pad_requests else "custom_outputs"
            raise UsageError(
                f"{name!r} is true; expected false, since a recording has the sizes and outputs of "
                "its own calls"
            )

    def check_by_reading(self) -> None:
        """See the base class: a damaged recording, one without a batch, or a window behind it."""
        self._place()

    @property
    def features(self) -> frozenset[str]:
        """See the base class; the recording is read for requests without a row."""
        return super().features | (self._facts().features & {DUMMY_REQUESTS})

    def num_programs(self) -> int:
        """See the base class; each step has as many requests as the largest of the recording."""
        _, steps = self._place()
        return steps * programs_of_step(self._facts().num_reqs, len(self.block_sizes()))

    def build(self) -> Workload:
        """See the base class; reads the recording up to the end of the window."""
        start, count = self._place()
        file = RecordedFile(Path(self.file))
        layout = layout_of(self)
        if any(getattr(self, name) != value for name, value in _parameters_of(file).items()):
            raise UsageError(f"{file.path} has other tables than when the config was read")
        batches = Batches(TableImage(layout))
        setup = None
        steps: list[Step] = []
        for step, operation in file.operations():
            if isinstance(operation, Gather | Slots) and not is_known(operation):
                continue
            if isinstance(operation, Snapshot) and steps:
                raise UsageError(
                    f"{file.path}: step {step}: tables were replaced within window "
                    f"{self.window.name!r}; choose one that ends before, or begins later"
                )
            for found, batch in enumerate(batches.of(operation), batches.num_found):
                if found == start and batches.image is not None:
                    setup = batches.image.appends()
                if found >= start:
                    steps.append(batch.step(layout.max_num_reqs))
                    batches.image = None  # is needed no more
            if len(steps) == count:
                break
        return Workload(layout, self.idx_mapping_dtype, setup or (), tuple(steps))

    def describe(self, workload: Workload | None = None) -> Description:
        """See the base class: the steps of the window, and the recording around it."""
        facts, (start, _) = self._facts(), self._place()
        figures = RecordedFigures(
            num_steps=len(facts.num_tokens),
            window_name=self.window.name,
            window_start=start,
            left_out={name: n for name, n in (facts.others + facts.unknown).items() if n},
            note=facts.note,
        )
        return super().describe(workload).model_copy(update={"recorded": figures})

    def _facts(self) -> RecordedFacts:
        return facts_of(Path(self.file))

    def _place(self) -> tuple[int, int]:
        """Return the first batch of the window, and the number of its batches.

        Raises:
            UsageError: if the recording has no batch, or the window begins behind the last one.
        """
        facts, window = self._facts(), self.window
        there = len(facts.num_tokens)
        if not there:
            raise UsageError(f"{self.file}: {_no_batch(facts)}")
        if isinstance(window.at, int) and window.at >= there:
            raise UsageError(
                f"window {window.name!r} begins with step {window.at}, but {self.file} has "
                f"{counted(there, 'step')} with a gather and slots; choose an earlier window"
            )
        first = window.at if isinstance(window.at, int) else 0
        steps = min(window.steps, there - first)
        return first_step(window.model_copy(update={"steps": steps}), facts.num_tokens), steps


def _no_batch(facts: RecordedFacts) -> str:
    """Return why a recording has no batch."""
    text = (
        "the recording has no batch: no gather that is followed by the slots of the same requests"
    )
    seen = [
        f"{counted(count, 'call')} of {name} {how}"
        for calls, how in (
            (facts.others, "apart"),
            (facts.unknown, "with arguments on the GPU alone"),
        )
        for name, count in calls.items()
        if count
    ]
    if seen:
        text = f"{text}. It has {listed(seen)}"
    if facts.note:
        return f"{text}. {facts.note}"
    return text if seen else f"{text}. Record an engine that serves"


def _parameters_of(file: RecordedFile) -> dict[str, Any]:
    """Return the parameters of the recorded tables, by name.

    Raises:
        UsageError: for tables without groups.
    """
    layout = file.layout
    if not layout.num_groups:
        raise UsageError(
            f"{file.path}: the recorded tables have no groups, so there is nothing to measure; "
            "record a model with attention"
        )
    return {
        "block_size": list(layout.block_sizes),
        "widths": list(layout.widths),
        "max_num_reqs": layout.max_num_reqs,
        "max_num_batched_tokens": layout.max_num_batched_tokens,
        "max_model_len": _longest(layout),
        "sliding_window": list(layout.reaches),
        "disabled_groups": _without(layout.slot_mapping_enabled),
        "unsharded_groups": _without(layout.dcp_sharded) if layout.cp_size > 1 else [],
        "cp_size": layout.cp_size,
        "cp_rank": layout.cp_rank,
        "cp_interleave": layout.cp_interleave if layout.cp_size > 1 else 1,
        "layout_source": f"a recording of {file.source}",
    }


def _longest(layout: TableLayout) -> int:
    """Return the tokens that fit into a row of every group with slots; else of every group."""
    lengths = [
        width * tokens for width, tokens in zip(layout.widths, layout.tokens_per_block, strict=True)
    ]
    having = [n for n, enabled in zip(lengths, layout.slot_mapping_enabled, strict=True) if enabled]
    return min(having or lengths)


def _without(flags: tuple[bool, ...]) -> list[int]:
    return [group for group, flag in enumerate(flags) if not flag]
