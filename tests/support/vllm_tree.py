"""vLLM's own modules of the model runner, imported from a folder, with stand-ins for the rest.

Modules below `_REAL` run as they are, in Triton's interpreter. Any other module of vLLM is a
stand-in, whose names are mocks, but for those in `_stand_ins`. As a plugin of pytest (`-p
support.vllm_tree`, in a process of its own) it runs vLLM's own tests on the CPU.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest
import torch
import triton
from triton.runtime.interpreter import InterpreterBuilder

ROOT = "TEST_VLLM_TREE"
GPU = "vllm/v1/worker/gpu"
_REAL = re.compile(
    r"vllm\.v1\.worker\.gpu\."
    r"(block_table|buffer_utils|input_batch|model_runner|states|sample(\..*)?)$"
)
_TESTS = ("test_gpu_block_table.py", "test_gpu_sampler_flags.py", "test_gpu_model_runner_v2.py")

OTHERS = {
    "test_v1_block_table_move_row_clears_vacated_row": "of another class, of vLLM's first runner",
    "test_larger_draft_batch_uses_null_kpool_slots": "of a kernel that reads the tables",
}
"""Tests of the files that are not of the modules here."""


def copy_tree(source: Path, target: Path) -> Path:
    """Copy the files that the patches change, and those that tests of them import."""
    shutil.copytree(source / GPU, target / GPU)
    shutil.copy(source / "vllm/_version.py", target / "vllm")
    (target / "vllm/utils").mkdir()
    for name in ("torch_utils.py", "math_utils.py"):
        shutil.copy(source / "vllm/utils" / name, target / "vllm/utils")
    if (source / "tests").is_dir():
        (target / "tests/v1/worker").mkdir(parents=True)
        for name in _TESTS:
            shutil.copy(source / "tests/v1/worker" / name, target / "tests/v1/worker")
    return target


class SamplingParams(SimpleNamespace):
    """The parameters that the sampler's states read, with vLLM's defaults."""

    def __init__(self, _bad_words_token_ids=None, **given):
        names = (
            *("thinking_token_budget", "seed", "logprobs", "logit_bias", "allowed_token_ids"),
            *("structured_outputs", "logprob_token_ids", "trace_decode_token_ids"),
        )
        numbers = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "min_tokens": 0}
        penalties = {
            "repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0
        }  # fmt: skip
        super().__init__(
            **dict.fromkeys(names) | numbers | penalties | given,
            bad_words_token_ids=_bad_words_token_ids,
            all_stop_token_ids=set(),
        )

    @staticmethod
    def for_sampler_warmup():
        return SamplingParams(temperature=0.9, logit_bias={1: 1.0}, _bad_words_token_ids=[[1]])


def _to_device(data, device=None, dtype=None, out=None):
    """Copy anything to a new tensor or to `out`, as vLLM's `async_tensor_h2d`."""
    if out is not None:
        return out.copy_(torch.as_tensor(data))
    return torch.tensor(data, dtype=dtype, device=device)


def _stand_ins() -> dict[str, dict[str, object]]:
    return {
        "vllm.triton_utils": {"triton": triton, "tl": triton.language, "HAS_TRITON": True},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cuda=lambda: True)},
        "vllm.utils.platform_utils": {"is_uva_available": lambda: True},
        "vllm.utils.math_utils": {"cdiv": triton.cdiv},
        "vllm.utils.torch_utils": {
            "async_tensor_h2d": _to_device,
            "get_accelerator_view_from_cpu_tensor": lambda tensor: tensor,
        },
        "vllm.v1.attention.backends.utils": {"PAD_SLOT_ID": -1},
        "vllm.v1.worker.lora_model_runner_mixin": {"LoRAModelRunnerMixin": object},
        "vllm.sampling_params": {"SamplingParams": SamplingParams, "MAX_LOGPROB_TOKEN_IDS": 8},
        "vllm.envs": {
            "VLLM_COMPUTE_NANS_IN_LOGITS": False,
            "VLLM_MAX_NUM_BAD_WORDS": 8,
            "VLLM_MAX_BAD_WORDS_TOTAL_TOKENS": 32,
            "VLLM_MOE_SKIP_PADDING": True,
        },
    }


class _StandIn(ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds all modules of vLLM."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = _stand_ins()

    def find_spec(self, name, path=None, target=None):
        if not _is_vllm(name):
            return None
        if _REAL.match(name):
            place = self._root.joinpath(*name.split("."))
            if place.is_dir():
                return importlib.util.spec_from_file_location(
                    name, place / "__init__.py", submodule_search_locations=[str(place)]
                )
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        vars(module).update(self._names.get(module.__name__, {}))


def _spreading_bools(spread):
    """Return a method of Triton's interpreter that spreads a flag as a mask.

    Its own makes int32 of a flag, and then refuses it as a mask.
    """

    def create_splat(builder, kind, value):
        made = spread(builder, kind, value)
        if value.data.dtype == bool:
            made.data = made.data.astype(bool)
        return made

    return create_splat


def _without_pinning(zeros):
    return lambda *sizes, pin_memory=False, **options: zeros(*sizes, **options)


@contextmanager
def imported_from(root: Path) -> Iterator[None]:
    """Let modules of vLLM be imported from a folder, and then forget them."""
    kept = {name: module for name, module in sys.modules.items() if _is_vllm(name)}
    finder = Finder(root)
    with (
        patch.object(torch, "zeros", _without_pinning(torch.zeros)),
        patch.object(torch.accelerator, "synchronize", lambda *_: None),
        patch.object(sys, "dont_write_bytecode", True),  # the folder is the user's
        patch.object(
            InterpreterBuilder, "create_splat", _spreading_bools(InterpreterBuilder.create_splat)
        ),
    ):
        for name in kept:
            del sys.modules[name]
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in filter(_is_vllm, list(sys.modules)):
                del sys.modules[name]
            sys.modules.update(kept)


def _is_vllm(name: str) -> bool:
    return name.partition(".")[0] == "vllm"


class _OnCpu(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.copy_location(ast.Constant("cpu"), node) if node.value == "cuda" else node


class _Tests(pytest.Module):
    """A file whose tests are on the CPU."""

    def _getobj(self):
        tree = ast.fix_missing_locations(_OnCpu().visit(ast.parse(self.path.read_bytes())))
        module = ModuleType(self.path.stem)
        module.__file__ = str(self.path)
        with patch("torch.cuda.is_available", lambda: True):
            exec(compile(tree, str(self.path), "exec"), vars(module))
        return module


def pytest_configure(config):
    context = imported_from(Path(os.environ[ROOT]))
    context.__enter__()
    config.add_cleanup(lambda: context.__exit__(None, None, None))


def pytest_pycollect_makemodule(module_path, parent):
    return _Tests.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    for item in items:
        reason = OTHERS.get(item.originalname)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
