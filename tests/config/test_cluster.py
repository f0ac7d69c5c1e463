"""The file of `--cluster` is read strictly, and the ready ones are sound."""

from __future__ import annotations

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.config import KubernetesCluster, LocalCluster, SlurmCluster, load_cluster
from bt_bench.runs.cluster import ready_files


def load(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_cluster(path, "c.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.yaml:1:1: the file is empty; expected a mapping with the key scheduler: one of "),
        ("[1]", "c.yaml:1:1: the file is [1]; expected a mapping with the key scheduler"),
        ("workers: 2", "c.yaml:1:1: 'scheduler' is missing; expected one of local, slurm, kub"),
        ("scheduler: pbs", "c.yaml:1:12: scheduler is 'pbs'; expected one of local, slurm, kub"),
        ("scheduler: slurm\nworker: 2", "c.yaml:2:1: unknown key 'worker'; did you mean 'workers'"),
        ("scheduler: local\nworkers: 2", "c.yaml:2:1: unknown key 'workers'; "),
        ("scheduler: slurm\nworkers: 0", "workers is 0; expected a whole number from 1 to 10000"),
        ("scheduler: slurm\nwalltime: 60", "c.yaml:2:11: walltime is 60; expected text"),
        ("scheduler: slurm\nwalltime: '60'", "walltime is '60'; expected hours:minutes:seconds"),
        ("scheduler: slurm\ndevice: gpu", "c.yaml:2:9: device is 'gpu'; expected auto, cuda, cpu"),
        ("scheduler: slurm\naddress: a b", "c.yaml:2:10: address is 'a b'; expected an address"),
        ("scheduler: kubernetes\nclaim: a\nmount: /b", "c.yaml:1:1: 'image' is missing; expected "),
        (
            "scheduler: kubernetes\nimage: i\nclaim: a\nmount: b",
            "c.yaml:4:8: mount is 'b'; expected the absolute path",
        ),
        ("scheduler: local\ndevices: ['0']", "c.yaml:2:11: devices is '0'; expected UUIDs, as "),
        ("scheduler: local\ndevices: [one]", "devices is 'one'; expected UUIDs, as nvidia-smi -L"),
        ("scheduler: local\ndevices: [GPU-1, GPU-1]", "c.yaml:2:18: devices names 'GPU-1' twice"),
        ("scheduler: local\ndevice: cpu", "c.yaml:2:9: device is 'cpu' and devices has no names"),
    ],
)
def test_wrong_values_are_refused_with_their_place(tmp_path, text, message):
    with pytest.raises(UsageError) as refused:
        load(tmp_path, text)
    assert message in str(refused.value)


def test_all_wrong_values_are_named_at_once(tmp_path):
    with pytest.raises(UsageError) as refused:
        load(tmp_path, "scheduler: slurm\nworkers: x\ncores: 0\ncolour: red")
    assert len(str(refused.value).splitlines()) == 3


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"no such file; expected a YAML file of a cluster"):
        load_cluster(tmp_path / "none.yaml", "none.yaml")


def test_there_are_four_shards_for_each_worker(tmp_path):
    spec = load(tmp_path, "scheduler: local\ndevice: cpu\ndevices: [one, two]")
    assert (spec.num_workers, spec.num_shards) == (2, 8)
    assert load(tmp_path, "scheduler: slurm\nworkers: 3\nshards: 5").num_shards == 5


def test_the_ready_files_are_sound():
    kinds = {"local": LocalCluster, "slurm": SlurmCluster, "kubernetes": KubernetesCluster}
    for name, path in ready_files().items():
        assert type(load_cluster(path, name)) is kinds.pop(name)
    assert not kinds
