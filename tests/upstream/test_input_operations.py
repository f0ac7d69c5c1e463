"""`prepare_inputs` of vLLM 0.33.0 before and after the third patch, driven side by side.

The method and all that it calls are the release's own, in Triton's interpreter. Its object and the
scheduler's output are stand-ins.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from support.vllm_patches import apply, patches, sdist, wheel
from support.vllm_tree import copy_tree, imported_from
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import GridExecutor

from bt_bench.upstream.input_operations import INPUT_OPERATIONS

PAGE = Path(__file__).parents[2] / "docs/vllm.md"
MAX_REQS, MAX_TOKENS, MAX_LEN, DRAFTS = 5, 40, 32, 3
STATES = ("all_token_ids", "prefill_len", "num_computed_tokens")
NEW = ("idx_mapping", "expanded_idx_mapping", "logits_indices")
"""Names the tensors that must be new in each step."""

pytestmark = pytest.mark.timeout(600)


class Runner(SimpleNamespace):
    """Stands in for the model runner that `prepare_inputs` reads; both sides get equal states.

    Args:
        source: a copy of vLLM.
        seed: of the states.
        bonus: tokens that each step samples besides drafts; 0 for diffusion.
    """

    def __init__(self, source, seed, bonus=1):
        with imported_from(source):
            import vllm.v1.worker.gpu.model_runner as module
        rng = np.random.default_rng(seed)

        def drawn(*shape, dtype=torch.int32, below=1000):
            return torch.from_numpy(rng.integers(0, below, shape)).to(dtype)

        buffers = module.InputBuffers(MAX_REQS, MAX_TOKENS, torch.device("cpu"))
        for tensor in (buffers.positions, buffers.input_ids, buffers.seq_lens):
            tensor.fill_(-7)
        sizes = {"all_token_ids": (MAX_REQS, MAX_LEN)}
        states = {name: drawn(*sizes.get(name, (MAX_REQS,)), below=9) for name in STATES}
        super().__init__(
            module=module,
            device=torch.device("cpu"),
            max_num_reqs=MAX_REQS,
            decode_query_len=DRAFTS + 1,
            adaptive_verification=None,
            fast_prefill=None,
            pcp_manager=None,
            model_config=SimpleNamespace(rswa_window=4),
            model_state=SimpleNamespace(num_new_sampled_tokens_per_step=bonus),
            input_buffers=buffers,
            req_states=SimpleNamespace(
                **{name: SimpleNamespace(gpu=tensor) for name, tensor in states.items()},
                prompt_len=SimpleNamespace(gpu=drawn(MAX_REQS)),
                num_computed_tokens_np=states["num_computed_tokens"].numpy(),
                last_sampled_tokens=drawn(MAX_REQS, 1, dtype=torch.int64),
                draft_tokens=drawn(MAX_REQS, DRAFTS, dtype=torch.int64),
                next_prefill_tokens=drawn(2, MAX_REQS),
            ),
        )

    def prepare(self, step):
        """Make the step; return all outputs, as the fields of vLLM's `InputBatch`."""
        self.module.envs.VLLM_MOE_SKIP_PADDING = step.marks_padding
        self.adaptive_verification = Verification(self) if step.is_adaptive else None
        if step.computed is not None:
            self.req_states.num_computed_tokens.gpu.copy_(torch.from_numpy(step.computed))
        scheduled = SimpleNamespace(
            scheduled_spec_decode_tokens=step.state.num_draft_tokens_np is not None,
            has_structured_output_requests=False,
        )
        with torch.inference_mode():
            return self.module.GPUModelRunner.prepare_inputs(
                self, scheduled, step.state, step.sizes, 0
            )

    def buffers(self):
        """Return copies of all that a step may write, and of what it must not."""
        buffers = vars(self.input_buffers)
        tensors = {
            **{name: tensor for name, tensor in buffers.items() if _is_tensor(tensor)},
            "next": self.req_states.next_prefill_tokens,
            "sampled": self.req_states.last_sampled_tokens,
            "drafts": self.req_states.draft_tokens,
            **{name: getattr(self.req_states, name).gpu for name in STATES},
        }
        return {name: tensor.clone() for name, tensor in tensors.items()}


class Verification:
    """Stands in for adaptive verification, whose counts of logits are its own tensor."""

    def __init__(self, runner):
        self.runner = runner

    def compact_batch(self, drafts, scheduled, ends):
        self.ends = ends
        return scheduled, ends

    def reallocate_drafts(self, _, idx_mapping):
        starts = self.runner.input_buffers.query_start_loc.clone()
        ends = torch.tensor(self.ends)
        bonus = self.runner.model_state.num_new_sampled_tokens_per_step
        return ends, starts, int(ends[-1]) - bonus * len(idx_mapping), None


def _is_tensor(value):
    return isinstance(value, torch.Tensor)


def draw(rng, *, bonus=1):
    """Draw a step: decodes, prefill and drafts, with and without padding."""
    num_reqs = int(rng.integers(1, MAX_REQS + 1))
    drafts = None
    if rng.random() < 0.5:
        drafts = rng.integers(0, DRAFTS + 1, num_reqs).astype(np.int32)
    logits = bonus + (np.zeros(num_reqs, np.int32) if drafts is None else drafts)
    lengths = np.maximum(logits + rng.integers(0, 5, num_reqs), 1).astype(np.int32)
    num_tokens = int(lengths.sum())
    state = SimpleNamespace(
        num_tokens=num_tokens,
        req_ids=[str(number) for number in range(num_reqs)],
        num_scheduled_tokens=lengths,
        idx_mapping_np=rng.permutation(MAX_REQS)[:num_reqs].astype(np.intp),
        num_draft_tokens_np=drafts,
        has_prefill=bool(rng.random() < 0.6),
        **dict.fromkeys(
            (
                *("prefill_len_np", "num_computed_prefill_tokens_np", "is_prefilling_np"),
                *("prefill_runs_as_decode_np", "decode_graph_eligible", "max_seq_len_np"),
            )
        ),
    )
    sizes = SimpleNamespace(
        num_tokens=int(rng.choice([0, rng.integers(num_tokens, MAX_TOKENS + 1)])),
        num_reqs=rng.choice([None, int(rng.integers(num_reqs, MAX_REQS + 1))]),
    )
    return SimpleNamespace(
        state=state,
        sizes=sizes,
        marks_padding=bool(rng.random() < 0.8),
        is_adaptive=drafts is not None and rng.random() < 0.3,
        computed=rng.integers(0, 12, MAX_REQS).astype(np.int32),
    )


def outputs(batch):
    return {field.name: getattr(batch, field.name) for field in fields(batch)}


def assert_same(mine, other, context):
    assert mine.keys() == other.keys()
    for name, value in mine.items():
        expected = other[name]
        if _is_tensor(value):
            assert value.dtype == expected.dtype, (name, context)
            assert value.shape == expected.shape, (name, context)
            assert value.stride() == expected.stride(), (name, context)
            assert torch.equal(value, expected), (name, context)
        elif isinstance(value, np.ndarray):
            assert value.dtype == expected.dtype, (name, context)
            assert np.array_equal(value, expected), (name, context)
        else:
            assert value == expected, (name, context)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Make the third patch alone; return the copies before and after."""

    def make(source):
        folder = tmp_path_factory.mktemp("inputs")
        paths, _ = patches(source, folder / "patches")
        root = copy_tree(source, folder / "tree")
        (path,) = (path for path in paths if INPUT_OPERATIONS.name in path.name)
        apply(root, path)
        return source, root

    made = {}
    return lambda source: made.setdefault(source, make(source))


@pytest.mark.parametrize("bonus", [1, 0])
@pytest.mark.parametrize("find", [wheel, sdist], ids=["wheel", "source distribution"])
def test_steps_leave_the_same(both, find, bonus):
    seen = compare([Runner(root, 56, bonus) for root in both(find())], bonus, seed=56)
    assert len(seen) == 8


def compare(sides, bonus, seed):
    """Make random steps on both sides; return what kinds of steps there were."""
    constants = {"arange", "zeros"}
    rng, seen, kept = np.random.default_rng((seed, bonus)), set(), []
    for number in range(24):
        step = draw(rng, bonus=bonus)
        old, new = (outputs(side.prepare(step)) for side in sides)
        assert_same(new, old, number)
        before, after = (side.buffers() for side in sides)
        assert after.keys() - before.keys() == constants
        for name in constants:
            values = torch.arange(MAX_TOKENS) if name == "arange" else torch.zeros(MAX_REQS)
            assert torch.equal(after.pop(name), values.int())
        assert_same(after, before, number)
        # A reader of outputs that are new in each step may keep them over all steps.
        mine = {name: new[name] for name in (*NEW, "cu_num_logits", "expanded_local_pos")}
        kept.append((mine, {name: tensor.clone() for name, tensor in mine.items()}))
        seen.add((step.state.num_draft_tokens_np is None, step.state.has_prefill))
        seen.add(("padded", step.sizes.num_tokens > step.state.num_tokens))
        seen.add(("adaptive", step.is_adaptive))
    for tensors, copies in kept:
        assert_same(tensors, copies, "kept")
    for name in NEW:
        places = [mine[name].data_ptr() for mine, _ in kept if mine[name].numel()]
        assert len(set(places)) == len(places) > 1
    return seen


class Operations(TorchDispatchMode):
    """Lists the device operations of a step, as they would be on a GPU."""

    WRITES = ("arange", "zeros", "fill_", "zero_", "copy_", "ge")
    QUIET = ("empty", "slice", "view", "alias", "detach", "new_empty", "lift_fresh")
    """Views and allocations."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.overloadpacket.__name__
        result = function(*arguments, **(options or {}))
        if name in self.WRITES:
            # Nothing is launched for a tensor without elements.
            self.found += [name] * bool(result.numel())
        else:
            assert name in self.QUIET, f"{name}: neither a write nor a view that is known"
        return result

    def launched(self, call, name):
        """Return a function that counts as one operation, whatever it does inside."""

        def counted(*arguments, **options):
            self.found.append(name)
            with _disable_current_modes():
                return call(*arguments, **options)

        return counted


def operations(side, drafts, is_padded, has_prefill):
    rng = np.random.default_rng(56)
    step = draw(rng)
    step.marks_padding, step.is_adaptive = True, False
    step.computed = None
    step.state.num_draft_tokens_np = drafts
    step.state.num_scheduled_tokens = np.array([4, 4, 4], np.int32)
    step.state.idx_mapping_np = np.array([2, 0, 3])
    step.state.req_ids, step.state.num_tokens = list("abc"), 12
    step.state.has_prefill = has_prefill
    step.sizes = SimpleNamespace(num_tokens=16 if is_padded else 12, num_reqs=None)
    side.model_config.rswa_window = None  # its gather of prompt lengths is a model's own
    mode = Operations()
    copied = mode.launched(side.module.async_tensor_h2d, "copy from the host")
    with (
        patch.object(side.module, "async_tensor_h2d", copied),
        patch.object(GridExecutor, "__call__", _launch(mode)),
        mode,
    ):
        side.prepare(step)
    return mode.found


def _launch(mode):
    """Return a launch that counts."""
    call = GridExecutor.__call__
    return lambda kernel, *arguments, **options: mode.launched(
        lambda: call(kernel, *arguments, **options), "launch"
    )()


@pytest.mark.parametrize("has_prefill", [False, True])
@pytest.mark.parametrize(
    ("drafts", "is_padded", "counts"),
    [
        (None, True, (8, 5)),
        (None, False, (7, 5)),
        (np.array([3, 0, 1], np.int32), True, (8, 6)),
        (np.array([3, 0, 1], np.int32), False, (7, 6)),
    ],
)
def test_as_many_device_operations_as_stated(both, drafts, is_padded, counts, has_prefill):
    sides = [Runner(root, 56) for root in both(wheel())]
    found = [operations(side, drafts, is_padded, has_prefill) for side in sides]
    assert tuple(map(len, found)) == tuple(count + has_prefill for count in counts), found
    kind = "without drafts" if drafts is None else "with drafts"
    padding = "padded" if is_padded else "not padded"
    stated = f"{padding} +{counts[0]} -> {counts[1]}"
    assert re.search(rf"{kind}, .*\b(?<!not ){stated}", INPUT_OPERATIONS.measured)
    row = rf"\| {kind}, {padding}[^|]* \| {counts[0]} \| {counts[1]} \|"
    assert re.search(row, PAGE.read_text("utf-8"))
