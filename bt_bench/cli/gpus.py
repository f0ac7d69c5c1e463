"""`--gpus`: a worker for each of several GPUs of this host."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bt_bench.base.errors import UsageError
from bt_bench.base.names import DeviceChoice, gpu_uuid
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

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_EXPECTED = "expected all, or indices and UUIDs as nvidia-smi -L lists them, such as 0,2"


def chosen_gpus(gpus: str | None, device: DeviceChoice | None) -> list[DeviceChoice]:
    """Return the device of each worker.

    Args:
        gpus: the value of `--gpus`; `None`: one worker, on the device of `--device`.
        device: the value of `--device`.

    Raises:
        UsageError: for a GPU that is named twice, for text that names none, or where none is.
    """
    choice = chosen_device(device)
    if gpus is None:
        return [choice]
    names = [name.strip() for name in gpus.split(",")]
    for name in names:
        if not name or names.count(name) > 1:
            wrong = f"{name} is there twice" if name else "a name is empty"
            raise UsageError(f"--gpus {gpus}: {wrong}; {_EXPECTED}")
    if choice == "cpu":
        if names == ["all"]:
            raise UsageError(
                "--gpus all: --device cpu has no GPU; expected a name for each worker, such as "
                "--gpus one,two"
            )
        return ["cpu"] * len(names)
    if device is not None and choice not in ("auto", "cuda"):
        raise UsageError(
            f"--gpus {gpus} and --device {device} both name GPUs; leave one of them out"
        )
    return _all() if names == ["all"] else [_choice(gpus, name) for name in names]


def _all() -> list[DeviceChoice]:
    """Return all GPUs that a process of this environment sees."""
    from bt_bench.worker import gpu_uuids

    visible = os.environ.get(_VISIBLE)
    if visible is None:
        found = gpu_uuids()
    else:
        # CUDA ignores what follows an entry that is no GPU; -1 is how scripts hide all.
        listed = takewhile(lambda each: each.strip() not in ("", "-1"), visible.split(","))
        found = [f"cuda:{index}" for index, _ in enumerate(listed)]
    if not found:
        where = "NVML lists" if visible is None else f"{_VISIBLE}={visible} leaves visible"
        raise UsageError(
            f"--gpus all: this host has no GPU that {where}; expected one, or --device cpu with a "
            "name for each worker, such as --gpus one,two"
        )
    return found


def _choice(gpus: str, name: str) -> DeviceChoice:
    choice = f"cuda:{name}" if name.isdecimal() and len(name) <= 3 else name
    if choice == name and gpu_uuid(name) is None:
        raise UsageError(f"--gpus {gpus}: {name!r} is no GPU; {_EXPECTED}")
    return choice


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
    from bt_bench.runs import refuse_twice

    with ExitStack() as stack:
        several = len(devices) > 1
        workers = [
            worker_for(spec, entries, device, traceback=traceback, takes_turns=several)
            for device in devices
        ]
        for worker in workers:
            stack.callback(worker.close)
            worker.start()
        for worker in workers:
            stack.enter_context(worker)
        refuse_twice([worker.hello.environment for worker in workers])
        yield workers
