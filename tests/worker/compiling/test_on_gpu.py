"""What is compiled without a GPU is what a GPU runs."""

from __future__ import annotations

import hashlib

import pytest

from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import stage
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.variants.catalogue import find_variants, load_apart
from bt_bench.worker.compiling.census import take_census
from bt_bench.worker.tasks.arm import Arm

pytestmark = pytest.mark.gpu


def run_all(spec, name, device):
    variant = load_apart(find_variants()[name])
    for case in spec.cases:
        workload = build_workload(case.parameters)
        arm = Arm(name, variant, workload, device)
        for step in inputs_on(device, workload):
            stage(arm.variant, step)
            arm.bind(ops.STEP, step)()


@pytest.mark.parametrize("name", ["baseline", "fused"])
def test_binaries_are_those_of_a_run(spec, device, monkeypatch, tmp_path, name):
    """Pointers of the CPU and of the GPU select the same binaries, registers included."""
    import torch
    from triton import knobs

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    compiled, loaded = [], []
    monkeypatch.setattr(
        knobs.runtime,
        "jit_post_compile_hook",
        lambda *_args, fn, **_kwargs: compiled.append(fn.jit_function),
    )
    run_all(spec, name, device)
    for function in {id(function): function for function in compiled}.values():
        if function.__name__ == "probe_kernel":  # proves pinned memory, once per process
            continue
        for kernels, *_ in function.device_caches.values():
            loaded += [
                (kernel.name, hashlib.sha256(kernel.asm["cubin"]).hexdigest()[:16], kernel.n_regs)
                for kernel in kernels.values()
            ]
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    (census,) = take_census(spec, [find_variants()[name]], [capability]).variants
    assert loaded
    assert {(k.name, k.binary, k.registers) for k in census.kernels} == set(loaded)
