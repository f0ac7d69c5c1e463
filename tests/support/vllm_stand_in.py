"""A package with the interface of vLLM's block tables, written for these tests: plain torch.

It is built the way vLLM is: utilities that import much else, of which little is needed. `NEW` and
`OLD` have the signatures of a newer and of an older release.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

UTILITIES = """
import no_such_package_of_anybody
import torch
import vllm.envs as envs
from vllm.logger import init_logger
from vllm.utils.platform_utils import is_pin_memory_available

logger = init_logger(__name__)
raise RuntimeError("the file must not run as a whole")


def on_host(ids: list | torch.Tensor) -> torch.Tensor:
    assert not PINNED, "nothing can be pinned here"
    return as_tensor(ids)


def as_tensor(ids):
    return torch.tensor(ids, dtype=torch.int32)


PINNED = is_pin_memory_available()
"""

BUFFERS = """
from __future__ import annotations

import torch

from vllm.triton_utils import tl, triton
from vllm.utils.math_utils import divide
from vllm.utils.platform_utils import is_uva_available
from vllm.utils.torch_utils import get_accelerator_view_from_cpu_tensor, on_host


class Staged:
    def __init__(self, rows, width, device):
        self.gpu = torch.zeros(rows, width, dtype=torch.int32, device=device)
        self.writes = []

    def stage(self, row, start, ids):
        self.writes.append((row, start, list(ids)))

    def apply(self):
        for row, start, ids in self.writes:
            self.gpu[row, start : start + len(ids)] = on_host(ids)
        self.clear_staged_writes()

    def clear_staged_writes(self):
        self.writes = []


class Counts:
    def __init__(self, groups, rows):
        assert is_uva_available()
        self.cpu = torch.zeros(groups, rows, dtype=torch.int32, pin_memory=True)
        self.np = self.cpu.numpy()
        self.gpu = get_accelerator_view_from_cpu_tensor(self.cpu.clone())

    def copy_to_uva(self):
        torch.cuda.synchronize()
        self.gpu.copy_(self.cpu)
"""

TABLES = """
import torch

from vllm.utils.math_utils import divide
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.buffer_utils import Counts, Staged


class BlockTables:
    def __init__(
        self, block_sizes, max_num_reqs, max_num_batched_tokens, {widths}, device: torch.device
    ):
        rows, groups = max_num_reqs, len(block_sizes)
        self.block_sizes = block_sizes
        widths = {make_widths}
        self.block_tables = [Staged(rows, width, device) for width in widths]
        self.input_block_tables = [torch.zeros_like(table.gpu) for table in self.block_tables]
        self.num_blocks = Counts(groups, rows)
        self.slot_mappings = torch.zeros(
            groups, max_num_batched_tokens, dtype=torch.int64, device=device
        )
{dirty}
    def append_block_ids(self, req_index, new_block_ids, overwrite):
        for group, ids in enumerate(new_block_ids):
            start = 0 if overwrite else int(self.num_blocks.np[group, req_index])
            self.block_tables[group].stage(req_index, start, ids)
            self.num_blocks.np[group, req_index] = start + len(ids)

    def apply_staged_writes(self):
        for table in self.block_tables:
            table.apply()
        self.num_blocks.copy_to_uva()

    def gather_block_tables(self, idx_mapping{rows_padded}):
        for group, target in enumerate(self.input_block_tables):
            for place, row in enumerate(idx_mapping.tolist()):
                count = int(self.num_blocks.gpu[group, row])
                target[place, :count] = self.block_tables[group].gpu[row, :count]
{zero}
        return tuple(table[:{rows}] for table in self.input_block_tables)

    def get_dummy_block_tables(self, num_reqs):
{zero_dummies}
        return tuple(table[:num_reqs] for table in self.input_block_tables)

    def compute_slot_mappings(self, idx_mapping, query_start_loc, positions{tokens_padded}):
        starts, rows = query_start_loc.tolist(), idx_mapping.tolist()
        for group, size in enumerate(self.block_sizes):
            for row, first, end in zip(rows, starts, starts[1:]):
                at = positions[first:end]
                ids = self.block_tables[group].gpu[row][at // size]
                self.slot_mappings[group, first:end] = ids * size + at % size
        self.slot_mappings[:, {pad_from}:] = PAD_SLOT_ID
        return self.slot_mappings[:, :{tokens}]

    def get_dummy_slot_mappings(self, num_tokens):
        self.slot_mappings.fill_(PAD_SLOT_ID)
        return self.slot_mappings[:, :num_tokens]
"""

NEW = {
    "widths": "max_num_blocks_per_group",
    "make_widths": "max_num_blocks_per_group",
    "dirty": "        self._num_dirty_rows = 0\n",
    "rows_padded": ", num_reqs_padded",
    "zero": """\
            target[len(idx_mapping) : max(num_reqs_padded, self._num_dirty_rows)] = 0
        self._num_dirty_rows = len(idx_mapping)
""",
    "rows": "num_reqs_padded",
    "zero_dummies": """\
        for table in self.input_block_tables:
            table[: max(num_reqs, self._num_dirty_rows)] = 0
        self._num_dirty_rows = num_reqs
""",
    "tokens_padded": ", num_tokens_padded, verbose=False",
    "pad_from": "starts[-1]",
    "tokens": "num_tokens_padded",
}
OLD = {
    "widths": "max_model_len",
    "make_widths": "[divide(max_model_len, size) for size in block_sizes]",
    "dirty": "",
    "rows_padded": "",
    "zero": "",
    "rows": "len(idx_mapping)",
    "zero_dummies": "",
    "tokens_padded": "",
    "pad_from": "len(positions)",
    "tokens": "len(positions)",
}


def write_stand_in(
    root: Path, signatures: dict[str, str], release: str = "1.2.3", **changes: str
) -> Path:
    """Writes the package into a folder, as an unpacked wheel has it; returns the folder.

    Args:
        root: where to.
        signatures: `NEW` or `OLD`.
        release: what the wheel says of itself.
        changes: pieces of `signatures` to replace, for defects.
    """
    files = {
        "vllm/v1/worker/gpu/block_table.py": TABLES.format(**signatures | changes),
        "vllm/v1/worker/gpu/buffer_utils.py": BUFFERS,
        "vllm/utils/torch_utils.py": UTILITIES,
        "vllm/utils/math_utils.py": "def divide(a, b):\n    return -(-a // b)\n",
        f"vllm-{release}.dist-info/METADATA": f"Name: vllm\nVersion: {release}\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root
