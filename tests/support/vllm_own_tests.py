"""A plugin of pytest under which vLLM's own tests of its `BlockTables` are tests of ours.

It is loaded into a process of its own (`tests/kernels/engines/test_vllm_own_tests.py`), with
stand-ins for the modules that these tests import. They are written for `cuda`; under Triton's
interpreter that word stands for the CPU. `TEST_VLLM_RELEASE` is the release that they are from.
"""

from __future__ import annotations

import ast
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from bt_kernels import PAD_SLOT_ID, BlockTables
from bt_kernels.engines.plugin.older import OlderTables
from bt_kernels.engines.plugin.releases import RELEASES
from bt_kernels.launches import COMPILES

RELEASE = RELEASES[os.environ.get("TEST_VLLM_RELEASE", "0.33.0")]
FILE = "tests/v1/worker/test_gpu_block_table.py"

OTHERS = {
    "test_v1_block_table_move_row_clears_vacated_row": "of another class, of vLLM's first runner",
    "test_larger_draft_batch_uses_null_kpool_slots": "of a kernel of vLLM's that reads our tables",
    "test_dcp_slot_mapping_with_smaller_kernel_blocks": "of tables that the plugin leaves to "
    "vLLM's class: the interleave does not divide a kernel's block",
}
"""Tests of the file that are not of this class, or of tables that ours refuses."""

_PRIVATE = (
    "_staged_write_indices",
    "_staged_write_starts",
    "_staged_write_contents",
    "_staged_write_cu_lens",
)


class Tables(BlockTables if RELEASE.is_as_ours else OlderTables):
    """Ours, with the private lists of staged writes that one of the tests looks at."""

    def __init__(self, *arguments, **options):
        if not RELEASE.is_as_ours:
            arguments = (RELEASE, *arguments)
        super().__init__(*arguments, **options)
        self.show_staged()

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        super().append_block_ids(req_index, new_block_ids, overwrite)
        self.show_staged()

    def apply_staged_writes(self):
        super().apply_staged_writes()
        self.show_staged()

    def show_staged(self):
        staged = self._variant._staged.intervals()
        for group, table in enumerate(self.block_tables):
            intervals = [each for each in staged if each[0] == group]
            for name in _PRIVATE:
                setattr(table, name, intervals)
            table._staged_write_max_len = max((len(ids) for *_, ids in intervals), default=0)


class _OnCpu(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.copy_location(ast.Constant("cpu"), node) if node.value == "cuda" else node


class _Tests(pytest.Module):
    """The file, whose tests are on the device that there is."""

    def _getobj(self):
        tree = ast.parse(self.path.read_bytes(), str(self.path))
        if not COMPILES:
            tree = ast.fix_missing_locations(_OnCpu().visit(tree))
        module = ModuleType(self.path.stem)
        module.__file__ = str(self.path)
        exec(compile(tree, str(self.path), "exec"), vars(module))
        return module


def pytest_pycollect_makemodule(module_path, parent):
    return _Tests.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    for item in items:
        reason = OTHERS.get(item.originalname)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure():
    stand_ins = {
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cuda=lambda: True)},
        "vllm.v1.attention.backends.utils": {"PAD_SLOT_ID": PAD_SLOT_ID},
        "vllm.v1.worker.gpu.block_table": {"BlockTables": Tables},
    }
    for name, contents in stand_ins.items():
        module = sys.modules[name] = ModuleType(name)
        vars(module).update(contents)
    if not COMPILES:
        torch.accelerator.synchronize = lambda *_: None
