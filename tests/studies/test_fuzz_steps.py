"""The fuzz of steps finds nothing where all is right, and what is wrong where it is planted."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import ClassVar

import numpy as np
import pytest
import torch
from fuzz import processes
from fuzz.draw import INTERPRETED, layout_of
from fuzz.session import Session
from support.quick_triton import QuickKernels
from support.variants import classes

from bt_kernels.one_launch import carrying, fixed

ONE_LAUNCH = classes(["one_launch"])["one_launch"]


@pytest.fixture(autouse=True)
def quick_kernels(monkeypatch):
    """Run kernels in numpy, not in Triton's interpreter, which takes fifty times as long."""
    kernels = QuickKernels()
    monkeypatch.setattr(carrying, "one_launch_carrying_kernel", kernels.carrying)
    monkeypatch.setattr(fixed, "one_launch_captured_kernel", kernels.captured)


def differences(variant, seed, num_steps=8):
    rng = np.random.default_rng(seed)
    session = Session(variant, layout_of(rng, INTERPRETED), torch.device("cpu"), rng)
    return list(session.play(num_steps)), session


def test_right_tables_do_not_differ():
    kinds = set()
    for seed in range(6):
        found, session = differences(ONE_LAUNCH, seed)
        assert found == []
        kinds |= {name for name in session.seen if name.startswith("kind: ")}
    assert {"kind: whole step", "kind: replayed step"} <= kinds


class LosesASlot(ONE_LAUNCH):
    def prepare_step(self, *arguments, **options):
        found = super().prepare_step(*arguments, **options)
        self.slot_mappings[-1, -1] += 1
        return found


class LosesAnId(ONE_LAUNCH):
    def prepare_step(self, *arguments, **options):
        found = super().prepare_step(*arguments, **options)
        self.block_tables[0][-1, -1] += 1
        return found


class LosesAReplay(ONE_LAUNCH):
    def _launch_captured(self, *arguments):
        found = super()._launch_captured(*arguments)
        self.input_block_tables[0][0, 0] += 1
        return found


@pytest.mark.parametrize(
    ("variant", "buffer"),
    [
        (LosesASlot, "slot_mappings"),
        (LosesAnId, "block_tables[0]"),
        (LosesAReplay, "input_block_tables[0]"),
    ],
)
def test_one_wrong_element_is_found(variant, buffer):
    found = [each for seed in range(3) for each in differences(variant, seed)[0]]
    assert buffer in {each.buffer for each in found}
    assert all(each.count >= 1 and each.found != each.expected for each in found)


def test_an_interrupted_study_keeps_what_was_played(monkeypatch):
    class Pool:
        """Plays at once, and is interrupted while it waits for the second batch."""

        _processes: ClassVar = {}

        def __init__(self, *_options):
            pass

        def submit(self, play, *arguments):
            found = Future()
            found.set_result(play(*arguments))
            return found

        def shutdown(self, cancel_futures):
            assert cancel_futures

    def interrupted(futures):
        yield futures[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(processes, "as_completed", interrupted)
    found = processes.play_all(
        lambda batch: ("cpu", Counter({"step: any": len(batch)}), []),
        [[0, 1], [2]],
        processes=2,
        step="step: ",
    )
    assert (found["steps"], found["failures"]) == (2, ["interrupted after 1 of 2 layouts"])
