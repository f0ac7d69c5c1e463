"""Read the cores and memory that control groups leave, from files as containers have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bt_bench.base.limits import (
    ControlGroups,
    Throttling,
    memory_here,
    usable_cores,
)

GIB = 2**30
NO_LIMIT_V1 = 2**63 - 4096

V2 = "30 24 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate"


def machine(root: Path, groups: str, mounts: str, files: dict[str, object]) -> ControlGroups:
    """Write what a process reads of its control groups, and return what it makes of it."""
    written = {
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": f"22 1 8:1 / / rw - ext4 /dev/sda rw\n{mounts}\n",
        "proc/meminfo": "MemTotal:       2113929216 kB\nMemAvailable:   2097152000 kB\n",
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in written.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return ControlGroups(root)


def v1(name: str, part: str = "/") -> str:
    return f"33 31 0:30 {part} /sys/fs/cgroup/{name} ro - cgroup cgroup rw,{name}"


def test_a_container_of_version_2_has_its_own_limits(tmp_path: Path) -> None:
    files = {"cpu.max": "200000 100000", "memory.max": 8 * GIB, "memory.current": 3 * GIB}
    stat = {"memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7"}
    groups = machine(tmp_path, "0::/", V2, files | stat)
    assert groups.cpu_quota() == 2.0
    assert groups.memory_limit() == 8 * GIB
    assert groups.available_memory() == 6 * GIB  # cached files give way
    assert memory_here(tmp_path) == 6 * GIB


def test_the_smallest_limit_of_all_levels_holds(tmp_path: Path) -> None:
    files = {
        "pod/cpu.max": "150000 100000",
        "pod/memory.max": 4 * GIB,
        "pod/memory.current": 3 * GIB,
        "pod/one/cpu.max": "400000 100000",
        "pod/one/memory.max": 16 * GIB,
        "pod/one/memory.current": GIB,
        "pod/one/inner/cpu.max": "max 100000",
        "pod/one/inner/memory.max": "max",
        "pod/two/cpu.max": "1000 100000",  # of others
    }
    groups = machine(tmp_path, "0::/pod/one/inner", V2, files)
    assert groups.cpu_quota() == 1.5
    assert groups.memory_limit() == 4 * GIB
    assert groups.available_memory() == GIB


def test_memory_high_is_a_limit_too(tmp_path: Path) -> None:
    files = {"memory.max": 8 * GIB, "memory.high": 6 * GIB, "memory.current": 7 * GIB}
    groups = machine(tmp_path, "0::/", V2, files)
    assert groups.memory_limit() == 6 * GIB
    assert groups.available_memory() == 0


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path) -> None:
    files = {
        "cpu/a/cpu.cfs_quota_us": 300000,
        "cpu/a/cpu.cfs_period_us": 100000,
        "cpu/cpu.cfs_quota_us": -1,
        "cpu/cpu.cfs_period_us": 100000,
        "memory/a/memory.limit_in_bytes": 2 * GIB,
        "memory/a/memory.usage_in_bytes": GIB,
        "memory/a/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 2}",
        "memory/memory.limit_in_bytes": NO_LIMIT_V1,
    }
    mounts = f"{v1('cpu')}\n{v1('memory')}\n{v1('freezer')}"
    groups = machine(tmp_path, "4:cpu:/a\n3:memory:/a\n1:freezer:/", mounts, files)
    assert (groups.cpu_quota(), groups.memory_limit()) == (3.0, 2 * GIB)
    assert groups.available_memory() == GIB + GIB // 2


def test_a_container_of_version_1_has_the_limit_of_a_group_that_it_does_not_see(
    tmp_path: Path,
) -> None:
    files = {
        "memory/memory.limit_in_bytes": NO_LIMIT_V1,
        "memory/memory.usage_in_bytes": GIB,
        "memory/memory.stat": f"inactive_file 1\nhierarchical_memory_limit {8 * GIB}",
    }
    groups = machine(tmp_path, "3:memory:/", v1("memory"), files)
    assert (groups.memory_limit(), groups.available_memory()) == (8 * GIB, 7 * GIB)


def test_controllers_that_share_a_hierarchy_are_each_found(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/a/cpu.cfs_quota_us": 50000,
        "cpu,cpuacct/a/cpu.cfs_period_us": 100000,
    }
    groups = machine(tmp_path, "4:cpu,cpuacct:/a", v1("cpu,cpuacct"), files)
    assert groups.cpu_quota() == 0.5


def test_a_container_that_sees_its_part_alone_knows_its_path_on_the_host(tmp_path: Path) -> None:
    """Without a namespace for control groups, as Docker starts containers on version 1."""
    files = {
        "cpu/cpu.cfs_quota_us": 400000,
        "cpu/cpu.cfs_period_us": 100000,
        "cpu/inner/cpu.cfs_quota_us": 100000,
        "cpu/inner/cpu.cfs_period_us": 100000,
    }
    mounts = v1("cpu", "/docker/abc")
    assert machine(tmp_path, "4:cpu:/docker/abc", mounts, files).cpu_quota() == 4.0
    assert machine(tmp_path, "4:cpu:/docker/abc/inner", mounts, files).cpu_quota() == 1.0


@pytest.mark.parametrize("path", ["/../../elsewhere", "/kubepods/gone"])
def test_a_group_outside_of_what_is_mounted_has_the_limits_of_the_mounted_part(
    tmp_path: Path, path: str
) -> None:
    groups = machine(tmp_path, f"0::{path}", V2, {"cpu.max": "200000 100000"})
    assert groups.cpu_quota() == 2.0


def test_without_proc_the_usual_places_are_looked_at(tmp_path: Path) -> None:
    machine(tmp_path, "", "", {"cpu.max": "200000 100000", "memory/memory.limit_in_bytes": GIB})
    for name in ("cgroup", "mountinfo"):
        (tmp_path / "proc" / "self" / name).unlink()
    groups = ControlGroups(tmp_path)
    assert (groups.cpu_quota(), groups.memory_limit()) == (2.0, GIB)
    assert groups.available_memory() == GIB  # what is used is not known


def test_a_blank_in_a_mounted_path_is_no_end_of_it(tmp_path: Path) -> None:
    mount = r"30 24 0:26 / /sys/fs/cgroup/my\040groups rw - cgroup2 cgroup rw"
    groups = machine(tmp_path, "0::/", mount, {"my groups/cpu.max": "200000 100000"})
    assert groups.cpu_quota() == 2.0


@pytest.mark.parametrize(
    "files",
    [
        {"cpu.max": "max 100000", "memory.max": "max", "memory.high": "max"},
        {"cpu.max": "", "memory.max": "", "memory.high": "-1"},
        {"cpu.max": "200000 0", "memory.max": "none"},
        {},
    ],
    ids=["none", "empty", "odd", "absent"],
)
def test_where_nothing_is_limited_the_machine_is(tmp_path: Path, files: dict[str, object]) -> None:
    groups = machine(tmp_path, "0::/", V2, files)
    assert groups.cpu_quota() is None
    assert groups.memory_limit() is None
    assert groups.available_memory() is None
    assert memory_here(tmp_path) == 2097152000 * 1024


def test_nothing_at_all_is_no_limit(tmp_path: Path) -> None:
    assert ControlGroups(tmp_path).cpu_quota() is None
    assert memory_here(tmp_path) is None


def test_throttling_is_summed_over_the_levels_that_have_a_quota(tmp_path: Path) -> None:
    files = {
        "cpu.stat": "usage_usec 5\nnr_throttled 1000\nthrottled_usec 1000",  # no quota there
        "pod/cpu.max": "200000 100000",
        "pod/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_usec 1500",
        "pod/one/cpu.max": "100000 100000",
        "pod/one/cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_usec 500",
    }
    groups = machine(tmp_path, "0::/pod/one", V2, files)
    before = groups.throttling()
    assert before == Throttling(5, 2000.0)
    assert not groups.throttling().since(before)
    later = "nr_periods 12\nnr_throttled 3\nthrottled_usec 900"
    (tmp_path / "sys/fs/cgroup/pod/one/cpu.stat").write_text(later)
    assert groups.throttling().since(before) == Throttling(1, 400.0)
    assert groups.throttling().since(before)


def test_version_1_counts_throttling_in_nanoseconds(tmp_path: Path) -> None:
    files = {
        "cpu/cpu.cfs_quota_us": 100000,
        "cpu/cpu.cfs_period_us": 100000,
        "cpu/cpu.stat": "nr_periods 348\nnr_throttled 7\nthrottled_time 18774049",
    }
    groups = machine(tmp_path, "4:cpu:/", v1("cpu"), files)
    assert groups.throttling() == Throttling(7, 18774.049)


@pytest.mark.parametrize(
    ("affinity", "quota", "cores"),
    [(192, None, 192), (192, 4.0, 4), (2, 4.0, 2), (8, 2.9, 2), (8, 0.5, 1)],
)
def test_cores_are_whole_and_at_least_one(affinity: int, quota: float | None, cores: int) -> None:
    assert usable_cores(affinity, quota) == cores


JOIN = """
import pathlib, sys
for group in sys.argv[1:]:
    pathlib.Path(group, "cgroup.procs").write_text("0")
from bt_bench.base.limits import control_groups, cores_here, memory_here
groups = control_groups()
print(groups.cpu_quota(), groups.memory_limit(), cores_here(), memory_here() <= 2**30)
"""


def test_a_group_of_this_machine_is_read_as_it_is_set(request: pytest.FixtureRequest) -> None:
    """Skipped where control groups of version 1 cannot be made, as in most containers."""
    made = []
    for controller, name, value in (
        ("cpu", "cpu.cfs_quota_us", 50000),
        ("memory", "memory.limit_in_bytes", 2**30),
    ):
        group = Path("/sys/fs/cgroup", controller, f"bt-bench-test-{os.getpid()}")
        try:
            group.mkdir()
            request.addfinalizer(group.rmdir)
            (group / name).write_text(str(value))
        except OSError as error:
            pytest.skip(f"no control group can be made: {error}")
        made.append(str(group))
    command = [sys.executable, "-c", JOIN, *made]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.5", str(2**30), "1", "True"]
