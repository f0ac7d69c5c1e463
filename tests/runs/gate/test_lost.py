"""What a gate would no longer look at, since the head says so: never without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.repositories import commit, git, repository, write
from support.tiny_gates import spec_of

from bt_bench.base.errors import UsageError
from bt_bench.runs.gate.checkouts import base_tree, copied
from bt_bench.runs.gate.lost import config_of, lost_between, other_files, without_variant
from bt_bench.runs.gate.trees import locate, place_below, working_tree
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import TraceParameters

VARIANT = '"""A variant."""\n'


@pytest.fixture
def top(tmp_path, monkeypatch):
    """A repository with two folders of variants, a link to one of them, and a trace."""
    files = {"v1/one.py": VARIANT, "v2/one.py": VARIANT + "# 2\n", "load.csv": "x\n"}
    top = repository(tmp_path / "repo", files | {"full.yaml": "a", "small.yaml": "b"})
    (top / "now").symlink_to("v1")
    (top / "gate.yaml").symlink_to("full.yaml")
    commit(top, "links")
    monkeypatch.chdir(top)
    return top


def spec_with(**changes):
    """A config of one case with these changes."""
    spec = spec_of(["one"])
    case = spec.cases[0].model_copy(update=changes)
    return spec.model_copy(update={"cases": [case]})


def trace(path):
    return TraceParameters(workload="trace", trace=str(path))


def relink(path, target):
    path.unlink()
    path.symlink_to(target)


def test_links_are_those_of_each_revision(top):
    relink(top / "now", "v2")
    relink(top / "gate.yaml", "small.yaml")
    location = locate(top, [Path("now")])
    with base_tree(location, "HEAD") as base:
        head = copied(working_tree(location), base)
        found = [tree.variants()["one"].path.resolve() for tree in (base, head)]
        assert found == [base.top / "v1/one.py", head.top / "v2/one.py"]
        assert config_of(base, head, Path("gate.yaml")).read_text() == "a"


def test_a_link_out_of_the_tree_is_refused(top, tmp_path):
    write(tmp_path, {"else/one.py": VARIANT})
    relink(top / "now", tmp_path / "else")
    with pytest.raises(UsageError, match="now is a link that leads out of the tree"):
        working_tree(locate(top, [Path("v1"), Path("now")])).variants()


def test_a_repository_within_is_not_taken_for_the_outer_one(top):
    repository(top / "inner", {"mine/one.py": VARIANT})
    with pytest.raises(UsageError, match=r"inner, a repository of its own within .*repo, such as"):
        locate(top, [Path("inner/mine")])
    assert locate(top / "inner", [top / "inner/mine"]).top == top / "inner"


def test_kernels_that_only_the_base_has_are_not_the_installed_ones(top):
    write(top, {"kernels/bt_kernels/__init__.py": "", "kernels/bt_kernels/variants/x.py": VARIANT})
    commit(top, "kernels")
    git(top, "rm", "-rq", "kernels")
    location = locate(top, [Path("v1")])
    with base_tree(location, "HEAD") as base, pytest.raises(UsageError, match="kernels of its own"):
        base.variants()


def test_places_keep_the_links_below_the_top(top, tmp_path):
    (tmp_path / "way").symlink_to(top)
    assert place_below(tmp_path / "way/now/one.py", top) == Path("now/one.py")
    (tmp_path / "in").symlink_to(top / "v1")
    assert place_below(tmp_path / "in", top) == Path("v1")
    assert place_below(tmp_path / "way/../elsewhere", top) is None
    assert place_below(top / "v1/../v2", top) == Path("v2")


def test_traces_and_folders(top):
    location = locate(top, [Path("v1")])
    spec = spec_with()
    replaying = spec_with(parameters=trace("load.csv"))
    with base_tree(location, "HEAD") as base:
        head = copied(working_tree(location), base)
        assert other_files(replaying, base, head) == ()
        write(top, {"load.csv": "y\n"})
        (said,) = other_files(replaying, base, head)
        assert said == f"case {spec.cases[0].name} uses load.csv, which differs in the base"
        assert other_files(spec, base, head) == ()
        assert without_variant(spec, head) == ()
        (said,) = without_variant(spec.model_copy(update={"variants": ["fused"]}), head)
    assert said.startswith("no variant of v1 is compared")


def test_a_trace_at_the_same_place_is_the_same_workload(top):
    location = locate(top, [Path("v1")])
    with base_tree(location, "HEAD") as base:
        both = (base, copied(working_tree(location), base))
        now, same, other = (
            spec_with(parameters=trace(path))
            for path in (top / "load.csv", base.top / "load.csv", base.top / "other.csv")
        )
        assert lost_between(same, now, both).warnings == ()
        (said,) = lost_between(other, now, both).warnings
        assert said.endswith("has another workload in the base's config; the head's is used")


def test_a_plan_that_asks_for_less_is_told(top):
    tree = working_tree(locate(top, [Path("v1")]))
    both = (tree, tree)
    spec = spec_of(["one"])
    less = spec.model_copy(update={"plan": spec.plan.model_copy(update={"hang_seconds": 999.0})})
    (said,) = lost_between(spec, less, both).warnings
    assert said.startswith("plan.hang_seconds is 999.0, but ")
    assert lost_between(less, less, both).places == ()
    more = spec.model_copy(update={"operations": [*spec.operations, ops.APPLY]})
    assert {place[0] for place in lost_between(more, spec, both).places} == {ops.APPLY}
    assert replace(lost_between(spec, spec, both), places=()).warnings == ()


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, 5.0, "is 5 %, but the gate's in the base's config"),
        (2.5, None, "is the gate's, but 2.5 % in the base's config"),
        (2.5, 5.0, "is 5 %, but 2.5 % in the base's config"),
    ],
)
def test_a_margin_that_changed_is_told(top, before, now, said):
    tree = working_tree(locate(top, [Path("v1")]))
    old, new = spec_with(margin_percent=before), spec_with(margin_percent=now)
    (found,) = lost_between(old, new, (tree, tree)).warnings
    assert found == f"the margin of case {new.cases[0].name} {said}"
    assert lost_between(new, new, (tree, tree)).warnings == ()
