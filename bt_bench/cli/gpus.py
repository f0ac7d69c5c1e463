"""`--gpus`: a worker for each of several GPUs of this host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bt_bench.base.names import DeviceChoice
from bt_bench.cli.options import chosen_device, worker_for

if TYPE_CHECKING:
    from bt_bench.config import SweepSpec
    from bt_bench.variants import VariantEntry
    from bt_bench.worker import Supervisor

_NAMES = "all, or indices and UUIDs, such as 0,2. With --device cpu, names of workers on the CPU."


def _gpus_option(what: str) -> Any:
    """Return the option `--gpus` of a command that does such things on several GPUs."""
    return typer.Option(
        "--gpus",
        metavar="GPUS",
        help=f"Use several GPUs of this host at once; {what}: {_NAMES}",
        show_default="the one of --device",
    )


GpusOption = Annotated[str | None, _gpus_option("each takes the next case when it has done one")]
GateGpusOption = Annotated[str | None, _gpus_option("each measures whole rounds")]


@contextmanager
def workers_for(
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    devices: Sequence[DeviceChoice],
    *,
    traceback: bool = False,
) -> Iterator[list[Supervisor]]:
    """Yield a worker process for each device; they start at the same time.

    Raises:
        UsageError: if a device does not exist, or if two are the same GPU.
    """
    from bt_bench.runs import entered

    several = len(devices) > 1
    workers = [
        worker_for(spec, entries, device, traceback=traceback, takes_turns=several)
        for device in devices
    ]
    with entered(workers):
        yield workers


def chosen_gpus(gpus: str | None, device: DeviceChoice | None) -> list[DeviceChoice]:
    """Return the device of each worker; see `bt_bench.runs.chosen_gpus`."""
    from bt_bench import runs

    return runs.chosen_gpus(gpus, chosen_device(device), is_named=device is not None)
