"""The options of `bt-bench profile`: which tool gets them, and which are refused."""

from __future__ import annotations

import pytest
from support.commands import run
from support.refusals import refused

from bt_bench.base.errors import ExitCode
from bt_bench.cli.profile import command
from bt_bench.results import Cache

PROFILES = ("timeline_profile", "ncu_profile", "static_profile")


@pytest.fixture
def requests(monkeypatch):
    """What the tools were asked for, by name; none of them does anything."""
    asked = {}

    def keeps(name):
        def profile(request):
            asked[name] = request
            return ExitCode.CHECK_FAILED

        return profile

    for name in PROFILES:
        monkeypatch.setattr(command, name, keeps(name))
    return asked


def test_a_timeline_is_the_default(config, requests):
    assert run("profile", config, "-k", "one").code == ExitCode.CHECK_FAILED
    request = requests["timeline_profile"]
    assert list(requests) == ["timeline_profile"]
    assert (request.tool, request.step, request.device) == ("timeline", None, None)
    flags = (request.whole, request.as_json, request.traceback, request.operations_by_name)
    assert not any(flags)
    assert [case.name for case in request.spec.cases] == ["one"]
    assert [entry.name for entry in request.entries] == ["fused"]


def test_options_reach_the_timeline(config, requests, tmp_path):
    places = ("--out", tmp_path / "x", "--reports", tmp_path, "--against", tmp_path)
    flags = ("--all", "--json", "--traceback", "--step", "0", "--device", "cuda:1")
    run("profile", config, "-k", "one", "--tool", "trace", "--operations", "step", *places, *flags)
    request = requests["timeline_profile"]
    assert (request.tool, request.step, request.device) == ("trace", 0, "cuda:1")
    assert request.whole
    assert request.as_json
    assert request.traceback
    assert request.operations_by_name
    assert (request.out, request.reports) == (tmp_path / "x", tmp_path)
    assert request.against == tmp_path


def test_other_tools_get_their_own_options(config, requests):
    run("profile", config, "-k", "one", "--tool", "ncu", "--l2", "cold", "--step", "0")
    assert (requests["ncu_profile"].l2, requests["ncu_profile"].step) == (Cache.COLD, 0)
    run("profile", config, "--tool", "static", "--target", "sm_80,sm_90")
    assert requests["static_profile"].targets == ["sm_80", "sm_90"]


@pytest.mark.parametrize(
    ("tool", "option", "expected"),
    [
        ("timeline", ("--l2", "hot"), "--l2 means nothing to --tool timeline, only to: ncu"),
        ("trace", ("--target", "sm_90"), "--target means nothing to --tool trace, only to: static"),
        ("ncu", ("--target", "sm_90"), "--target means nothing to --tool ncu, only to: static"),
        ("static", ("--step", "0"), "--step means nothing to --tool static, only to: timeline, "),
        ("static", ("--device", "cpu"), "--device means nothing to --tool static"),
        ("nsys", ("--against", "x"), "--against means nothing to --tool nsys, only to: timeline"),
        ("nsys", ("--json",), "--json means nothing to --tool nsys, only to: timeline, trace, ncu"),
        ("timelin", (), "--tool 'timelin' is not a tool; did you mean 'timeline'?"),
        ("ncu", ("--l2", "warm"), "--l2 'warm' is not a state; expected one of hot, cold"),
    ],
)
def test_options_that_mean_nothing_to_a_tool(config, requests, tool, option, expected):
    assert expected in refused("profile", config, "-k", "one", "--tool", tool, *option)
    assert requests == {}


def test_a_step_below_the_first(config, requests):
    assert run("profile", config, "-k", "one", "--step", "-1").code == ExitCode.USAGE
    assert requests == {}


@pytest.mark.parametrize("tool", ["timeline", "trace", "ncu"])
def test_several_cases(config, requests, tool):
    assert f"--tool {tool} profiles one case, and 2 are chosen: one, two" in refused(
        "profile", config, "--tool", tool
    )
    assert requests == {}


@pytest.mark.parametrize("tool", ["timeline", "trace", "ncu", "static"])
def test_a_folder_that_exists_is_refused_before_time_is_spent(config, requests, tool, tmp_path):
    folder, link = tmp_path / "there", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    for out in (folder, link, config):
        assert f"--out {out} exists, and a profile is never overwritten" in refused(
            "profile", config, "-k", "one", "--tool", tool, "--out", out
        )
    assert requests == {}
    assert list(folder.iterdir()) == []
