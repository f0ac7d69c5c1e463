"""Which code each side of a gate measures, and by whose suite: told wherever both sides differ.

The workers follow a script that lies beside each variant, so that its folder shows in its figures.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support import fake_rounds
from support.censuses import take_made_up
from support.commands import run
from support.repositories import commit, git, repository, write
from support.suites import write_suite

from bt_bench.variants import default_variants

CONFIG = """\
{head}variants: [{variants}]
operations: [stage, step]
plan: {{rounds: 4, warmup_rounds: 0, instances: 1}}
defaults: {{max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}}
cases:
  - {{name: tiny, requests: 2, tokens: 4}}
"""
FILE = '"""A variant."""\n'


def variant(folder, launches, name="one"):
    """A variant that launches so often, in a folder of its own."""
    script = {name: {"us": 100.0, "launches": launches}}
    return {f"{folder}/{name}.py": FILE, f"{folder}/script.json": json.dumps(script)}


def config(head="", variants="one"):
    return {"my.yaml": CONFIG.format(head=head, variants=variants)}


def settings(folder):
    return {"pyproject.toml": f"[tool.bt-bench]\nkernels = ['{folder}']\n"}


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """Makes a repository of some files, which becomes the working directory."""
    monkeypatch.setattr("bt_bench.runs.gate.sides.Supervisor", fake_rounds.InProcess)
    monkeypatch.setattr("bt_bench.worker.take_census", take_made_up)

    def make(files):
        top = repository(tmp_path / "repo", {".gitignore": "reports/\n"} | files)
        monkeypatch.chdir(top)
        return top

    return make


def gate(*options, config="my.yaml"):
    return run(
        *("gate", "--config", config, "--base", "HEAD", "--device", "cpu", "--json"),
        *("--metric", "launches", "--rounds", "4", *options),
    )


def launches(outcome):
    """The verdicts on a step, with the values of both sides."""
    assert outcome.out, outcome.err
    return {
        (j["verdict"], j["base_value"], j["other_value"])
        for j in outcome.json()["judgements"]
        if j["operation"] != "stage"
    }


def warnings(outcome):
    return " | ".join(outcome.json()["warnings"])


# How the head says that variants come from another folder, which the base has as well.
MOVES = {
    "config": (config("kernels: a\n"), config("kernels: b\n")),
    "list in the config": (config("kernels: [a, c]\n"), config("kernels: [c, b]\n")),
    "settings": (config() | settings("a"), settings("b")),
    "config over settings": (config() | settings("a"), config("kernels: b\n")),
    "settings without a config's": (config("kernels: a\n") | settings("b"), config()),
}


@pytest.mark.parametrize("way", MOVES)
def test_each_side_is_measured_in_the_folders_of_its_own_config(repo, way):
    """A slow variant that has long been beside the fast one is the head's, and not the base's."""
    before, after = MOVES[way]
    top = repo(variant("a", 3) | variant("b", 5) | variant("c", 7, "other") | before)
    assert gate().code == 0
    write(top, after)
    outcome = gate()
    assert launches(outcome) == {("SLOWER", 3, 5)}
    assert outcome.code == 1
    assert "working tree takes variants from " in warnings(outcome)
    # A flag is for both.
    outcome = gate("--kernels", "b")
    assert launches(outcome) == {("SAME", 5, 5)}
    assert "takes variants" not in warnings(outcome)


def test_a_link_in_a_config_leads_each_side_to_its_own(repo):
    top = repo(variant("a", 3) | variant("b", 5) | {"my.yaml": ""})
    (top / "now").symlink_to("a")
    write(top, config("kernels: now\n"))
    commit(top, "link")
    (top / "now").unlink()
    (top / "now").symlink_to("b")
    outcome = gate()
    assert launches(outcome) == {("SLOWER", 3, 5)}
    assert outcome.code == 1


def test_what_one_config_alone_names_is_missing(repo):
    one, two = config("kernels: a\n"), config("kernels: [a, b]\n", "one, two")
    top = repo(variant("a", 3) | variant("b", 5, "two") | one)
    for files in (two, one):  # it came, and it went
        write(top, files)
        outcome = gate()
        assert launches(outcome) == {("SAME", 3, 3), ("MISSING", None, None)}
        assert outcome.code == 4
        assert gate("--allow-missing").code == 0
        commit(top, "changed")


def test_a_folder_of_the_base_that_is_in_no_tree_is_refused(repo, tmp_path):
    write(tmp_path, variant("else", 3))
    top = repo(variant("b", 5) | {"my.yaml": ""})
    write(top, config(f"kernels: {tmp_path}/else\n"))
    commit(top, "out of the tree")
    write(top, config("kernels: b\n"))
    outcome = gate()
    assert outcome.code == 2
    assert f": kernels {tmp_path}/else: is not in the repository" in outcome.err
    assert "HEAD (" in outcome.err


def test_the_package_of_kernels_is_that_of_each_tree(repo):
    """The shallowest that git tracks in each: one that the head has removed is still the base's."""
    shallow, deep = (
        variant(f"{where}/bt_kernels/variants", count) | {f"{where}/bt_kernels/__init__.py": ""}
        for where, count in (("kernels", 3), ("old/kernels", 5))
    )
    top = repo(shallow | deep | config())
    assert launches(gate("--time-equal")) == {("SAME", 3, 3)}
    git(top, "rm", "-rq", "kernels")
    outcome = gate()
    assert launches(outcome) == {("SLOWER", 3, 5)}
    assert "working tree takes the package bt_kernels from old/kernels, and HEAD (" in warnings(
        outcome
    )


def test_a_variant_that_the_head_has_removed_is_missing_from_a_config_without_a_list(repo):
    """Where the head is what is installed, that no longer has it either."""
    names = [*default_variants(), "extra"]
    folder = "kernels/bt_kernels/variants"
    files = {f"{folder}/{name}.py": FILE for name in names}
    files[f"{folder}/script.json"] = json.dumps({name: {"us": 100.0} for name in names})
    text = CONFIG.format(head="", variants="").replace("variants: []\n", "")
    top = repo(files | {"kernels/bt_kernels/__init__.py": "", "my.yaml": text})
    (top / folder / "extra.py").unlink()
    outcome = gate()
    assert outcome.code == 4
    missing = [j for j in outcome.json()["judgements"] if j["verdict"] == "MISSING"]
    assert {j["other"] for j in missing} == {"extra@working tree"}
    assert gate("--variants", "fused").code == 0


@pytest.mark.parametrize("where", ["working directory", "subfolder"])
def test_the_head_does_not_say_where_it_is_measured(repo, monkeypatch, where):
    """On a CPU nothing may be timed."""
    top = repo(variant("mine", 3) | config("kernels: mine\n") | {"sub/x": ""})
    if where == "subfolder":
        monkeypatch.chdir(top / "sub")
    given = ("gate", "--config", str(top / "my.yaml"), "--dry-run")

    def device(*options):
        outcome = run(*given, *options)
        assert outcome.code == 0, outcome.err
        return outcome.out.splitlines()[0].partition(" on ")[2].partition(":")[0]

    write(top, {"pyproject.toml": '[tool.bt-bench]\ndevice = "cpu"\n'})
    assert device("--base", "HEAD") == "cuda"
    assert device("--base", "HEAD", "--device", "cpu") == "cpu"
    commit(top, "on a CPU")
    write(top, {"pyproject.toml": ""})
    assert device("--base", "HEAD") == "cpu"
    assert device("--base", "HEAD~1") == "cuda"
    write(top, {"pyproject.toml": '[tool.bt-bench]\ndevice = "cuda"\n'})
    monkeypatch.chdir(top)
    told = warnings(run("gate", "--config", "my.yaml", "--base", "HEAD", "--static", "--json"))
    assert "[tool.bt-bench] device is cuda, but cpu in the base, which is used" in told


def test_a_gate_that_times_nothing_has_no_power(repo):
    top = repo(variant("mine", 3) | config("kernels: mine\n"))
    write(top, {"my.yaml": Path("my.yaml").read_text() + "# changed\n"})
    outcome = gate("--require-power")
    assert outcome.code == 3
    assert "--require-power: nothing was timed, so no slowdown could have been" in outcome.err
    assert gate().code == 0
    commit(top, "equal")
    shutil.rmtree(top / "reports")  # which would differ
    assert gate("--require-power").code == 0


def test_a_project_around_the_repository_has_settings_for_both(repo, tmp_path):
    write(tmp_path, settings("repo/a"))
    repo(variant("a", 3) | config())
    outcome = gate("--time-equal")
    assert launches(outcome) == {("SAME", 3, 3)}
    assert outcome.json()["warnings"] == []


# A suite: what drives and checks both revisions is the head's.

SCRIPT = "copy_kernels/variants/script.json"


def script(launches):
    return json.dumps({n: {"us": 100.0, "launches": launches} for n in ("baseline", "second")})


@pytest.fixture
def suite(repo):
    """A repository with a suite of its own, in the folder `copies`."""
    top = repo({"my.yaml": "suite: copies\ncases: [{name: one, rows: 3}, {name: two, rows: 4}]\n"})
    write_suite(top / "copies")
    write(top, {f"copies/{SCRIPT}": script(3), "copies/table.json": "[1]", "copies/README.md": ""})
    commit(top, "a suite")
    return top


def test_equal_suites_are_not_told_apart(suite):
    """The base's config is read with the base's suite, so with other classes of equal workloads."""
    write(suite, {f"copies/{SCRIPT}": script(5), "copies/new/__init__": ""})
    (suite / "copies/new/__init__").unlink()
    for options in ([], ["--suite", "copies"]):
        outcome = gate(*options)
        assert launches(outcome) == {("SLOWER", 3, 5)}
        assert outcome.json()["warnings"] == []


@pytest.mark.parametrize("options", [[], ["--suite", "copies"]])
def test_another_workload_is_told_by_its_values(suite, options):
    write(suite, {"my.yaml": Path("my.yaml").read_text().replace("rows: 4", "rows: 5")})
    assert "case two has another workload in the base's config" in warnings(gate(*options))
    assert "case one has" not in warnings(gate(*options))


@pytest.mark.parametrize("options", [[], ["--suite", "copies"]])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_case_is_missing_whatever_else_is_called_like_the_config(suite, options, hidden):
    """A config of the suite may have the name that is the path of another one."""
    less = Path("my.yaml").read_text().replace("{name: two, rows: 4}", "")
    write(suite, {"my.yaml": less})
    if hidden:
        text = less.replace("suite: copies", "suite: ../../copies")
        write(suite, {"copies/configs/my.yaml.yaml": text})
    outcome = gate(*options)
    assert outcome.code == 4, outcome.err
    missing = {(j["case"], j["verdict"]) for j in outcome.json()["judgements"]} - {("one", "SAME")}
    assert missing == {("two", "MISSING")}


PARTS = ["suite.py", "driver.py", "copy_kernels/variants/reference.py", "table.json", "more.py"]
DATA = [".hidden/data", "configs/data.json", "notes.md", "linked/data", "__pycache__/data.pyc"]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_a_suite_that_differs_is_told(suite, part, static):
    """Its code, its data, and the reference that all are checked against."""
    path = suite / "copies" / part
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    options = ["--config", "my.yaml", "--base", "HEAD", "--static", "--json"]
    outcome = run("gate", *options) if static else gate()
    assert outcome.code == 0, outcome.err
    assert f"the suite differs from the base's in {part}; working tree's drives and checks" in (
        warnings(outcome)
    )


@pytest.mark.parametrize("part", DATA)
def test_data_of_a_suite_that_differs_is_told_wherever_it_is(suite, part):
    """A driver may read any of it, behind a link to a folder too."""
    (suite / "shared").mkdir()
    (suite / "copies/linked").symlink_to("../shared")
    path = suite / "copies" / part
    path.parent.mkdir(exist_ok=True)
    path.write_text("1")
    commit(suite, "data")
    assert warnings(gate()) == ""
    path.write_text("0")
    assert f"the suite differs from the base's in {part};" in warnings(gate())


def test_a_suite_whose_files_look_like_a_repository_is_refused(suite):
    forged = {"HEAD": "ref: refs/heads/main\n", "objects/keep": "", "refs/keep": ""}
    write(suite, {f"copies/{name}": text for name, text in forged.items()})
    commit(suite, "a repository in files")
    outcome = gate()
    assert outcome.code == 2
    assert "copies: its repository is not one to take a base revision from" in outcome.err


def test_a_link_that_leads_elsewhere_is_told(suite):
    write(suite, {"one/x": "", "two/y": ""})
    (suite / "copies/now").symlink_to("../one")
    commit(suite, "a link")
    (suite / "copies/now").unlink()
    (suite / "copies/now").symlink_to("../two")
    assert "the suite differs from the base's in now/x, now/y;" in warnings(gate())


def test_a_part_of_the_suite_that_is_gone_is_told_too(suite):
    (suite / "copies/table.json").unlink()
    assert "the suite differs from the base's in table.json;" in warnings(gate())


def test_kernels_of_a_suite_that_has_moved_are_found_in_each_tree(suite):
    git(suite, "mv", "copies", "moved")
    write(suite, {f"moved/{SCRIPT}": script(5)})
    write(suite, {"my.yaml": Path("my.yaml").read_text().replace("copies", "moved")})
    outcome = gate()
    assert launches(outcome) == {("SLOWER", 3, 5)}
    assert "working tree takes the package copy_kernels from moved, and HEAD (" in warnings(outcome)
    assert "the suite differs" not in warnings(outcome)


def test_a_link_to_a_suite_leads_each_side_to_its_own(suite):
    write_suite(suite / "other")
    write(suite, {f"other/{SCRIPT}": script(5)})
    (suite / "now").symlink_to("copies")
    commit(suite, "two suites")
    (suite / "now").unlink()
    (suite / "now").symlink_to("other")
    for options in (["--suite", "now"], ["--set", "rows=3", "--suite", "now", "-k", "one"]):
        outcome = gate(*options)
        assert launches(outcome) == {("SLOWER", 3, 5)}, outcome.err


def test_a_variant_that_a_suite_has_lost_is_missing(suite):
    """Without a list in the config, it is all that the suite has: that of each revision."""
    (suite / "copies/copy_kernels/variants/second.py").unlink()
    for options in ([], ["--suite", "copies"]):
        outcome = gate(*options)
        assert launches(outcome) == {("SAME", 3, 3), ("MISSING", None, None)}
        assert outcome.code == 4


# A gate in which nothing that is measured can differ.

FREE = "operations: [stage]\ncases: [{name: tiny, requests: 2, tokens: 4}]\n"


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
@pytest.mark.parametrize("mode", [["--static"], ["--device", "cpu"]])
def test_a_gate_of_installed_kernels_alone_can_never_fail_and_is_refused(repo, mode, options):
    """The repository's own variants are in no list: the config has none, so all shipped ones."""
    repo(variant("mine", 3) | {"my.yaml": FREE})
    arguments = ["gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine", *mode]
    outcome = run(*arguments, *options)
    assert (outcome.code, outcome.out) == (4, "")
    assert "both run the files of baseline, " in outcome.err
    said = (
        "name variants of the repository in the config's 'variants', or by --variants: it has one"
    )
    assert said in " ".join(outcome.err.split())
    outcome = run(*arguments, *options, "--variants", "one")
    assert outcome.code == 0, outcome.err


def test_installed_kernels_beside_ones_own_are_told(repo):
    top = repo(variant("mine", 3) | config("kernels: mine\n", "one, baseline"))
    write(top, {"my.yaml": Path("my.yaml").read_text() + "# changed\n"})
    outcome = run("gate", "--config", "my.yaml", "--base", "HEAD", "--static", "--json")
    assert outcome.code == 0, outcome.err
    facts = " ".join(outcome.json()["facts"])
    assert "Both revisions run the file of baseline in " in facts


# Odd things that git tracks, or that a checkout holds: a verdict, or a message that names them.

ODD = {
    "a loop": lambda path: path.symlink_to(path.name),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to a device": lambda path: path.symlink_to("/dev/null"),
    "a folder": lambda path: path.mkdir() or (path / "file").touch(),
    "a name that is no text": lambda path: path.with_stem(os.fsdecode(b"\xff")).touch(),
    "a name of two lines": lambda path: path.with_stem("a\nb\x1b[1m").touch(),
}
PLACES = ["odd", "copies/odd.py", "copies/copy_kernels/odd.py", "copies/copy_kernels/variants/x.py"]
PLACES += ["copies/configs/odd.yaml"]


def test_odd_things_that_are_tracked_end_no_gate(suite):
    for place in PLACES:
        for number, make in enumerate(ODD.values()):
            make((suite / place).with_stem(f"{Path(place).stem}_{number}"))
    commit(suite, "odd")
    outcome = gate()
    assert outcome.code == 0, outcome.err
    assert any("the trees are equal" in fact for fact in outcome.json()["facts"])
    assert warnings(outcome) == ""
    write(suite, {f"copies/{SCRIPT}": script(5)})
    assert ("SLOWER", 3, 5) in launches(gate())
    assert gate("--format", "table=x", "--format", "junit=y", "--format", "github=z").code == 1
    for arguments in (["--static"], ["--device", "cpu", "--dry-run"]):
        outcome = run("gate", "--config", "my.yaml", "--base", "HEAD", *arguments)
        assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("what", list(ODD)[:4])
def test_odd_things_that_only_one_side_has_are_named(suite, what):
    ODD[what](suite / "copies/odd.py")
    outcome = gate()
    assert outcome.code == 0, outcome.err
    assert any("differ: copies/odd.py" in fact for fact in outcome.json()["facts"])


@pytest.mark.parametrize("what", list(ODD)[:3])
@pytest.mark.parametrize("place", ["my.yaml", "copies/suite.py", "copies/copy_kernels"])
def test_odd_things_in_place_of_what_the_base_needs_are_named(suite, what, place):
    """A loop where the config was, a dead link where the kernels were."""
    aside = suite / "aside"
    (suite / place).rename(aside)
    ODD[what](suite / place)
    commit(suite, "odd")
    (suite / place).unlink()
    aside.rename(suite / place)
    outcome = gate()
    assert outcome.code in (0, 2, 4), outcome.err
    said = outcome.err if outcome.code == 2 else warnings(outcome)
    assert Path(place).name in said
