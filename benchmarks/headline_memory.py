"""Bytes of device and of pinned memory that block tables hold, right after setup and after steps.

Counted from one moment to another in one process, with nothing else alive that comes or goes. Not
counted: code of kernels, and what the driver keeps for graphs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from bt_bench.config.spec import CaseSpec

# More steps than a ring has buffers, so that all have had the writes of one.
STEPS = 4
VARIANTS = ("baseline", "one_launch", "one_launch_graph")

BY_ALLOCATOR = (
    "blocks that torch's allocator of pinned memory has given out, rounded up to powers of two"
)
BY_TENSORS = "bytes of all pinned tensors, each memory once"


@dataclass(frozen=True)
class Held:
    """Bytes that are held at a moment."""

    device_bytes: int
    pinned_bytes: int


@dataclass(frozen=True)
class Footprint:
    """What the tables of a variant hold in a case, in bytes; `None` where it is not known.

    Args:
        case: its name.
        variant: its name; of vLLM's tables that with the release.
        device_setup: device memory right after the tables were filled.
        device_after: after some steps.
        pinned_setup: pinned host memory right after the tables were filled.
        pinned_after: after some steps.
        error: why nothing is known.
    """

    case: str
    variant: str
    device_setup: int | None = None
    device_after: int | None = None
    pinned_setup: int | None = None
    pinned_after: int | None = None
    error: str | None = None


def measure_memory(config: Path, vllm_sources: Sequence[Path]) -> tuple[list[Footprint], str]:
    """Footprints on the GPU of the cases of a config, and how pinned memory was counted.

    Args:
        config: of the cases.
        vllm_sources: as for `bt-bench sweep`.

    Raises:
        UsageError: where there is no GPU, or a source that is none.
    """
    import torch

    from bt_bench.config.load import load_config
    from bt_bench.protocol import default_suite
    from bt_bench.variants import catalogue
    from bt_bench.worker.device import choose_device

    choose_device("cuda")
    found = catalogue.find_variants(opponents=default_suite().opponents(vllm_sources))
    classes = {
        f"vllm_{entry.opponent.source.release}" if entry.opponent else name: catalogue.load_apart(
            entry
        )
        for name, entry in found.items()
        if entry.opponent or name in VARIANTS
    }
    device = torch.device("cuda", torch.cuda.current_device())
    torch.zeros(1, device=device)  # statistics are empty before CUDA is in use
    cases = load_config(config).cases
    return footprints(cases, classes, device, held_on_gpu), pinned_by()


def footprints(
    cases: Sequence[CaseSpec],
    classes: Mapping[str, type[Any]],
    device: torch.device,
    held: Callable[[], Held],
) -> list[Footprint]:
    """What tables of each class hold in each case; an exception is kept as the reason of a gap.

    Args:
        cases: their workloads.
        classes: the variants by name.
        device: where the tables live.
        held: bytes that are held now.
    """
    from bt_bench.protocol import build_workload
    from bt_bench.suites.block_tables.inputs import inputs_on

    found = []
    for case in cases:
        workload = build_workload(case.parameters)
        inputs = inputs_on(device, workload)
        for name, variant in classes.items():
            try:
                moments = _moments(variant, workload, inputs, device, held)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                found.append(Footprint(case.name, name, error=said))
                continue
            setup, after = moments
            found.append(
                Footprint(
                    case.name,
                    name,
                    setup.device_bytes,
                    after.device_bytes,
                    setup.pinned_bytes,
                    after.pinned_bytes,
                )
            )
    return found


def _moments(
    variant: type[Any],
    workload: Any,
    inputs: Sequence[Any],
    device: torch.device,
    held: Callable[[], Held],
) -> tuple[Held, Held]:
    """What is held after setup and after steps, less what was held before."""
    import numpy as np

    from bt_bench.suites.block_tables import operations as ops
    from bt_bench.suites.block_tables.calls import bind, stage
    from bt_bench.suites.block_tables.inputs import append_each

    before = held()
    tables = variant(workload.layout, device)
    append_each(tables, workload.setup)
    tables.apply_staged_writes()
    after_setup = held()
    counts = np.array(tables.num_blocks)
    for _ in range(STEPS):
        tables.num_blocks[...] = counts  # the same writes again, in the same place
        for step in inputs:
            stage(tables, step)
            bind(tables, ops.STEP, step)()
    after_steps = held()
    return _less(after_setup, before), _less(after_steps, before)


def _less(later: Held, earlier: Held) -> Held:
    return Held(
        later.device_bytes - earlier.device_bytes, later.pinned_bytes - earlier.pinned_bytes
    )


def held_on_gpu() -> Held:
    """What is held now, with nothing on its way."""
    import torch

    torch.cuda.synchronize()
    gc.collect()
    # Blocks that the device had yet to read are taken back when the next one is asked for.
    torch.empty(1, pin_memory=True)
    return Held(torch.cuda.memory_allocated(), _pinned_bytes())


def pinned_by() -> str:
    """How pinned memory is counted here."""
    return BY_TENSORS if _active_bytes() is None else BY_ALLOCATOR


def _pinned_bytes() -> int:
    active = _active_bytes()
    return _bytes_of_pinned_tensors() if active is None else active


def _active_bytes() -> int | None:
    """Bytes that torch's allocator of pinned memory has given out; `None` if it does not say."""
    import torch

    if not hasattr(torch.cuda, "host_memory_stats"):
        return None
    active: int | None = torch.cuda.host_memory_stats().get("active_bytes.current")
    return active


def _bytes_of_pinned_tensors() -> int:
    import torch

    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor) and thing.device.type == "cpu" and thing.is_pinned():
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
