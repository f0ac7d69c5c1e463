"""Bad input: one clear message on stderr, exit code 2, no traceback. Configs: tests/config."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import ONE_CHECK, run, run_apart
from support.forked import workers_forked
from support.refusals import refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep"], "CONFIG is missing"),
        (["sweep", "nowhere.yaml"], "nowhere.yaml"),
        (["sweep", "CONFIG", "--variants", "baseline,fuse"], "'fuse'; did you mean 'fused'?"),
        (["sweep", "CONFIG", "--variants", "baseline,fuse"], "--kernels DIR"),
        (["check", "CONFIG", "--variants", "reference"], "is the reference that the others"),
        (["sweep", "CONFIG", "--operations", "steps"], "'steps'; did you mean 'step'?"),
        (["sweep", "CONFIG", "--set", "group=2"], "--set group=2"),
        (["sweep", "CONFIG", "-k", "three"], "-k 'three': no case matches; the cases are:"),
        (["sweep", "CONFIG", "-k", "one,nomatch"], "-k 'nomatch'"),
        (["sweep", "--resume", "nowhere"], "does not exist"),
        (["overhead"], "no GPU to run on: torch"),
    ],
)
def test_what_there_is_not(config, arguments, message):
    given = [str(config) if each == "CONFIG" else each for each in arguments]
    assert message in refused(*given)


def test_config_from_stdin():
    assert "<stdin>:" in refused("sweep", "-", stdin="cases: []\n")


def test_config_errors_name_file_line_and_column(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("cases:\n  - name: a\n    requests: many\n    tokens: 4\n")
    assert f"bt-bench: error: {path}:3:15: " in refused("sweep", path)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_without_a_gpu(config, device):
    message = refused("sweep", config, "--device", device)
    assert "no GPU to run on: torch" in message
    assert "is built without CUDA" in message or "sees no CUDA device" in message


@pytest.mark.parametrize("command", [("sweep", "quick"), ("env",), ("calibrate",), ("selfcheck",)])
def test_a_device_that_cannot_be(command):
    message = " ".join(refused(*command, "--device", "cuda:x").replace("│", " ").split())
    assert "'cuda:x' is not a device; expected auto, cuda, cpu, cuda:N" in message


def test_a_device_of_the_environment_that_cannot_be(monkeypatch):
    monkeypatch.setenv("BT_BENCH_DEVICE", "gpu")
    message = " ".join(refused("env").replace("│", " ").split())
    assert "BT_BENCH_DEVICE" in message
    assert "'gpu' is not a device" in message


def test_more_memory_than_there_is(config, tmp_path):
    message = refused(
        "sweep",
        config,
        *("--set", "max_num_reqs=16000", "--set", "max_model_len=8000000", "-k", "one"),
        *("--set", "block_size=16", "--out", tmp_path / "run"),
    )
    assert "case 'one' would need" in message
    assert not (tmp_path / "run").exists()


VARIANT_FILES = {
    "syntax": ("def f(:\n", ":1: the variant file does not import: SyntaxError"),
    "import": ("\nimport nowhere_at_all\n", ":2: the variant file does not import: ModuleNotFound"),
    "exits": ("raise SystemExit(0)\n", ":1: the variant file does not import: SystemExit: 0"),
    "raises": ("x = 1\ny = 1 / 0\n", ":2: the variant file does not import: ZeroDivisionError"),
    "empty": ("", "lacks a class 'Variant'"),
    "no_class": ("Variant = 3\n", "lacks a class 'Variant'"),
    "lacks": (
        "class Variant:\n    def restore(self): ...\n",
        "class 'Variant' lacks append_block_ids, apply_staged_writes, gather_block_tables, "
        "compute_slot_mappings, gather_and_compute_slot_mappings, prepare_step, snapshot",
    ),
    "abstract": (
        "from bt_kernels.interface import BlockTableOperations as Variant\n",
        "class 'Variant' lacks __init__, append_block_ids",
    ),
    "not_utf8": (b"x = '\xff'\n", "the variant file does not import: SyntaxError"),
}


@pytest.mark.parametrize("name", VARIANT_FILES)
def test_variant_file(name, config, tmp_path, kernels):
    source, expected = VARIANT_FILES[name]
    path = kernels / f"{name}.py"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    message = refused(
        "sweep", config, "--kernels", kernels, "--variants", name, "--out", tmp_path / "run"
    )
    assert f"\nbt-bench: error: {path}" in message
    assert expected in message
    assert not (tmp_path / "run").exists()


def test_a_file_that_a_variant_imports_is_named_with_its_own_line(config, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("import helper_of_mine\n")
    (tmp_path / "helper_of_mine.py").write_text("\n\n\ndef f(:\n")
    message = refused("sweep", config, "--kernels", tmp_path, "--variants", "mine", "--dry-run")
    assert f"{tmp_path / 'mine.py'}:1: the variant file does not import: SyntaxError: " in message
    assert "(helper_of_mine.py, line 4)" in message


def test_what_the_worker_refuses_is_said_as_if_there_were_none(config, tmp_path):
    path = tmp_path / "raises.py"
    path.write_text(VARIANT_FILES["raises"][0])
    out = tmp_path / "run"
    outcome = run_apart(
        *("sweep", config, "--kernels", tmp_path, "--variants", "raises", "--out", out),
        prologue=workers_forked(),
        forked=True,
    )
    assert outcome.code == 2
    _began, error = outcome.err.splitlines()
    assert error.startswith(f"bt-bench: error: {path}:2: the variant file does not import")
    assert not out.exists()


def test_variant_of_a_shipped_name(config, tmp_path):
    (tmp_path / "fused.py").write_text("")
    message = refused("sweep", config, "--kernels", tmp_path)
    assert "variant 'fused' exists already in the shipped variants; rename the file" in message


def test_kernels_folder(config, tmp_path):
    assert "no such folder" in refused("sweep", config, "--kernels", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "holds no variant file" in refused("sweep", config, "--kernels", tmp_path / "empty")


def test_compare_of_no_result(tmp_path):
    path = tmp_path / "baseline.json"
    assert str(path) in refused("compare", path, path)
    path.write_text('{"schema_version": 1')
    assert "truncated" in refused("compare", path, path)
    path.write_text("[]")
    assert str(path) in refused("compare", path, path)
    path.write_text('{"schema_version": 99}')
    assert "schema version 99; expected 3" in refused("compare", path, path, code=4)


def test_compare_of_one(tmp_path, config):
    run("sweep", config, "-k", "one", "--operations", "apply", "--out", tmp_path / "run")
    assert "two or more" in refused("compare", tmp_path / "run" / "fused.json")


def test_wrong_option_is_exit_2():
    outcome = run_apart("sweep", "--no-such-option")
    assert outcome.code == 2
    assert "No such option" in outcome.err


def test_internal_errors_are_not_taken_for_a_regression():
    outcome = run_apart(
        "schema",
        prologue="import bt_bench.results\nbt_bench.results.result_schema = lambda: 1 / 0",
    )
    assert outcome.code == 70
    assert "internal error" in outcome.err


def test_closed_pipe_is_no_error():
    outcome = run_apart("schema", prologue=CLOSED_PIPE)
    assert outcome.code == 0
    assert "Traceback" not in outcome.err


def test_window_outside_the_trace(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        "defaults: {max_num_reqs: 64, max_model_len: 16384}\ncases:\n"
        "  - {name: far, workload: trace, trace: azure_code, window: {at: 9999999, steps: 3}}\n"
    )
    message = refused("sweep", path, "--out", tmp_path / "run")
    assert "\nbt-bench: error: case 'far': " in message
    assert "9999999" in message
    assert not (tmp_path / "run").exists()


def test_closed_pipe_keeps_the_exit_code(config, tmp_path):
    (tmp_path / "empty.py").write_text(
        "from bt_kernels.variants.fused import Variant as Fused\n\n\n"
        "class Variant(Fused):\n    def restore(self, state): ...\n"
    )
    outcome = run_apart(
        *("check", config, "--kernels", tmp_path, "--variants", "empty"),
        prologue=CLOSED_PIPE + ONE_CHECK + workers_forked(),
        forked=True,
    )
    assert outcome.code == 5


def test_what_fails_alike_everywhere_is_told_once(config, tmp_path):
    (tmp_path / "raising.py").write_text(
        "from bt_kernels.variants.fused import Variant as Fused\n\n\n"
        "class Variant(Fused):\n"
        "    def apply_staged_writes(self):\n        raise ValueError('no way')\n"
    )
    options = ("--kernels", tmp_path, "--variants", "raising", "--operations", "step,apply")
    outcome = run("check", config, *options, "--explore", "0")
    assert outcome.code == 5
    assert outcome.out.count("ValueError: no way") == 1
    first, _, *together, last = outcome.out.splitlines()
    assert first == "FAILED  raising · conformance:corners · step"
    (line,) = [each for each in together if "no way" not in each]
    failed = int(re.search(r"(\d+) failed", last)[1])
    begin = f"FAILED  raising · {failed - 1} more just as conformance:corners · step: conformance:"
    assert line.startswith(begin)
    assert line.endswith(f" and {failed - 4} more")
    told = run("check", config, *options, "--explore", "0", "--json").json()
    assert len(told["checks"]) == failed


CHECKS = ("corners", "corners_int32", "long", "edges", "window")


def test_a_plainly_wrong_variant_fits_one_screen(config, tmp_path):
    (tmp_path / "wrong.py").write_text(
        "from bt_kernels.variants.fused import Variant as Fused\n\n\n"
        "class Variant(Fused):\n"
        "    def gather_and_compute_slot_mappings(self, *args, **kwargs):\n"
        "        found = super().gather_and_compute_slot_mappings(*args, **kwargs)\n"
        "        self.slot_mappings += 1\n"
        "        return found\n"
    )
    options = ("--kernels", tmp_path, "--variants", "wrong", "--operations", "step,gather_slots")
    check = ("check", config, *options, "--explore", "0")
    outcome = run(*check, checks=CHECKS)
    lines = [line for line in outcome.out.splitlines() if not line.startswith("skipped")]
    assert [line.startswith("FAILED") for line in lines] == [*[True, False] * 3, True, False]
    total = int(re.search(r"(\d+) failed", lines[-1])[1])
    counted = re.fullmatch(
        r"FAILED  wrong · (\d+) more checks, (\d+) of gather_slots and (\d+) of step · "
        r"wrong_result \(--all prints each\)",
        lines[-2],
    )
    more, *of_operations = map(int, counted.groups())
    assert more == sum(of_operations) == total - 3

    each = run(*check, "--all", checks=CHECKS).out.splitlines()
    assert sum(line.startswith("FAILED") for line in each) == total
    assert not any("--all" in line for line in each)
    document = run(*check, "--json", checks=CHECKS).json()
    assert sum(one["status"] == "failed" for one in document["checks"]) == total


def test_a_variant_whose_results_could_not_be_written_is_refused_first(config, tmp_path):
    text = "from bt_kernels.variants.fused import Variant\n"
    (tmp_path / "v é.py").write_text(text, encoding="utf-8")
    options = ("--kernels", tmp_path, "--variants", "v é", "--dry-run")
    assert "variant name 'v é' cannot be a file name; expected" in refused(
        "sweep", config, *options
    )


def test_closed_stdout(config):
    outcome = run_apart("list", prologue="import sys\nsys.stdout = None")
    assert outcome.code == 0, outcome.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_one_line(config):
    outcome = run_apart("schema", prologue="import os\nos.dup2(os.open('/dev/full', 1), 1)")
    assert outcome.code == 2
    assert "No space left on device" in outcome.err
    assert "Traceback" not in outcome.err


# Whatever is printed goes to a pipe that nobody reads.
CLOSED_PIPE = "import os\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\n"
FULL = "import os\nfor stream in {}: os.dup2(os.open('/dev/full', os.O_WRONLY), stream)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("arguments", "streams", "code"),
    [
        (["sweep", "nothing.yaml"], [2], 2),
        (["sweep", "--no-such-option"], [2], 2),
        (["--version"], [1, 2], 2),
    ],
    ids=["error", "the parser's", "output, both"],
)
def test_a_full_disk_is_no_regression(arguments, streams, code):
    outcome = run_apart(*arguments, prologue=FULL.format(streams), forked=True)
    assert (outcome.code, outcome.out, outcome.err) == (code, "", "")


def test_ctrl_c_before_a_command_runs_is_no_regression():
    """Python ends with 1 if it is to exit with a text, and Typer if it is interrupted itself."""
    interrupt = "os.kill(os.getpid(), signal.SIGINT)"
    find = f"lambda name, *_: {interrupt} if name == 'bt_bench.cli.app' else None"
    while_imported = f"sys.meta_path.insert(0, type('', (), dict(find_spec={find})))"
    while_parsed = f"import typer.main; typer.main.get_command = lambda *_: {interrupt}"
    for moment in (while_imported, while_parsed):
        outcome = run_apart("--version", prologue=f"import os, signal, sys\n{moment}")
        assert (outcome.code, outcome.out, outcome.err) == (130, "", "bt-bench: interrupted\n")


def test_an_error_around_a_command_is_no_regression():
    broken = "import typer.main\ntyper.main.get_command = lambda *_: 1 / 0"
    outcome = run_apart("--version", prologue=broken)
    assert outcome.code == 70
    assert "ZeroDivisionError" in outcome.err
    assert "bt-bench: internal error" in outcome.err


@pytest.mark.parametrize("arguments", [["sweep", "quick", "{}"], ["check", "--no-{}"], ["{}"]])
def test_nor_in_an_error_of_the_parser(arguments):
    outcome = run(*(argument.format("a\x1b[31m\u202e") for argument in arguments))
    assert outcome.code == 2
    assert r"a\x1b[31m\u202e" in outcome.err
    assert not set("\x1b\u202e") & set(outcome.err)


def test_control_characters_do_not_reach_the_terminal():
    outcome = run("sweep", "\x1b[31mred\x07.yaml")
    assert outcome.code == 2
    assert "\x1b" not in outcome.err
    assert r"\x1b[31mred\x07.yaml" in outcome.err


def test_nor_do_those_of_a_variants_docstring(tmp_path):
    (tmp_path / "red.py").write_text('"""A \\x1b[31mred\\x07 \\u202e one."""\n')
    outcome = run("list", "--kernels", tmp_path)
    assert outcome.code == 0
    assert r"red                 A \x1b[31mred\x07 \u202e one" in outcome.out
    assert not set("\x1b\x07\u202e") & set(outcome.out)
