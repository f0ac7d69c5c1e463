"""Settings and tools that change times: each is named, with its effect and a remedy."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.factories import make_environment, make_gpu

from bt_bench.base.errors import UsageError
from bt_bench.results import Condition, Harm, condition_texts
from bt_bench.runs import check_conditions
from bt_bench.worker.machine.conditions import read_conditions


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """What the system tells of a process that nothing looks at."""
    own = tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    (own / "maps").write_text("7f00-7f01 r-xp 0 08:01 5   /usr/lib/libc.so.6\n7f02-7f03 rw-p 0 0\n")
    (own / "status").write_text("Name:\tpython\nTracerPid:\t0\n")
    return own.parent


@pytest.fixture
def read(proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Read the conditions under an environment; tools of the tests' own process do not count."""
    monkeypatch.setattr("bt_bench.worker.machine.conditions._python", lambda _environ: ())

    def of(device="cuda", gpus=(), **environ: str) -> list[Condition]:
        away = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "no-mps")}
        return read_conditions(device, gpus, away | environ, proc)

    return of


def test_a_plain_process_has_none(read) -> None:
    assert read() == []
    assert read("cpu") == []
    assert read(CUDA_LAUNCH_BLOCKING="0", TRITON_DEBUG="0", DISABLE_PTXAS_OPT="false") == []
    assert read(CUDA_MODULE_LOADING="LAZY", TORCH_USE_CUDA_DSA="1", CUDA_CACHE_DISABLE="1") == []


@pytest.mark.parametrize(
    ("name", "value", "harm"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", Harm.FALSE),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", Harm.FALSE),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "0", Harm.FALSE),  # torch asks only whether it is set
        ("TRITON_ENABLE_ASAN", "1", Harm.FALSE),
        ("TRITON_INSTRUMENTATION_MODE", "gsan", Harm.FALSE),
        ("TORCH_CUDA_SANITIZER", "0", Harm.FALSE),  # likewise
        ("CUDA_DISABLE_PERF_BOOST", "1", Harm.NOTED),
        ("TRITON_OVERRIDE_ARCH", "sm80", Harm.NOTED),
        ("TRITON_PTXAS_PATH", "/opt/ptxas", Harm.NOTED),
        ("TRITON_FORCE_DISABLE_FP_FUSION", "1", Harm.NOTED),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", Harm.NOTED),
        ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", Harm.NOTED),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", Harm.NOTED),
        ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", Harm.NOTED),
        ("TRITON_DEBUG", "1", Harm.NOTED),
        ("DISABLE_PTXAS_OPT", "true", Harm.NOTED),
    ],
)
def test_a_setting_of_cuda_torch_or_triton(read, name: str, value: str, harm: Harm) -> None:
    (found,) = read(**{name: value})
    assert (found.name, found.remedy, found.harm) == (f"{name}={value}", "unset it", harm)
    assert read("cpu", **{name: value}) == []  # there it has no effect


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_without_torch_compile_what_is_timed_is_not_what_it_makes(read, name: str) -> None:
    for device in ("cuda", "cpu"):
        (found,) = read(device, **{name: "1"})
        assert found.name == f"{name}=1"
        assert read(device, **{name: "0"}) == []


@pytest.mark.parametrize(
    ("environ", "name", "harm"),
    [
        (
            {
                "CUDA_INJECTION64_PATH": "/opt/compute-sanitizer/libsanitizer-collection.so",
                "NV_SANITIZER_INJECTION_PORT_BASE": "49152",
            },
            "compute-sanitizer is attached (NV_SANITIZER_INJECTION_PORT_BASE, "
            "libsanitizer-collection.so)",
            Harm.FALSE,
        ),
        (
            {
                "CUDA_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so",
                "NSYS_PROFILING_SESSION_ID": "5",
            },
            "Nsight Systems is attached (NSYS_PROFILING_SESSION_ID, libToolsInjection64.so)",
            Harm.PROFILER,
        ),
        (
            {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "1"},
            "Nsight Compute is attached (NV_NSIGHT_INJECTION_TRANSPORT_TYPE)",
            Harm.FALSE,
        ),
        (
            {"CUDA_INJECTION64_PATH": "/tool.so"},
            "CUDA_INJECTION64_PATH=/tool.so",
            Harm.PROFILER,
        ),
    ],
)
def test_a_tool_that_cuda_loads(read, environ: dict[str, str], name: str, harm: Harm) -> None:
    (found,) = read(**environ)
    assert (found.name, found.harm) == (name, harm)
    assert read("cpu", **environ) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_preloaded(read, device: str) -> None:
    (other,) = read(device, LD_PRELOAD="/usr/lib/libjemalloc.so.2")
    assert (other.name, other.harm) == ("preloaded: libjemalloc.so.2", Harm.NOTED)
    bad, other = read(device, LD_PRELOAD="/x/libasan.so.8:libtcmalloc.so")
    assert bad.name == "a sanitizer of the compiler is attached (libasan.so.8)"
    assert (bad.harm, other.name) == (Harm.FALSE, "preloaded: libtcmalloc.so")
    (found,) = read(device, LD_PRELOAD="/usr/lib/valgrind/vgpreload_core-amd64-linux.so")
    assert found.name.startswith("valgrind is attached")


def test_a_tool_whose_library_is_loaded(read, proc: Path) -> None:
    line = "7f-80 r-xp 0 08:01 5   /venv/memray/_memray.cpython-311-x86_64-linux-gnu.so\n"
    (proc / "self" / "maps").write_text(line)
    (found,) = read()
    assert found.name.startswith("memray is attached")


def test_a_debugger_is_named_with_its_process(read, proc: Path) -> None:
    (proc / "self" / "status").write_text("Name:\tpython\nTracerPid:\t77\n")
    (proc / "77").mkdir()
    (proc / "77" / "comm").write_text("cuda-gdb\n")
    (found,) = read()
    assert (found.name, found.harm) == (
        "cuda-gdb (process 77) traces this process",
        Harm.FALSE,
    )


def test_a_missing_proc_tells_of_nothing(read, proc: Path) -> None:
    for name in ("maps", "status"):
        (proc / "self" / name).unlink()
    assert read() == []


def test_mps_is_known_by_its_pipe(read, tmp_path: Path) -> None:
    assert read(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path)) == []
    os.mkfifo(tmp_path / "control")
    (found,) = read(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path), CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
    assert found.name == f"MPS ({tmp_path}), with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"
    assert found.effect.endswith("and this one gets a part of it")
    assert found.harm is Harm.NOTED


def test_a_mig_instance_is_known_by_its_name(read) -> None:
    (found,) = read(gpus=[make_gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb")])
    assert found.name == "MIG (NVIDIA H100 80GB HBM3 MIG 1g.10gb)"
    assert read(gpus=[make_gpu()]) == []


class FakeSensors:
    """A GPU that is busy for some looks, with processes on it."""

    def __init__(self, pids, *busy):
        self._pids, self._busy = pids, list(busy)

    def processes(self):
        return self._pids

    def busy_percent(self):
        return self._busy.pop(0) if self._busy else 0


@pytest.mark.parametrize(
    ("pids", "busy", "names", "harm"),
    [
        ({70}, [90] * 99, "process 70 (train.py)", Harm.FALSE),
        ({70}, [90, 90], "process 70 (train.py)", Harm.NOTED),  # it ends
        ({70, 71}, [], "process 70 (train.py), process 71 (a) b)", Harm.NOTED),
        ({70}, [None], "process 70 (train.py)", Harm.NOTED),
        ({72}, [90], None, None),  # another worker of the same parent
        ({4711}, [90], None, None),  # of another container, or hidden
        (None, [90], None, None),
        (set(), [90], None, None),
    ],
)
def test_processes_on_the_gpu_are_known(read, proc: Path, monkeypatch, pids, busy, names, harm):
    import bt_bench.worker.machine.conditions as here

    for pid, name, parent in ((70, "train.py", 1), (71, "a) b", 1), (72, "python", os.getppid())):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1\n")
    pids = pids and {*pids, os.getpid()}
    monkeypatch.setattr(here, "GpuSensors", lambda _nvml, _uuid: FakeSensors(pids, *busy))
    monkeypatch.setattr(here, "parent_process", lambda: "the sweep")
    monkeypatch.setattr(here, "_SECONDS_BETWEEN_LOOKS", 0)
    found = read(gpus=[make_gpu()])
    assert [(each.name, each.harm) for each in found] == (
        [] if names is None else [(f"{names} on NVIDIA H200", harm)]
    )


def test_hooks_of_python_are_known(proc: Path) -> None:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        found = read_conditions("cpu", (), {}, proc)
    finally:
        sys.setprofile(before)
    assert any("is set by sys.setprofile" in each.name for each in found)


def test_tracemalloc_is_known(proc: Path) -> None:
    tracemalloc.start()
    try:
        names = [each.name for each in read_conditions("cpu", (), {}, proc)]
    finally:
        tracemalloc.stop()
    assert "tracemalloc is on" in names


def test_checks_of_pythons_own_are_known(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def names(**environ: str) -> list[str]:
        return [each.name for each in read_conditions("cpu", (), environ, proc)]

    assert names(PYTHONMALLOC="debug") == ["PYTHONMALLOC=debug"]
    assert names(PYTHONMALLOC="pymalloc_debug") == ["PYTHONMALLOC=pymalloc_debug"]
    assert names(PYTHONMALLOC="malloc") == []
    monkeypatch.setattr(sys, "flags", SimpleNamespace(dev_mode=True, optimize=0))
    assert names(PYTHONMALLOC="debug") == ["Python's development mode is on"]


@pytest.mark.parametrize(("level", "option"), [(1, "-O"), (2, "-OO"), (3, "-OO")])
def test_dropped_assertions_are_known(
    proc: Path, monkeypatch: pytest.MonkeyPatch, level: int, option: str
) -> None:
    monkeypatch.setattr(sys, "flags", SimpleNamespace(dev_mode=False, optimize=level))
    (found,) = read_conditions("cpu", (), {}, proc)
    assert (found.name, found.harm) == (f"Python drops assertions ({option})", Harm.NOTED)


def condition(harm: Harm) -> Condition:
    return Condition(name=harm.value, effect="x is slow", remedy="unset it", harm=harm)


def test_false_times_are_refused_with_all_reasons() -> None:
    environment = make_environment(conditions=[condition(harm) for harm in Harm])
    with pytest.raises(UsageError) as caught:
        check_conditions(environment)
    text = str(caught.value)
    assert "profiler: x is slow; unset it\nfalse: x is slow; unset it" in text
    assert "`bt-bench check`" in text
    assert "noted" not in text


def test_beside_a_profiler_only_what_is_not_profiled_is_timed() -> None:
    environment = make_environment(conditions=[condition(Harm.PROFILER)])
    with pytest.raises(UsageError, match=r"with --set plan\.profile_rounds=0"):
        check_conditions(environment)
    check_conditions(environment, profiles=False)


@pytest.mark.parametrize("conditions", [None, [], [condition(Harm.NOTED)]])
def test_what_is_only_noted_is_timed(conditions: list[Condition] | None) -> None:
    check_conditions(make_environment(conditions=conditions))
    assert len(list(condition_texts(conditions))) == len(conditions or ())
