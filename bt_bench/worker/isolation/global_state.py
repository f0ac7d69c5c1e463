"""State that all code of a process shares, and changes to it.

A gate measures two revisions in one process; a change that one makes to the whole process affects
the other. `GlobalState.now()` reads the state that Python code can change and that affects times;
`changes_since` names the differences. A revision that changes any of it is measured in a process of
its own. `docs/gate-statistics.md` has the list.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from bt_bench.base.processes import descendants_of
from bt_bench.variants import CACHES
from bt_bench.worker.isolation.module_readings import (
    MODULE,
    PLAIN,
    ModuleReading,
    read_modules,
    unlike,
)

_SHOWN = 4
# Environment variables with paths of modules and of cached binaries. Base and head each have their
# own, and no time depends on them.
_OF_ITS_WORLD = frozenset({"PYTHONPATH", "PWD", *CACHES})
_PATCHED = "patched modules"  # the area


@dataclass(frozen=True)
class GlobalState:
    """A reading of the state.

    Args:
        areas: values by area and name.
        modules: readings by module; they form one more area.
    """

    areas: Mapping[str, Mapping[str, object]]
    modules: Mapping[str, ModuleReading]

    @classmethod
    def now(
        cls,
        ignored: Collection[str] = (),
        *,
        areas: Collection[str] | None = None,
        known: GlobalState | None = None,
    ) -> GlobalState:
        """Read the current state.

        Args:
            ignored: environment variables that belong to a side, and may differ.
            areas: the areas to read besides the modules; `None`: all.
            known: an earlier reading; modules that have not changed since are not read again.
        """
        left_out = _OF_ITS_WORLD.union(ignored)
        readings: dict[str, Callable[[], Mapping[str, object]]] = {
            "the environment": lambda: {k: v for k, v in os.environ.items() if k not in left_out},
            "Python": lambda: _read(_PYTHON),
            "threads": lambda: {str(t.ident): t.name for t in threading.enumerate()},
            "child processes": lambda: {str(k): v for k, v in descendants_of(os.getpid()).items()},
            "torch": lambda: _read(_TORCH) if "torch" in sys.modules else {},
            "operators of torch": lambda: _operators() if "torch" in sys.modules else {},
            "the GPU's limits": lambda: _read(_DEVICE) if _has_context() else {},
            "Triton's knobs": lambda: dict(_knobs()),
        }
        return cls(
            {area: read() for area, read in readings.items() if areas is None or area in areas},
            read_modules({} if known is None else known.modules),
        )

    def changes_since(self, before: GlobalState) -> list[str]:
        """Return the differences, one text for each area with its names: `torch (num_threads)`."""
        found = []
        now = {**self.areas, _PATCHED: unlike(self.modules, before.modules)}
        then = {**before.areas, _PATCHED: unlike(before.modules, self.modules)}
        for area, values in now.items():
            known = then[area]
            names = [n for n in known if n not in values or not _same(known[n], values[n])]
            new = [name for name in values if name not in known]
            # A new name, such as a thread's, is a change. In these areas it usually is not: a
            # module may be loaded late, by whichever side needs it first.
            if area in (_PATCHED, "torch", "the GPU's limits", "Triton's knobs"):
                loaded = tuple(f"{n.removesuffix(MODULE)}." for n in new if n.endswith(MODULE))
                new = [name for name in new if _shadows(name) and not name.startswith(loaded)]
            names += new
            if names:
                if area in ("threads", "child processes"):
                    names = [str(values.get(name, known.get(name))) for name in names]
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                found.append(f"{area} ({', '.join(names[:_SHOWN])}{more})")
        return found


def _same(old: object, new: object) -> bool:
    return old is new or (type(old) is type(new) and old == new)


def _shadows(name: str) -> bool:
    """Return whether a new name in a module or a class may hide one that was found before.

    A class finds attributes in its bases, too, and a module finds functions in `builtins`.
    """
    return name.endswith("(added)") or hasattr(builtins, name.rpartition(".")[2])


def _read(readings: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, reading in readings.items():
        with suppress(Exception):  # this version does not have it
            found[name] = reading()
    return found


def _identities(values: Collection[object]) -> tuple[int, ...]:
    return tuple(map(id, values))


def _monitoring() -> object:
    tools = getattr(sys, "monitoring", None)
    return None if tools is None else tuple(map(tools.get_tool, range(6)))


_SIGNALS = sorted(signal.valid_signals())
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_PR_GET_TIMERSLACK = 30  # of linux/prctl.h

# Without the recursion limit: no time depends on it, and torch's compiler raises it at first use.
_PYTHON: dict[str, Callable[[], object]] = {
    "sys.settrace": sys.gettrace,
    "sys.setprofile": sys.getprofile,
    "sys.monitoring": _monitoring,
    "threading.setprofile": lambda: getattr(threading, "_profile_hook", None),
    "threading.settrace": lambda: getattr(threading, "_trace_hook", None),
    "sys.setswitchinterval": sys.getswitchinterval,
    "sys.flags": lambda: tuple(sys.flags),
    "sys.displayhook": lambda: id(sys.displayhook),
    "gc.set_threshold": gc.get_threshold,
    "gc.callbacks": lambda: _identities(gc.callbacks),
    "gc.set_debug": gc.get_debug,
    "gc.enable": gc.isenabled,
    "tracemalloc": lambda: "tracemalloc" in sys.modules and sys.modules["tracemalloc"].is_tracing(),
    "flushing of denormal numbers": lambda: sys.float_info.min / 2 == 0.0,
    "numpy.seterr": lambda: sorted(sys.modules["numpy"].geterr().items()),
    "timer slack": lambda: int(ctypes.CDLL(None).prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)),
    "signal handlers": lambda: tuple(map(signal.getsignal, _SIGNALS)),
    "interval timers": lambda: tuple(signal.getitimer(which)[1] for which in _TIMERS),
    "running interval timers": lambda: tuple(signal.getitimer(which)[0] > 0 for which in _TIMERS),
    "scheduling": lambda: (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)),
    "CPU affinity": lambda: tuple(sorted(os.sched_getaffinity(0))),
}


def _torch(path: str, *arguments: object) -> Callable[[], object]:
    def read() -> object:
        found: Any = sys.modules["torch"]
        for name in path.split("."):
            found = getattr(found, name)
        return found(*arguments) if callable(found) else found

    return read


# torch itself registers these when its compiler or `torch.distributed` is loaded; aten's are not
# among them.
_NAMESPACES_LOADED_LATE = frozenset(
    {
        *("quantized_decomposed", "prims", "streams", "symm_mem", "fsdp", "flex_lib", "inductor"),
        *("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d", "_dtensor"),
        *("onnx", "onnx_symbolic", "_inductor_test"),
    }
)


def _operators() -> dict[str, object]:
    """Return Python's registrations with torch's dispatcher, by name and dispatch key.

    Operators belong to the process: if two revisions register the same name, both run the last
    one.
    """
    library = sys.modules.get("torch.library")
    custom = sys.modules.get("torch._library.custom_ops")
    names: set[str] = set()
    for registered in ("_defs", "_impls"):
        names.update(getattr(library, registered, ()))
    names.update(f"{name} (custom)" for name in getattr(custom, "OPDEFS", {}))
    return {
        name: True
        for name in names
        if name.replace("::", "/").partition("/")[0] not in _NAMESPACES_LOADED_LATE
    }


def _stream() -> object:
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return 0, 0  # the initial values: a first use of CUDA is no change
    stream = torch.cuda.current_stream()
    return stream.cuda_stream, torch.cuda.current_device()


_TORCH: dict[str, Callable[[], object]] = {
    "num_threads": _torch("get_num_threads"),
    "num_interop_threads": _torch("get_num_interop_threads"),
    "default dtype": _torch("get_default_dtype"),
    "default device": lambda: str(_torch("get_default_device")()),
    "grad mode": _torch("is_grad_enabled"),
    "inference mode": _torch("is_inference_mode_enabled"),
    "autocast": _torch("is_autocast_enabled"),
    "anomaly mode": _torch("is_anomaly_enabled"),
    "deterministic algorithms": _torch("are_deterministic_algorithms_enabled"),
    "fill uninitialized memory": _torch("utils.deterministic.fill_uninitialized_memory"),
    "float32 matmul precision": _torch("get_float32_matmul_precision"),
    "TF32": _torch("backends.cuda.matmul.allow_tf32"),
    "cuDNN": lambda: (
        _torch("backends.cudnn.enabled")(),
        _torch("backends.cudnn.benchmark")(),
        _torch("backends.cudnn.deterministic")(),
    ),
    "sync debug mode": lambda: (
        _torch("cuda.get_sync_debug_mode")() if sys.modules["torch"].cuda.is_initialized() else 0
    ),
    "current stream and device": _stream,
    "dispatch modes": _torch("_C._len_torch_dispatch_stack"),
    "function modes": _torch("_C._len_torch_function_stack"),
}


def _has_context() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


# Numbers of `cudaLimit` in driver_types.h. One is the share of the L2 cache set aside for
# persisting lines, which takes lines away from all other code.
_LIMITS = {
    "cudaLimitStackSize": 0,
    "cudaLimitPrintfFifoSize": 1,
    "cudaLimitMallocHeapSize": 2,
    "cudaLimitMaxL2FetchGranularity": 5,
    "persisting L2": 6,
}


def _limit(number: int) -> object:
    torch = sys.modules["torch"]
    driver = ctypes.CDLL("libcuda.so.1")
    value = ctypes.c_size_t()
    # CUlimit has the numbers of cudaLimit.
    torch.cuda.current_stream()  # makes sure that the context is current
    if driver.cuCtxGetLimit(ctypes.byref(value), ctypes.c_int(number)):
        raise OSError("cuCtxGetLimit failed")
    return value.value


_DEVICE = {name: partial(_limit, number) for name, number in _LIMITS.items()}


def _knobs() -> Iterator[tuple[str, object]]:
    """Yield Triton's settings by name, with their hooks by identity."""
    knobs = sys.modules.get("triton.knobs")
    if knobs is None:
        return
    for group_name, group in list(vars(knobs).items()):
        if not isinstance(group, getattr(knobs, "base_knobs", ())):
            continue
        for name in dir(type(group)):
            # Each side has its own cache of binaries; the environment is an area of its own.
            if name.startswith("_") or group_name == "cache":
                continue
            with suppress(Exception):
                value = getattr(group, name)
                if not callable(getattr(type(group), name, None)) or name.endswith("hook"):
                    yield f"{group_name}.{name}", _frozen(value)


def _frozen(value: object) -> object:
    """Return a comparable form of a value: plain values as they are, containers by `repr`.

    Chains of hooks become the ids of their hooks; anything else becomes its own id.
    """
    if value is None or isinstance(value, PLAIN):
        return value
    calls = getattr(value, "calls", None)  # a chain of hooks
    if isinstance(calls, list):
        return _identities(calls)
    return repr(value) if isinstance(value, list | tuple | set | dict) else id(value)
