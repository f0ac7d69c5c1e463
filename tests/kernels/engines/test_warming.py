"""vLLM's registry of kernels compiles those of our tables, by their own `warmup`."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bt_kernels import BlockTables
from bt_kernels.engines import register_warmup

FOLDERS = [Path(folder) for folder in os.environ["TEST_VLLM_SOURCE"].split(os.pathsep) if folder]
REGISTRY = "vllm.model_executor.warmup.jit_warmup"
FILES = [
    path
    for folder in FOLDERS
    if (path := folder.joinpath(*REGISTRY.split(".")).with_suffix(".py")).is_file()
]


class VllmJitKernel(ABC):
    """As vLLM's, as far as a registry sees it."""

    def __init__(self):
        self.made = True

    @abstractmethod
    def get_warmup_keys(self): ...

    @abstractmethod
    def compile(self, key): ...

    def compile_many(self, keys):
        for key in keys:
            self.compile(key)

    def register_warmup(self):
        JitWarmupRegistry.active.kernels[self] = None


class JitWarmupRegistry:
    """Collects kernels while it is active, and compiles each of their keys once."""

    active = None

    def __init__(self):
        self.kernels = {}

    @contextmanager
    def activate(self):
        JitWarmupRegistry.active = self
        try:
            yield
        finally:
            JitWarmupRegistry.active = None

    def warmup(self):
        for kernel in self.kernels:
            assert kernel.made
            keys = dict.fromkeys(kernel.get_warmup_keys())
            if keys:
                kernel.compile_many(keys)


def from_wheel(monkeypatch):
    """The registry of an unpacked wheel, with stand-ins for what it imports when it compiles."""
    if not FILES:
        pytest.skip(
            "needs an unpacked wheel of vLLM with a registry of kernels, as of 0.33.0: "
            "BT_BENCH_VLLM_SOURCE=DIR (docs/vllm.md)"
        )
    spec = spec_from_file_location(REGISTRY, FILES[0])
    module = module_from_spec(spec)
    progress = SimpleNamespace(set_postfix_str=lambda *_, **__: None, update=lambda: None)
    helper = {
        "VllmTritonJitKernel": type("VllmTritonJitKernel", (), {}),
        "compile_triton_warmup": None,
    }
    for name, contents in {
        "tqdm": {"tqdm": lambda **_: nullcontext(progress)},
        "vllm.distributed": {"is_global_first_rank": lambda: True},
        "vllm.model_executor.warmup.jit_warmup_triton_helper": helper,
    }.items():
        made = ModuleType(name)
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setitem(sys.modules, REGISTRY, module)
    spec.loader.exec_module(module)
    return module.JitWarmupRegistry(SimpleNamespace())


@pytest.fixture(params=["stand-in", "vLLM's"])
def registry(request, monkeypatch):
    return JitWarmupRegistry() if request.param == "stand-in" else from_wheel(monkeypatch)


@pytest.fixture
def warmed(monkeypatch):
    """Tables whose kernels were compiled."""
    found = []
    monkeypatch.setattr(BlockTables, "warmup", lambda tables: found.append(tables.layout))
    return found


def made(device, rows=4):
    return BlockTables([16], rows, 16, [8], device)


def test_a_registry_compiles_the_kernels_of_all_registered_tables(registry, warmed, device):
    tables = [made(device, rows) for rows in (4, 5)]
    for each in tables:
        assert register_warmup(each, registry)
    assert warmed == []
    registry.warmup()
    assert warmed == [each.layout for each in tables]


def test_to_register_twice_compiles_once(registry, warmed, device):
    tables = made(device)
    assert [register_warmup(tables, registry) for _ in range(3)] == [True] * 3
    registry.warmup()
    assert warmed == [tables.layout]


def test_a_registry_does_not_keep_tables(registry, warmed, device):
    tables = made(device)
    register_warmup(tables, registry)
    del tables
    gc.collect()
    registry.warmup()
    assert warmed == []


def test_it_really_compiles(registry, device):
    tables = made(device)
    register_warmup(tables, registry)
    registry.warmup()


@pytest.mark.parametrize("registry", [None, object()])
def test_without_a_registry_nothing_is_registered(registry, device):
    assert not register_warmup(made(device), registry)


def test_vllm_is_not_imported():
    code = (
        "import gc, sys, bt_kernels.engines as engines\n"
        "gc.freeze()\n"  # or the process would look at all of torch when it ends
        "tables = engines.BlockTables([16], 4, 16, [8], 'cpu')\n"
        "assert not engines.register_warmup(tables, None)\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'vllm']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
