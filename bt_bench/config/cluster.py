"""The file of `--cluster`: the workers that take the shards of a sweep, and their scheduler."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from bt_bench.base.errors import UsageError, shown
from bt_bench.base.names import DEVICE_CHOICES, is_device_choice
from bt_bench.config.problems import Place, Problems
from bt_bench.config.sources import read_text_file
from bt_bench.config.validation import known_entries, validate
from bt_bench.config.yaml import Located, YamlEntry, parse_yaml, refuse
from bt_bench.results import Noun

_WALLTIME = re.compile(r"\d{1,3}:[0-5]\d:[0-5]\d")
_ADDRESS = re.compile(r"[0-9A-Za-z.:%-]+")


class ClusterSpec(Noun):
    """Describe the settings that all schedulers share.

    Args:
        shards: number of shards; `None`: four per worker.
        attempts: how often a shard is begun or continued before the sweep goes on without it.
        device: `--device` of every shard.
        setup: lines of shell that a worker begins with, such as the activation of an environment.
        address: at which workers reach the process that gives out shards; `None`: any of its own.
        silence_s: seconds without a sign of a worker after which another takes its shard.
    """

    shards: int | None = Field(default=None, ge=1, le=100_000)
    attempts: int = Field(default=5, ge=1, le=1000)
    device: str = "auto"
    setup: str = ""
    address: str | None = None
    silence_s: int = Field(default=60, ge=3, le=3600)

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Return the number of shards that are measured at once."""

    @property
    def num_shards(self) -> int:
        """Return the number of shards."""
        return self.shards or 4 * self.num_workers


class LocalCluster(ClusterSpec):
    """This host: a worker per GPU. On the CPU, devices are mere names of workers."""

    scheduler: Literal["local"]
    devices: list[str] = Field(default=[])

    @property
    def num_workers(self) -> int:
        return max(1, len(self.devices))


class SlurmCluster(ClusterSpec):
    """Slurm: a job per worker, each of one GPU, which Slurm chooses."""

    scheduler: Literal["slurm"]
    workers: int = Field(default=1, ge=1, le=10_000)
    walltime: str = "01:00:00"
    cores: int = Field(default=4, ge=1, le=1024)
    memory_gb: int | None = Field(default=None, ge=1, le=100_000)
    gpus: int = Field(default=1, ge=0, le=1)
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    options: str = ""

    @property
    def num_workers(self) -> int:
        return self.workers


class KubernetesCluster(ClusterSpec):
    """Kubernetes: a pod per worker, each of one GPU, with a volume that this process sees, too."""

    scheduler: Literal["kubernetes"]
    image: str = Field(min_length=1)
    claim: str = Field(min_length=1)
    mount: str = Field(min_length=1)
    workers: int = Field(default=1, ge=1, le=10_000)
    namespace: str = "default"
    cores: int = Field(default=4, ge=1, le=1024)
    memory_gb: int = Field(default=32, ge=1, le=100_000)
    gpu_resource: str = "nvidia.com/gpu"

    @property
    def num_workers(self) -> int:
        return self.workers


SCHEDULERS: Mapping[str, type[ClusterSpec]] = {
    "local": LocalCluster,
    "slurm": SlurmCluster,
    "kubernetes": KubernetesCluster,
}


def load_cluster(path: Path, label: str) -> ClusterSpec:
    """Read and validate the file of `--cluster`.

    Args:
        path: the file.
        label: its name in messages.

    Raises:
        UsageError: with a line per error, each naming file, line and column.
    """
    problems = Problems()
    root = parse_yaml(read_text_file(path, label, "a YAML file of a cluster"), label, problems)
    expected = f"a mapping with the key scheduler: one of {', '.join(SCHEDULERS)}"
    if root is None:
        raise UsageError(f"{Place(label, 1, 1)}: the file is empty; expected {expected}")
    given = root.value
    if not isinstance(given, dict):
        raise UsageError(f"{root.place}: the file is {shown(root.plain())}; expected {expected}")
    model = _model(root.place, given, problems)
    known = known_entries(model, given, problems)
    spec = validate(model, known, root.place, problems)
    if spec is not None:
        _check(spec, {key: entry.located for key, entry in known.items()}, problems)
    problems.raise_if_any()
    assert spec is not None  # or a problem was found
    return spec


def _model(place: Place, given: Mapping[str, YamlEntry], problems: Problems) -> type[ClusterSpec]:
    """Return the model of the scheduler that is named; without it no key can be checked."""
    names = ", ".join(SCHEDULERS)
    if "scheduler" not in given:
        raise UsageError(f"{place}: 'scheduler' is missing; expected one of {names}")
    located = given["scheduler"].located
    if not isinstance(located.value, str) or located.value not in SCHEDULERS:
        refuse(located, "scheduler", f"one of {names}", problems)
        problems.raise_if_any()
    return SCHEDULERS[str(located.value)]


def _check(spec: ClusterSpec, places: Mapping[str, Located], problems: Problems) -> None:
    """Report values that are of the right type, and make no sense."""
    if not is_device_choice(spec.device):
        refuse(places["device"], "device", DEVICE_CHOICES, problems)
    if spec.address is not None and not _ADDRESS.fullmatch(spec.address):
        refuse(places["address"], "address", "an address of this host, or its name", problems)
    if isinstance(spec, SlurmCluster) and not _WALLTIME.fullmatch(spec.walltime):
        refuse(places["walltime"], "walltime", "hours:minutes:seconds, in quotes", problems)
    if isinstance(spec, KubernetesCluster) and not Path(spec.mount).is_absolute():
        refuse(places["mount"], "mount", "the absolute path of the volume in every pod", problems)
    if isinstance(spec, LocalCluster):
        _check_devices(spec, places, problems)


def _check_devices(spec: LocalCluster, places: Mapping[str, Located], problems: Problems) -> None:
    given = places["devices"].value if "devices" in places else []
    seen: set[str] = set()
    for located in given if isinstance(given, list) else ():
        name = str(located.value)
        if name.isdecimal() or not name:
            refuse(
                located,
                "devices",
                "UUIDs, as nvidia-smi -L lists them: a number names another GPU in each process "
                "that sees only some of them",
                problems,
            )
        elif spec.device != "cpu" and not name.startswith(("GPU-", "MIG-")):
            refuse(
                located,
                "devices",
                "UUIDs, as nvidia-smi -L lists them (GPU-…, MIG-…); with device: cpu, any names",
                problems,
            )
        elif name in seen:
            problems.add(located.place, f"devices names {shown(name)} twice; remove one")
        seen.add(name)
    if spec.device == "cpu" and not spec.devices:
        problems.add(
            places["device"].place,
            "device is 'cpu' and devices has no names; expected one for each worker, such as "
            "devices: [one, two]",
        )
