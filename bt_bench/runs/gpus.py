"""The GPUs of this host that a command is to use, and a worker for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile

from bt_bench.base.errors import UsageError
from bt_bench.base.names import DeviceChoice, gpu_uuid
from bt_bench.worker import Supervisor, gpu_uuids, refuse_twice

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_EXPECTED = "expected all, or indices and UUIDs as nvidia-smi -L lists them, such as 0,2"


def chosen_gpus(gpus: str | None, choice: DeviceChoice, *, is_named: bool) -> list[DeviceChoice]:
    """Return the device of each worker.

    Args:
        gpus: the value of `--gpus`; `None`: one worker, on the chosen device.
        choice: the chosen device.
        is_named: whether `--device` names it, and not the settings.

    Raises:
        UsageError: for a GPU that is named twice, for text that names none, or where none is.
    """
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
    if is_named and choice not in ("auto", "cuda"):
        raise UsageError(
            f"--gpus {gpus} and --device {choice} both name GPUs; leave one of them out"
        )
    return _all() if names == ["all"] else [_choice(gpus, name) for name in names]


def _all() -> list[DeviceChoice]:
    """Return all GPUs that a process of this environment sees."""
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
def entered(workers: Sequence[Supervisor]) -> Iterator[None]:
    """Start workers, one for each device, at the same time; they end with the `with` block.

    Raises:
        UsageError: if a device does not exist, or if two are the same GPU.
    """
    with ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.close)
            worker.start()
        for worker in workers:
            stack.enter_context(worker)
        refuse_twice([worker.hello.environment for worker in workers])
        yield
