"""Sweeps from Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bt_bench.api.reading import Run
from bt_bench.base import joined, names_given
from bt_bench.base.errors import UsageError, shown
from bt_bench.base.extras import needing_run
from bt_bench.base.names import DEVICE_CHOICES, is_device_choice
from bt_bench.config import chosen_device, kernel_folders, load_config, reports_folder
from bt_bench.results import RunFolder

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@needing_run
def sweep(
    config: str | os.PathLike[str] | Mapping[str, object],
    *,
    variants: str | Sequence[str] | None = None,
    operations: str | Sequence[str] | None = None,
    k: str | Sequence[str] | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002 - the name of the command's option
    device: str | None = None,
    gpus: str | Sequence[int | str] | None = None,
    kernels: Paths = (),
    vllm_source: Paths = (),
    suite: str | os.PathLike[str] | None = None,
    reports: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Run:
    """Check and measure variants on the workloads of a config, as `bt-bench sweep` does.

    Variants run in a process of their own, with the same isolation. It takes the command's options.
    Errors spell them as on the command line. The command's environment variables have no effect
    here; `[tool.bt-bench]` of the project has.

    Args:
        config: name of a stock config, path of a YAML file, or the config itself as a mapping.
        variants: run these variants instead of the config's.
        operations: run these operations instead of the config's.
        k: patterns of the names of the cases to run.
        set: by parameter, the value that every case takes; a list of values sweeps it.
        device: `auto`, `cuda`, `cuda:1` or `cpu`; by default the project's, else `auto`.
        gpus: several GPUs of this host, which measure at once: `all`, `0,2`, `[0, 2]` or UUIDs.
        kernels: folders of variant files.
        vllm_source: unpacked wheels of vLLM, for variants that wrap it.
        suite: folder or name of a suite.
        reports: make the folder of the run in here; by default the project's, else `reports`.
        out: the folder of the run itself, which must not exist.
        progress: called with each line of progress, such as `print`.

    Returns:
        The run. Its `failed` has the cases that failed, which do not raise.

    Raises:
        UsageError: for a wrong option or config, for a variant that does not import, and without
            what the extra `run` installs.
    """
    from bt_bench.runs import (
        Lines,
        Place,
        SweepRequest,
        check_conditions,
        check_memory,
        choose_variants,
        chosen_gpus,
        entered,
        run_sweep,
        settle_sweep,
    )
    from bt_bench.worker import Supervisor, WorkerSetup, arms_of, leased
    from bt_bench.worker.process.main import serve

    if device is not None and not is_device_choice(device):
        raise UsageError(f"--device {device!r} is not a device; expected {DEVICE_CHOICES}")
    given = None if gpus is None else _gpus(gpus)
    if progress is not None and not callable(progress):
        raise UsageError(f"progress is {shown(progress)}; expected a function, such as print")
    say: Callable[[str], None] = progress or (lambda _line: None)
    overrides = [_override(*item) for item in (set or {}).items()]
    named = names_given("--variants", variants)
    spec = load_config(
        config,
        overrides=overrides,
        variants=named,
        operations=names_given("--operations", operations),
        suite=None if suite is None else os.fspath(suite),
        select=joined(k),
    )
    folders = kernel_folders(_paths(kernels), spec.kernels)
    sources = _paths(vllm_source)
    by_name = named is not None
    entries = choose_variants(spec, folders, sources, by_name=by_name, say=say)
    spec = settle_sweep(spec, entries, folders)
    devices = chosen_gpus(given, chosen_device(device), is_named=device is not None)
    several = len(devices) > 1
    workers = [
        Supervisor(
            WorkerSetup(each, arms_of(entries), spec.plan, spec.suite, takes_turns=several), serve
        )
        for each in devices
    ]
    with entered(workers), ExitStack() as leases:
        hello, *_ = hellos = [worker.hello for worker in workers]
        places = [Place(worker, worker.hello.environment) for worker in workers]
        for each in hellos:
            check_memory(spec, len(entries), each.available_bytes)
        leases.enter_context(leased([place.environment for place in places], say))
        for place in places:
            check_conditions(place.environment, profiles=bool(spec.plan.profile_rounds))
        if out is not None:
            folder = RunFolder.create_exact(Path(out))
        else:
            parent = None if reports is None else Path(reports)
            folder = RunFolder.create(reports_folder(parent), spec.name)
        command = _command(
            config,
            {
                "--variants": [",".join(named)] if named else [],
                "--operations": [",".join(map(str, spec.operations))] if operations else [],
                "-k": [joined(k)] if k else [],
                "--set": overrides,
                "--device": [device] if device else [],
                "--gpus": [given] if given else [],
                "--kernels": folders if kernels else [],
                "--vllm-source": sources,
                "--suite": [suite] if suite else [],
            },
        )
        request = SweepRequest(spec, entries, hello.environment, folder, command, hello.native)
        with folder.locked():
            try:
                results = run_sweep(request, workers[0], Lines(say), places[1:])
            except BaseException as error:
                error.add_note(
                    f"bt-bench: the results so far are in {folder.path}; "
                    f"bt-bench sweep --resume {folder.path} continues the run"
                )
                raise
    return Run(folder.path, tuple(results))


def _override(axis: str, value: object) -> str:
    """Return a member of `set` as the command takes it: JSON is YAML, too."""
    values = value if isinstance(value, list | tuple | range) else [value]
    try:
        return f"{axis}={','.join(json.dumps(each, default=_number) for each in values)}"
    except TypeError as error:
        raise UsageError(f"--set {axis} is {shown(value)}: {error}") from None


def _gpus(given: object) -> str:
    """Return GPUs as the command takes them.

    Raises:
        UsageError: for anything but a text, or a list of indices and UUIDs. One number is refused:
            it may mean an index, or how many.
    """
    if isinstance(given, str):
        return given
    names = [*given] if isinstance(given, list | tuple | range) else []
    are_known = (
        isinstance(name, str) or (hasattr(name, "__index__") and not isinstance(name, bool))
        for name in names
    )
    if not names or not all(are_known):
        raise UsageError(
            f"--gpus is {shown(given)}; expected all, or a list of indices and UUIDs as "
            "nvidia-smi -L lists them, such as [0, 2]"
        )
    return ",".join(map(str, names))


def _number(value: Any) -> object:
    """Return a number of numpy as one of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected a number, a text or a list of these, not {type(value).__name__}")


def _paths(given: Paths) -> list[Path]:
    return [Path(given)] if isinstance(given, str | os.PathLike) else [*map(Path, given)]


def _command(config: object, options: Mapping[str, Sequence[object]]) -> list[str]:
    """Return the call for the record, in the words of the command line."""
    from bt_bench.variants import encodable

    source = "<mapping>" if isinstance(config, Mapping) else config
    words = [word for flag, values in options.items() for value in values for word in (flag, value)]
    return [encodable(str(word)) for word in ("bt_bench.sweep", source, *words)]
