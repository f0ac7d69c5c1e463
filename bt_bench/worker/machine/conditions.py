"""The settings and tools of this process that change its times; nothing is changed here.

A tool is known by the variables that it sets for the process that it starts, by libraries that it
has loaded, or through the system and Python. One that attaches later goes unseen.
"""

from __future__ import annotations

import os
import re
import sys
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path, PurePath
from stat import S_ISFIFO, S_ISSOCK
from typing import Any

from bt_bench.base.names import DeviceKind
from bt_bench.results import Condition, Gpu, Harm
from bt_bench.worker.machine.nvml import GpuSensors, nvml_session
from bt_bench.worker.machine.settings import CUDA_SETTINGS, HOST_SETTINGS, Setting

_MPS_FOLDER = "/tmp/nvidia-mps"  # where its clients look unless a variable names another one
_MOST_TOOLS_OF_PYTHON = 6
_LOOKS, _SECONDS_BETWEEN_LOOKS = 10, 0.3
_IDLE_PERCENT = 5  # of the time: what a desktop takes


@dataclass(frozen=True)
class _Tool:
    """A tool that looks at, or steps into, a process.

    Args:
        name: its name in reports.
        variables: pattern of the variables that it sets.
        libraries: pattern of names of libraries that it loads or preloads.
        effect: a clause on figures.
        harm: how much they suffer.
    """

    name: str
    variables: str = "(?!)"
    libraries: str = "(?!)"
    effect: str = "calls that it looks at take longer"
    harm: Harm = Harm.FALSE


_TOOLS = (
    _Tool(
        "compute-sanitizer",
        "NV_SANITIZER_INJECTION_|NV_COMPUTE_SANITIZER_",
        "libsanitizer-(collection|public)|libTreeLauncherTarget.*[Ss]anitizer",
        "kernels are instrumented and take many times longer",
    ),
    _Tool(
        "Nsight Compute",
        "NV_NSIGHT_INJECTION_|NV_COMPUTE_PROFILER_|NV_TPS_LAUNCH_",
        "libcuda-injection",
        "kernels run one by one, and may be repeated",
    ),
    _Tool(
        "Nsight Systems",
        "NSYS_PROFILING_SESSION_ID",
        "libToolsInjection|libnsys",
        "it takes CUDA's records, so the harness's profiler gets none, and launches take longer",
        Harm.PROFILER,
    ),
    _Tool("nvprof", "NVPROF_ID", "libcuinj64"),
    _Tool("VTune", "(?!)", "libittnotify_collector|libtpsstool"),
    _Tool("valgrind", "(?!)", "vgpreload_", "code runs on a simulated processor"),
    _Tool("rr", "(?!)", "librrpreload", "threads take turns on one core"),
    _Tool("memray", "(?!)", r"_memray\b|libmemray", "each allocation is recorded"),
    _Tool("heaptrack", "(?!)", "libheaptrack", "each allocation is recorded"),
    _Tool("scalene", "(?!)", "libscalene", "allocations are sampled, and code interrupted"),
    _Tool("gperftools' profiler", "(?!)", r"libprofiler\.so", "code is interrupted by a timer"),
    _Tool(
        "a sanitizer of the compiler",
        "(?!)",
        r"lib(a|hwa|l|m|t|ub)san\.so|libclang_rt\.\w*san",
        "host code is instrumented and takes longer",
    ),
)


def read_conditions(
    device: DeviceKind,
    gpus: Sequence[Gpu] = (),
    environ: Mapping[str, str] = os.environ,
    proc: Path = Path("/proc"),
) -> list[Condition]:
    """Return the settings and tools that change times in this process.

    Args:
        device: where kernels run; on the CPU, conditions of CUDA alone are left out.
        gpus: the GPUs that the process sees.
        environ: the process's environment.
        proc: the folder of the system's facts on processes.
    """
    found = [*_tools(device, environ, proc), *_debuggers(proc), *_python(environ)]
    found += _settings(HOST_SETTINGS, environ)
    if device == "cuda":
        found += [
            *_settings(CUDA_SETTINGS, environ),
            *_shares(environ, gpus),
            *_others(gpus, proc),
        ]
    return found


def _settings(settings: Mapping[str, Setting], environ: Mapping[str, str]) -> Iterator[Condition]:
    for name, setting in settings.items():
        value = environ.get(name)
        if value is not None and setting.counts(value):
            yield Condition(
                name=f"{name}={value}",
                effect=setting.effect,
                remedy="unset it",
                harm=setting.harm,
            )


def _tools(device: DeviceKind, environ: Mapping[str, str], proc: Path) -> Iterator[Condition]:
    injected = environ.get("CUDA_INJECTION64_PATH", "") if device == "cuda" else ""
    preloaded = [
        PurePath(path).name
        for variable in ("LD_PRELOAD", "LD_AUDIT")
        for path in re.split(r"[\s:]+", environ.get(variable, ""))
        if path
    ]
    libraries = [PurePath(injected).name, *preloaded, *_loaded(proc)]
    known = set()
    for tool in _TOOLS:
        ours = [name for name in libraries if re.search(tool.libraries, name)]
        theirs = [name for name in environ if re.match(tool.variables, name)]
        if device == "cpu":
            theirs = []  # they concern CUDA, which is not used
        known |= {*ours}
        if ours or theirs:
            yield Condition(
                name=f"{tool.name} is attached ({', '.join(sorted({*ours, *theirs})[:2])})",
                effect=tool.effect,
                remedy="run bt-bench without it",
                harm=tool.harm,
            )
    if injected and PurePath(injected).name not in known:
        yield Condition(
            name=f"CUDA_INJECTION64_PATH={injected}",
            effect="CUDA loads this tool, which may take its records and make launches longer",
            remedy="unset it",
            harm=Harm.PROFILER,
        )
    if others := [name for name in dict.fromkeys(preloaded) if name not in known]:
        yield Condition(
            name=f"preloaded: {', '.join(others)}",
            effect="functions of the system may be others",
            remedy="unset LD_PRELOAD and LD_AUDIT unless your engine has them, too",
            harm=Harm.NOTED,
        )


def _loaded(proc: Path) -> list[str]:
    """Return the names of the files that are mapped into this process."""
    names: dict[str, None] = {}
    for line in (_read(proc / "self/maps") or "").splitlines():
        path = line.partition("/")[2]
        if path:
            names[path.rpartition("/")[2]] = None
    return list(names)


def _debuggers(proc: Path) -> Iterator[Condition]:
    match = re.search(r"^TracerPid:\s*(\d+)", _read(proc / "self/status") or "", re.MULTILINE)
    if match is None or match[1] == "0":
        return
    name = (_read(proc / match[1] / "comm") or "a debugger").strip()
    yield Condition(
        name=f"{name} (process {match[1]}) traces this process",
        effect="it stops at system calls, signals or new threads",
        remedy="detach it",
        harm=Harm.FALSE,
    )


def _python(environ: Mapping[str, str]) -> Iterator[Condition]:
    """Yield the hooks and modes that make Python's own code slower than in an engine."""
    hooks = {"sys.settrace": sys.gettrace(), "sys.setprofile": sys.getprofile()}
    for what, hook in hooks.items():
        if hook is not None:
            module = getattr(hook, "__module__", None) or type(hook).__module__
            yield _slower(
                f"a function of {module} is set by {what}",
                "Python calls it again and again",
                "run bt-bench without that debugger, profiler or tool for coverage",
            )
    monitoring: Any = getattr(sys, "monitoring", None)  # since Python 3.12
    for number in range(_MOST_TOOLS_OF_PYTHON if monitoring else 0):
        name = monitoring.get_tool(number)
        if name is not None:
            yield _slower(
                f"{name} uses sys.monitoring", "Python calls it for events", "run without it"
            )
    if tracemalloc.is_tracing():
        yield _slower("tracemalloc is on", "each allocation is recorded", "unset PYTHONTRACEMALLOC")
    allocator = environ.get("PYTHONMALLOC", "")
    if sys.flags.dev_mode:
        yield _slower(
            "Python's development mode is on",
            "each allocation is checked",
            "unset PYTHONDEVMODE, and leave -X dev out",
        )
    elif allocator.endswith("debug"):
        yield _slower(f"PYTHONMALLOC={allocator}", "each allocation is checked", "unset it")
    if hasattr(sys, "gettotalrefcount"):
        yield _slower(
            "this Python is a debug build", "its own code is not optimized", "use another one"
        )
    if sys.flags.optimize:
        yield Condition(
            name=f"Python drops assertions (-{'O' * min(sys.flags.optimize, 2)})",
            effect="code that has some is faster than in an engine that keeps them, and checks "
            "that rest on them find nothing",
            remedy="unset PYTHONOPTIMIZE, and leave -O out, unless your engine runs so",
            harm=Harm.NOTED,
        )
    is_active = getattr(sys, "is_stack_trampoline_active", None)
    if is_active is not None and is_active():
        yield Condition(
            name="Python's support for perf is on",
            effect="each call of a function takes longer",
            remedy="unset PYTHONPERFSUPPORT",
            harm=Harm.NOTED,
        )


def _slower(name: str, effect: str, remedy: str) -> Condition:
    return Condition(
        name=name, effect=f"{effect}, so host times are longer", remedy=remedy, harm=Harm.FALSE
    )


def _shares(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> Iterator[Condition]:
    """Yield MPS and MIG: the GPU is a part of one, or others may use it at the same time."""
    folder = Path(environ.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS_FOLDER)
    if _is_pipe(folder / "control"):
        given = [n for n in sorted(environ) if n.startswith("CUDA_MPS_") and n in _MPS_SHARES]
        limits = f", with {', '.join(f'{n}={environ[n]}' for n in given)}" if given else ""
        yield Condition(
            name=f"MPS ({folder}){limits}",
            effect="other processes may use the GPU at the same time"
            + (", and this one gets a part of it" if given else ""),
            remedy="end its server (echo quit | nvidia-cuda-mps-control), or set "
            "CUDA_MPS_PIPE_DIRECTORY to an empty folder",
            harm=Harm.NOTED,
        )
    for gpu in gpus[:1]:
        if re.search(r"\bMIG\b", gpu.name):
            yield Condition(
                name=f"MIG ({gpu.name})",
                effect="this is a part of a GPU, whose power and clocks other parts share",
                remedy="leave the other parts idle, or compare with the same part alone",
                harm=Harm.NOTED,
            )


def _others(gpus: Sequence[Gpu], proc: Path) -> Iterator[Condition]:
    """Yield the processes that use the GPU besides this one and its siblings.

    Where processes are hidden, as in a container, nothing is known. A process that was killed may
    be listed for a moment, so a busy one is waited for.
    """
    for gpu in gpus[:1]:
        with nvml_session() as nvml:
            sensors = GpuSensors(nvml, gpu.uuid)
            for looks_left in reversed(range(_LOOKS)):
                others = _strangers(sensors.processes() or (), proc)
                busy = bool(others) and (sensors.busy_percent() or 0) > _IDLE_PERCENT
                if not (busy and looks_left):
                    break
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        if others:
            yield Condition(
                name=f"{', '.join(others)} on {gpu.name}",
                effect="another process has the GPU busy, and both wait for each other"
                if busy
                else "another process may use the GPU at the same time; it is idle now",
                remedy="end it, or choose another GPU by --device",
                harm=Harm.FALSE if busy else Harm.NOTED,
            )


def _strangers(pids: Iterable[int], proc: Path) -> list[str]:
    """Return processes as text, without this one and other workers of its parent."""
    found = []
    siblings = str(os.getppid()) if parent_process() is not None else None
    for pid in sorted(pids):
        stat = _read(proc / str(pid) / "stat")
        if stat is None or pid == os.getpid():
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if rest.split()[1] != siblings:
            found.append(f"process {pid} ({name})")
    return found


_MPS_SHARES = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_SM_PARTITION",
)


def _is_pipe(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return S_ISFIFO(mode) or S_ISSOCK(mode)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
