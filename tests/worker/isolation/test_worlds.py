"""Several revisions in one process: each has its own modules, paths and caches, and no other's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.processes import forked_programs
from support.repositories import commit, git
from support.sides import write_sides

SUPPORT = Path(__file__).parents[2]

# What a worker does for a gate; each arm is asked three times, in turns.
WORKER = """\
import json, sys
from pathlib import Path
from bt_bench.base.errors import UsageError
from bt_bench.variants.catalogue import VariantEntry
from bt_bench.variants.isolation import Isolation
from bt_bench.results.run.plan import Plan
from bt_bench.worker.machine import activity
from bt_bench.worker.process.main import set_up
from bt_bench.worker.tasks.messages import ArmSetup, WorkerSetup

top = Path(sys.argv[1])
SIDES = {"base": "base", "head": "head", "control": "base"}

def arm(side):
    tree = SIDES[side]
    other = {"base": "head", "head": "base"}[tree]
    isolation = Isolation(
        tree, top / tree, ((other, top / other),), top / "head", top / f"caches-{side}",
        path=(), package="bt_kernels")
    entry = VariantEntry("one", "", top / tree / "mine/one.py", shipped=False, package="bt_kernels")
    return ArmSetup(f"one@{side}", entry, side, isolation)

notes = activity.current()
try:
    _, executor, worlds = set_up(
        WorkerSetup("cpu", tuple(map(arm, sys.argv[2].split(","))), Plan(), watched=True))
    said = {side: [] for side in SIDES}
    for turn in range(3):
        for side in SIDES:
            with notes.running(f"one@{side}"):
                said[side].append(executor._classes[f"one@{side}"].says())
    worlds.refuse()
    changes = executor._watch.changes()
except UsageError as error:
    print(json.dumps({"refused": str(error)}))
else:
    print(json.dumps({"said": said, "changes": changes}))
"""


# Takes seconds to import, and each worker needs it.
IMPORTED = (
    "bt_bench.worker.process.executor, bt_bench.worker.process.main, torch, triton, "
    "bt_bench.suites.block_tables.suite, bt_bench.suites.block_tables.exploring"
)


@pytest.fixture(scope="module")
def fork():
    """A function that runs a program in a process of its own: its exit code, what it printed."""
    with forked_programs(IMPORTED) as run:
        yield run


@pytest.fixture
def look(tmp_path, fork):
    """A function that runs a worker with all three arms of a variant and returns what they say."""

    def run(head="", body="return 0", order="base,head,control", **files):
        helper = {"lib/helper.py": "NAME = {name!r}\ncalls = []\n"}
        write_sides(tmp_path, head, body, **helper, **files)
        tree = str(tmp_path / "head")
        # Helpers in C are not looked at, and would be compiled anew for each side's cache.
        switches = {"PYTHONPATH": f"{tree}/lib", "BT_KERNELS_NATIVE": "0"}
        code, said = fork(WORKER, [str(tmp_path), order], tree, **switches)
        assert code == 0, said
        found = json.loads(said)
        assert "refused" not in found or "stolen" in body, found
        return found

    return run


THRICE = {"base": ["base"] * 3, "head": ["head"] * 3, "control": ["base"] * 3}


@pytest.mark.parametrize("order", ["base,head,control", "head,control,base"])
@pytest.mark.parametrize("body", ["return helper.NAME", "import helper; return helper.NAME"])
def test_a_module_of_one_name_is_each_revisions_own(look, body, order):
    head = "import helper" if not body.startswith("import") else ""
    found = look(head=head, body=body, order=order)
    assert found["said"] == THRICE
    assert found["changes"] == {}


def test_no_two_arms_share_a_module(look):
    """Not even base and control, whose files are the same."""
    body = "helper.calls.append(1); return len(helper.calls)"
    assert look(head="import helper", body=body)["said"] == {side: [1, 2, 3] for side in THRICE}


def test_a_package_of_one_name_and_a_module_in_it(look):
    body = "from pack.part import NAME; return NAME"
    files = {"lib/pack/__init__.py": "", "lib/pack/part.py": "NAME = {name!r}"}
    assert look(body=body, **files)["said"] == THRICE


def test_files_by_relative_paths_and_beside_the_variant(look):
    body = (
        "return [Path(p).read_text() for p in "
        "(Path(__file__).with_name('data.json'), 'mine/data.json')]"
    )
    found = look(head="from pathlib import Path", body=body)["said"]
    assert {side: set(map(tuple, each)) for side, each in found.items()} == {
        side: {(f'"{tree}"',) * 2} for side, (tree, *_) in THRICE.items()
    }


def test_caches_of_builds_are_three(look):
    found = look(head="import os", body="return os.environ['TRITON_CACHE_DIR']")["said"]
    assert len({directory for each in found.values() for directory in each}) == 3


def test_a_module_of_the_other_tree_is_refused(look):
    body = """
        import importlib.util, sys, os
        other = {'base': 'head', 'head': 'base'}[os.path.basename(os.getcwd())]
        path = os.path.join(os.path.dirname(os.getcwd()), other, 'lib/helper.py')
        spec = importlib.util.spec_from_file_location('stolen', path)
        sys.modules['stolen'] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.NAME"""
    refused = look(body=body)["refused"]
    assert "does not run on its own files: module stolen is" in refused


def test_a_head_that_patches_the_base_when_it_is_imported_is_told(look):
    head = """import gc
for each in gc.get_objects():
    if isinstance(each, type) and str(each.__module__).startswith("bt_bench_variants_"):
        if each.__name__ == "Variant" and "/head/" in __file__:
            each.snapshot = print"""
    changes = look(head=head, order="base,control,head")["changes"]
    (told,) = changes["one@head"]
    assert "one@base: Variant.snapshot" in told
    assert "one@control: Variant.snapshot" in told


def test_an_operator_of_torch_that_a_revision_registers_is_told(look):
    head = """import os, torch
NAME = os.environ["TRITON_CACHE_DIR"].split("/")[-2].replace("-", "_")
LIBRARY = torch.library.Library(NAME, "FRAGMENT")
LIBRARY.define("work(int x) -> int")
LIBRARY.impl("work", lambda x: x + 1, "CompositeExplicitAutograd")"""
    changes = look(head=head)["changes"]
    assert all(
        "operators of torch" in ", ".join(changes[f"one@{side}"]) for side in ("base", "head")
    )


def test_a_module_that_a_revision_makes_by_hand_is_its_own(look):
    body = """
        import sys, types
        if "by_hand" not in sys.modules:
            sys.modules["by_hand"] = module = types.ModuleType("by_hand")
            module.owner = __file__.split("/")[-3]
            module.calls = []
        sys.modules["by_hand"].calls.append(1)
        return [sys.modules["by_hand"].owner, len(sys.modules["by_hand"].calls)]"""
    said = look(body=body)["said"]
    assert said == {side: [[tree[0], n] for n in (1, 2, 3)] for side, tree in THRICE.items()}


def test_the_collector_is_on_while_a_variant_is_imported_and_runs(look):
    head = "import gc; WAS_ON = gc.isenabled()"
    said = look(head=head, body="return [WAS_ON, gc.isenabled()]")["said"]
    assert said == {side: [[True, True]] * 3 for side in THRICE}


def test_a_path_that_a_revision_adds_stays_in_its_world(look):
    head = "import os, sys; sys.path.insert(0, os.path.dirname(__file__))"
    body = "import near; return near.NAME"
    assert look(head=head, body=body, **{"mine/near.py": "NAME = {name!r}"})["said"] == THRICE


def test_what_a_revision_changes_for_all_is_told_of_it(look):
    head = "import threading; threading.stack_size(); import torch; torch.set_num_threads(3)"
    changes = look(head=head)["changes"]
    assert changes["one@base"] == ["torch (num_threads)"]


# All that code of an arm can see of its place, in a gate of two equal revisions.
PLACES = """\
import json, os, sys
from pathlib import Path
from support.tiny_gates import spec_of
from bt_bench.results.run.plan import Plan
from bt_bench.runs.gate.checkouts import base_tree, copied
from bt_bench.runs.gate.live import GateRequest, prepare
from bt_bench.runs.gate.trees import locate, working_tree
from bt_bench.worker.machine import activity
from bt_bench.worker.process.main import set_up
from bt_bench.worker.tasks.messages import ArmSetup, WorkerSetup

top = Path(sys.argv[1])
location = locate(top, [top / "mine"])
with base_tree(location, "HEAD") as base:
    head = copied(working_tree(location), base)
    request = GateRequest(spec_of(["one"]), base, head, "cpu", None, Path("recording.json"))
    sides = prepare(request).rounds.sides
    arms = tuple(
        ArmSetup(f"one@{arm.value}", side.entries[0], arm.value, side.isolation)
        for arm, side in sides.items()
    )
    _, executor, worlds = set_up(WorkerSetup("cpu", arms, Plan(), watched=True))
    said = {}
    for arm in arms:
        with activity.current().running(arm.name):
            said[arm.side] = executor._classes[arm.name].says()
    os.chdir(top)
print(json.dumps(said))
"""
SEEN = (
    "import os, sys; code = sys._getframe().f_code; path, environment = [*sys.path], {**os.environ}"
    "; return [os.getcwd(), path, environment, sys.argv, sys.pycache_prefix, __file__, "
    "__name__[:-16], code.co_filename, helper.__file__]"
)


def test_arms_of_equal_code_are_given_the_same_but_for_a_word_of_the_same_length(tmp_path, fork):
    """Else the one with longer paths, or with more around it, would be timed as slower."""
    write_sides(tmp_path, "import helper", SEEN, **{"deep/er/x": ""})
    top = (tmp_path / "head").rename(tmp_path / "own")
    git(top, "init", "-q", "-b", "main")
    commit(top, "first")
    places = {"PYTHONPATH": f"{top}/lib:{SUPPORT}", "DATA": f"{top}/mine/data.json", "X": f"{top}"}
    places["BT_KERNELS_NATIVE"] = "0"
    code, printed = fork(PLACES, [str(top)], top / "deep/er", **places)
    assert code == 0, printed
    said = json.loads(printed)
    folder, _, environment, *_, file, _, _, _ = said["head"]
    assert folder.endswith("/head/deep/er")
    assert environment["DATA"] == file.replace("one.py", "data.json")
    words = {"base": "base", "head": "head", "control": "base|twin"}
    same = {
        arm: json.loads(re.sub(rf"\b({words[arm]})\b", "word", json.dumps(of_arm)))
        for arm, of_arm in said.items()
    }
    assert same["head"] == same["base"]
    assert same["control"] == same["base"]
    assert {len(word) for words_of in words.values() for word in words_of.split("|")} == {4}
