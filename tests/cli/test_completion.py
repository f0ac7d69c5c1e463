"""What a shell is offered, as bash asks for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.commands import TINY, run_apart
from typer.testing import CliRunner

from bt_bench.cli.app import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def offered():
    """Gives what is offered for the last word of a command."""

    def offer(*words):
        asked = {
            "_BT_BENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["bt-bench", *words]),
            "COMP_CWORD": str(len(words)),
        }
        result = CliRunner().invoke(app, [], prog_name="bt-bench", env=asked)
        assert result.stderr == ""
        return result.stdout.split()

    return offer


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_configs_are_stock_ones_yaml_files_and_folders(offered, folder):
    for path in ("quiet.yaml", "quiet.txt", ".hidden.yaml", "runs/quiet.yaml"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(TINY)
    assert offered("sweep", "qui") == ["quick", "quiet.yaml"]
    assert offered("check", "r") == ["runs/"]
    assert offered("workload", "runs/") == ["runs/quiet.yaml"]
    assert "origin" in offered("gate", "--config", "")
    assert ".hidden.yaml" not in offered("sweep", "")


def test_lists_go_on_without_what_they_have(offered):
    assert offered("sweep", "quick", "--variants", "bas") == ["baseline"]
    assert "baseline,fused" in offered("sweep", "quick", "--variants", "baseline,")
    assert "baseline,baseline" not in offered("sweep", "quick", "--variants", "baseline,b")
    assert "reference" not in offered("sweep", "--variants", "")
    assert offered("sweep", "quick", "--operations", "ga") == ["gather", "gather_slots"]
    assert "slower,missing" in offered("compare", "--fail-on", "slower,")


def test_variants_of_ones_own(offered, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "quickest.py").write_text("raise SystemExit('it is not to be run')\n")
    assert offered("sweep", "quick", "--kernels", "mine", "--variants", "qui") == ["quickest"]


def test_cases_are_those_of_the_config_before(offered, folder):
    (folder / "tiny.yaml").write_text(TINY)
    assert offered("sweep", "tiny.yaml", "-k", "") == ["one", "two"]
    assert offered("gate", "--config", "tiny.yaml", "-k", "one,t") == ["one,two"]
    assert offered("check", "-k", "mixed") == ["mixed_2grp"]


@pytest.mark.parametrize("command", ["show", "compare"])
def test_what_is_shown_of_results_is_what_they_have(command, offered):
    origin = str(ROOT / "reports" / "h100" / "origin")
    assert offered(command, origin, "-k", "medium_batch_1") == ["medium_batch_1grp"]
    assert offered(command, origin, "--operations", "") == ["gather_slots", "step"]
    assert offered(command, origin, "--variants", "baseline,one") == ["baseline,one_launch"]
    assert offered(command, origin, "--variants", "baseline,fus") == ["baseline,fused"]
    assert offered(command, f"{origin}/fused.json.xz", "--variants", "") == ["fused"]
    assert offered(command, str(ROOT / "README.md"), "-k", "") == []
    assert offered(command, "-k", "") == []


def test_formats_baselines_and_devices(offered, folder):
    (folder / "kept" / "baselines").mkdir(parents=True)
    (folder / "kept" / "baselines" / "main.json").write_text("{}")
    assert offered("compare", "--format", "j") == ["json", "junit"]
    assert offered("compare", "--reports", "kept", "--baseline", "") == ["main"]
    assert offered("sweep", "quick", "--device", "c") == ["cpu", "cuda"]


def test_a_suite_has_names_of_its_own(offered, folder):
    shutil.copytree(ROOT / "examples" / "suites" / "page_indices", folder / "page_indices")
    assert offered("--suite", "p") == ["page_indices"]
    given = ("sweep", "--suite", "page_indices")
    assert offered(*given, "--variants", "") == ["baseline", "fused"]
    assert set(offered(*given, "--operations", "")) == {"stage", "build"}


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "nowhere.yaml", "-k", "o"),
        ("sweep", "broken.yaml", "-k", "o"),
        ("sweep", "--kernels", "nowhere", "--variants", "f"),
        ("sweep", "--suite", "nowhere", "--operations", "s"),
        ("compare", "--baseline", "m"),
    ],
)
def test_what_goes_wrong_is_not_told(words, offered, folder):
    (folder / "broken.yaml").write_text("cases: 3\n")
    assert offered(*words) == []


def test_no_torch_is_loaded():
    blocked = (
        "import os, sys\n"
        "sys.modules['torch'] = sys.modules['triton'] = None\n"
        "sys.argv[1:] = []\n"
        "os.environ.update(_BT_BENCH_COMPLETE='complete_bash', COMP_CWORD='3', "
        "COMP_WORDS='bt-bench sweep --variants fu')"
    )
    outcome = run_apart(prologue=blocked)
    assert outcome.out.split()[0] == "fused"
    assert outcome.err == ""
