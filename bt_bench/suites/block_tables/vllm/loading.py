"""Loader of vLLM's block tables, which runs their files as they are, under names of their own.

The rest of vLLM is neither imported nor needed. Names that the files import from it come from its
own files, function by function: all code of a step is of one release. Stand-ins replace names that
need compiled code or depend on the machine.
"""

from __future__ import annotations

import ast
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import torch

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.vllm.source import BLOCK_TABLE, INPUT_MODULES, VllmSource

_WHOLE = INPUT_MODULES


def load_block_tables(source: VllmSource) -> type[Any]:
    """Return the class `BlockTables` of a source; each call runs its files anew.

    Raises:
        UsageError: if the files do not parse or run, lack the class, or import an unknown name.
    """
    module = _Loader(source, interpreted=is_interpreted()).module(BLOCK_TABLE)
    found = getattr(module, "BlockTables", None)
    if not isinstance(found, type):
        raise UsageError(f"{source.path_of(BLOCK_TABLE)}: lacks a class 'BlockTables'")
    return found


def load_names(source: VllmSource, *names: tuple[str, str]) -> list[Any]:
    """Return objects of vLLM's modules; each call runs the files anew, once for all names.

    Args:
        source: the files.
        names: of each object its module and its name there.

    Raises:
        UsageError: if the files do not parse or run, or lack a name.
    """
    loader = _Loader(source, interpreted=is_interpreted())
    return [loader.imported(module, name) for module, name in names]


def is_interpreted() -> bool:
    """Return whether kernels run on the CPU; known before anything imports Triton."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def _stand_ins(*, interpreted: bool) -> dict[tuple[str, str], Any]:
    """Return the stand-ins for names of vLLM's modules."""
    import triton

    view = (lambda tensor: tensor) if interpreted else device_view
    return {
        ("vllm.triton_utils", "triton"): triton,
        ("vllm.triton_utils", "tl"): triton.language,
        ("vllm.logger", "init_logger"): logging.getLogger,
        ("vllm.utils", "random_uuid"): lambda: "",  # names requests of dummy batches
        ("vllm.utils.platform_utils", "is_uva_available"): lambda: True,
        ("vllm.utils.platform_utils", "is_pin_memory_available"): lambda: not interpreted,
        ("vllm.utils.torch_utils", "get_accelerator_view_from_cpu_tensor"): view,
        ("vllm.v1.attention.backends.utils", "PAD_SLOT_ID"): -1,
    }


def device_view(pinned: torch.Tensor) -> torch.Tensor:
    """Return a CUDA tensor over pinned host memory, which kernels read in place.

    vLLM has a compiled operation for this. The address is the same on host and device. Tables
    without groups have no elements, hence no address.

    Raises:
        RuntimeError: if torch makes a copy instead.
    """
    if not pinned.numel():
        return torch.empty(pinned.shape, dtype=pinned.dtype, device="cuda")
    array = pinned.numpy()  # keeps the memory
    owner = SimpleNamespace(__cuda_array_interface__=array.__array_interface__, array=array)
    view = torch.as_tensor(owner)
    if not view.is_cuda or view.data_ptr() != pinned.data_ptr():
        raise RuntimeError(f"torch made a copy of pinned memory, on {view.device}, and not a view")
    return view


class _UnpinnedTorch:
    """`torch` without pinned memory, and with nothing to synchronize with."""

    cuda = SimpleNamespace(synchronize=lambda: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def zeros(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        """Return zeros in ordinary memory."""
        return torch.zeros(*args, **kwargs)


class _Loader:
    """Modules of one source, each run once."""

    def __init__(self, source: VllmSource, *, interpreted: bool) -> None:
        self._source = source
        self._interpreted = interpreted
        self._stand_ins = _stand_ins(interpreted=interpreted)
        self._modules: dict[str, ModuleType] = {}

    def module(self, name: str) -> ModuleType:
        """Return the module of one of the files that run whole."""
        if name not in self._modules:
            tree = self._parse(name)
            self._modules[name] = self._run(name, tree.body)
        return self._modules[name]

    def imported(self, module: str, name: str) -> Any:
        """Return the object that `from module import name` gives one of the files."""
        if (module, name) in self._stand_ins:
            return self._stand_ins[module, name]
        found = None
        if module in _WHOLE:
            found = self.module(module)
        elif self._source.path_of(module).is_file():
            found = self._run(module, _needed(self._parse(module).body, name))
        if not hasattr(found, name):
            raise UsageError(
                f"vLLM {self._source.release} in {self._source.root} needs {name!r} of {module}, "
                "which is not there; unpack the whole wheel, or use a release that bt-bench knows "
                "(docs/vllm.md)"
            )
        return getattr(found, name)

    def _parse(self, module: str) -> ast.Module:
        path = self._source.path_of(module)
        try:
            return ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"{path}: does not parse: {error}") from error

    def _run(self, module: str, statements: Iterable[ast.stmt]) -> ModuleType:
        """Run statements of a file, with their imports from vLLM provided; return the module."""
        # Not in `sys.modules`: an installed vLLM stays as it is, and every load is a copy.
        made = ModuleType(f"bt_bench_{module}")
        made.__file__ = str(self._source.path_of(module))
        rest = []
        for statement in statements:
            names = dict(_imports_of_vllm(statement))
            if names:
                for bound, (origin, name) in names.items():
                    setattr(made, bound, self.imported(origin, name))
            else:
                rest.append(statement)
        code: CodeType = compile(
            ast.Module(rest, []), str(made.__file__), "exec", dont_inherit=True
        )
        # While it runs, `dataclass` looks its module up there.
        sys.modules[made.__name__] = made
        try:
            exec(code, made.__dict__)
        except Exception as error:
            raise UsageError(
                f"{made.__file__}: does not run: {type(error).__name__}: {error}"
            ) from error
        finally:
            del sys.modules[made.__name__]
        if self._interpreted and hasattr(made, "torch"):
            made.torch = _UnpinnedTorch()  # type: ignore[attr-defined]
        return made


def _imports_of_vllm(statement: ast.stmt) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the names that a statement imports from vLLM, with their modules and names there."""
    if not isinstance(statement, ast.ImportFrom) or statement.module is None:
        return
    if statement.module.partition(".")[0] == "vllm":
        for alias in statement.names:
            yield alias.asname or alias.name, (statement.module, alias.name)


def _needed(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the statements that define a name, and all that these need, in file order."""
    definitions: Mapping[str, ast.stmt] = {
        bound: statement for statement in statements for bound in _bound_by(statement)
    }
    wanted, found = [name], set()
    while wanted:
        statement = definitions.get(wanted.pop())
        if statement is None or statement in found:
            continue
        found.add(statement)
        wanted += [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)]
    return [statement for statement in statements if statement in found]


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement of the kinds that occur defines."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
