"""`bt-bench replay`: an engine's recorded calls on variants, beside the reference."""

from __future__ import annotations

import pytest
from support.commands import run, run_apart
from support.recorded import record
from support.refusals import refused

from bt_kernels.engines.recordings import Difference, Frame

WRONG = '''\
"""Maps the fourth token of a batch to another slot."""

from bt_kernels.fusions import FusedGatherSlots


class Variant(FusedGatherSlots):
    """Wrong in one of two ways to make the calls."""

    def prepare_step(self, *batch, **options):
        tables, slots = super().prepare_step(*batch, **options)
        if slots.shape[1] > 3:
            self.slot_mappings[1, 3] += 2
        return tables, slots
'''
PLAIN = '''\
"""Knows no sliding windows."""

from bt_kernels.fusions import FusedGatherSlots
from bt_kernels.layout import FEATURES, SLIDING_WINDOW


class Variant(FusedGatherSlots):
    """As fused, without windows."""

    features = FEATURES - {SLIDING_WINDOW}
'''
DYING = '''\
"""Ends its process."""

import os

from bt_kernels.fusions import FusedGatherSlots


class Variant(FusedGatherSlots):
    """Ends in its first gather."""

    def gather_block_tables(self, *batch, **options):
        os._exit(3)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    frame = Frame()
    frame.difference(Difference(24, "compute_slot_mappings", "slot_mappings", (0, 3), 5, 7))
    with record(folder, 24).path.open("ab") as file:
        file.write(frame.take())
    for name, text in (("wrong", WRONG), ("plain", PLAIN), ("dying", DYING)):
        (folder / "mine").mkdir(exist_ok=True)
        (folder / "mine" / f"{name}.py").write_text(text)
    return folder


def test_variants_are_compared_with_the_reference(folder):
    mine = ("--kernels", folder / "mine", "--variants", "fused,wrong,plain")
    outcome = run("replay", folder / "traffic.btrec", "--steps", "3", *mine)
    assert outcome.code == 5
    first, equal, failed, reason, call, skipped, last = outcome.out.splitlines()
    assert first.startswith(f"{folder}/traffic.btrec: 24 steps of vLLM 0.33.0, 3 groups; ")
    assert first.endswith(
        "shadow mode found a difference in its step 24, after compute_slot_mappings: "
        "slot_mappings[0, 3] is 5 in bt_kernels, and 7 in vLLM"
    )
    assert equal.startswith("ok      fused · 3 steps, ")
    assert failed.startswith("FAILED  wrong · step ")
    assert failed.endswith(", one call for apply, gather and slots")
    assert reason.startswith("        wrong_result: slot_mappings[1, 3] is ")
    assert call.startswith("        after prepare_step(rows=[")
    assert skipped == "skipped plain · unsupported: lacks sliding_window"
    assert last == "1 equal, 1 failed, 1 skipped, on cpu"


def test_the_document_has_the_place_and_both_values(folder):
    mine = ("--kernels", folder / "mine", "--variants", "wrong,plain", "--at", "2", "--steps", "2")
    document = run("replay", folder / "traffic.btrec", *mine, "--json").json()
    wrong, plain = document["variants"]
    assert document["schema_version"] == 1
    assert (document["device"], document["first_step"], document["steps"]) == ("cpu", 2, 2)
    assert document["recording"]["steps"] == 24
    assert (wrong["status"], wrong["reason"]["code"]) == ("failed", "wrong_result")
    found = wrong["difference"]
    assert found["step"] in (2, 3)
    assert (found["buffer"], found["place"]) == ("slot_mappings", [1, 3])
    assert found["found"] == found["expected"] + 2
    assert (plain["status"], plain["steps"], plain["difference"]) == ("skipped", 0, None)


@pytest.mark.slow
def test_a_variant_that_ends_its_process_fails_alone(folder):
    mine = ("--kernels", folder / "mine", "--variants", "dying,fused", "--steps", "4")
    outcome = run_apart("replay", folder / "traffic.btrec", *mine)
    assert outcome.code == 5
    assert "FAILED  dying · step " in outcome.out
    assert "crashed: " in outcome.out
    assert "ok      fused · 4 steps" in outcome.out


def test_bad_files_and_numbers_are_refused(folder):
    path = folder / "traffic.btrec"
    assert "has 24 steps; expected a number below that" in refused("replay", path, "--at", "24")
    damaged = folder / "damaged.btrec"
    damaged.write_bytes(path.read_bytes()[:-40] + bytes(40))
    assert "the checksum of a frame is" in refused("replay", damaged)
    assert "cannot be read: No such file" in refused("replay", folder / "nowhere")
    assert "unknown variant 'fuzed'; did you mean 'fused'?" in refused(
        "replay", path, "--variants", "fuzed"
    )
