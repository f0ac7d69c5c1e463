"""Variants that fake their times: each is rejected, and passes without what catches it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import operator
import re
from pathlib import Path

import pytest
from cheats import CAUGHT, CHEATS, COMMAND, examine
from support.commands import ONE_CHECK
from support.forked import workers_forked

ROOT = Path(__file__).resolve().parents[2]
DEFENCES = json.loads(CAUGHT.read_text(encoding="utf-8"))
# Those that fake something without a GPU too; the others are honest there.
ON_THE_CPU = (
    *("deferred_to_method_death", "deferred_to_next_call", "deferred_to_output_read"),
    *("launches_while_staging", "patched_equal", "patched_perf_counter", "patched_regions"),
    *("skips_below_timing_frames", "skips_while_gc_is_off", "staging_cached_by_list"),
    *("staging_keeps_lists", "works_only_when_poisoned"),
)


def test_each_cheat_has_what_catches_it() -> None:
    names = [path.stem for path in CHEATS.glob("*.py") if not path.stem.startswith("test_")]
    assert sorted(DEFENCES) == sorted(names)
    assert len(names) >= 20
    assert all(DEFENCES.values())


def test_the_documentation_lists_each() -> None:
    text = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    listed = {name: caught.split(", ") for name, _, caught in rows if name in DEFENCES}
    assert listed == DEFENCES
    assert f"`tests/cheats` has {len(DEFENCES)} variants" in text


def test_each_defence_that_is_taken_out_is_there() -> None:
    """Or nothing would be taken out, by names that are in no import."""
    path = CHEATS / "taken_out" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("taken_out", path)
    assert spec is not None
    assert spec.loader is not None
    taken_out = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(taken_out)
    assert taken_out.DEFENCES.keys() == {each for of in DEFENCES.values() for each in of}
    for module, place, _ in itertools.chain.from_iterable(taken_out.DEFENCES.values()):
        assert callable(operator.attrgetter(place)(importlib.import_module(module)))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ON_THE_CPU)
def test_rejected_and_without_its_defences_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each worker would import torch, and a command has several; they are forked by the command, for
    # they have no defences that its start has taken out. Workloads that are to notice
    # nothing are what takes a sweep the longest.
    noticed_by_checks = {"workloads", "exploring"} & {*DEFENCES[name]}
    prologue = workers_forked(by_command=True) + ("" if noticed_by_checks else ONE_CHECK)
    monkeypatch.setattr("cheats.COMMAND", f"{prologue}\n{COMMAND}")
    found = examine(name, DEFENCES[name], quick=True)
    assert found["right"], found
