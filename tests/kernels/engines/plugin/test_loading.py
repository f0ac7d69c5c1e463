"""When the plugin acts, where, and how it is taken out again."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import tomllib
import types
from importlib import import_module
from pathlib import Path

import pytest
import torch
from support.vllm_runner import GPU, imported_from, write_package

from bt_kernels.engines import plugin
from bt_kernels.engines.plugin import counting, loading, messages, releases, settings
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.older import OlderTables
from bt_kernels.layout import TableLayout

KERNELS = Path(__file__).resolve().parents[4] / "kernels"
TESTS = Path(__file__).resolve().parents[3]
LAYOUT = TableLayout((16, 8), (3, 5), max_num_reqs=4, max_num_batched_tokens=32)


@pytest.fixture
def package(tmp_path, device):
    """Function that imports modules of a stand-in `vllm` of a release."""
    entered = []

    def enter(release="0.33.0"):
        entered.append(imported_from(write_package(tmp_path, release=release)))
        return entered[-1].__enter__()

    messages.forget()
    yield enter
    plugin.remove()
    counting.reset()
    for each in entered:
        each.__exit__(None, None, None)


def tables_of(module):
    return module("model_runner").GPUModelRunner(LAYOUT).block_tables


def is_vllms(tables):
    return type(tables).__module__.startswith("vllm.") and not isinstance(tables, DeferringTables)


def run(code, tmp_path, **environment):
    """Run code in a new process, in which the stand-in `vllm` can be imported."""
    write_package(tmp_path)
    path = os.pathsep.join(map(str, (tmp_path, KERNELS, KERNELS.parent, TESTS)))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def entry_point():
    project = tomllib.loads((KERNELS / "pyproject.toml").read_text("utf-8"))["project"]
    return project["entry-points"]["vllm.general_plugins"]["bt_kernels"]


def test_the_entry_point_is_the_function():
    module, _, name = entry_point().partition(":")
    assert getattr(import_module(module), name) is plugin.load


@pytest.mark.parametrize("mode", [None, "", "off"])
def test_off_changes_nothing(package, monkeypatch, caplog, mode):
    monkeypatch.delenv("BT_KERNELS", raising=False)
    if mode is not None:
        monkeypatch.setenv("BT_KERNELS", mode)
    module, finders = package(), list(sys.meta_path)
    plugin.load()
    assert sys.meta_path == finders
    assert is_vllms(tables_of(module))
    assert not caplog.records


@pytest.mark.parametrize("value", ["On", "1", "yes"])
def test_an_unknown_mode_is_off_with_one_warning(package, monkeypatch, caplog, value):
    monkeypatch.setenv("BT_KERNELS", value)
    module = package()
    plugin.load()
    plugin.load()
    assert is_vllms(tables_of(module))
    (record,) = caplog.records
    assert f"BT_KERNELS={value!r} is unknown; expected on, shadow or off" in record.message


@pytest.mark.parametrize("release", ["0.24.0", "0.32.1", "0.34.0", "0.34.0.dev3+g1", "dev"])
def test_other_releases_are_refused_by_name(package, monkeypatch, caplog, release):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package(release)
    plugin.load()
    plugin.load()
    assert is_vllms(tables_of(module))
    (record,) = caplog.records
    assert f"vLLM {release} is not supported, since its block tables" in record.message
    assert f"expected {', '.join(releases.RELEASES)}. The engine keeps" in record.message


@pytest.mark.parametrize("release", ["0.33.0", "0.33.0+cu129"])
def test_builds_of_a_known_release_are_taken(package, monkeypatch, caplog, release):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package(release)
    plugin.load()
    assert type(tables_of(module)) is DeferringTables
    assert not caplog.records


def test_an_older_release_has_tables_of_its_own(package, monkeypatch, caplog):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package("0.32.0")
    plugin.load()
    tables = tables_of(module)
    assert type(tables) is OlderTables
    assert tables.num_dirty_rows == 0
    plugin.remove()
    assert is_vllms(tables)
    assert not caplog.records


def change(path):
    path.write_text(path.read_text("utf-8") + "# patched\n", "utf-8")


def test_a_changed_class_is_refused(package, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package("0.33.0+vendor")
    change(tmp_path / GPU / "block_table.py")
    plugin.load()
    assert is_vllms(tables_of(module))
    (record,) = caplog.records
    assert "block_table.py is not the file of vLLM 0.33.0, so it was not" in record.message
    assert record.message.endswith("The engine keeps its own block tables")


def test_in_a_changed_runner_nothing_waits(package, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    change(tmp_path / GPU / "model_runner.py")
    plugin.load()
    assert type(tables_of(module)) is DeferringTables
    runner = module("model_runner").GPUModelRunner
    assert not hasattr(runner.prepare_attn, "_bt_kernels_wraps")
    (record,) = caplog.records
    assert "model_runner.py is not the file of vLLM 0.33.0, so it was not" in record.message
    assert record.message.endswith("Each call is a launch of its own")


def test_a_file_that_cannot_be_read_is_refused():
    module = types.ModuleType("vllm.v1.worker.gpu.block_table")
    with pytest.raises(RuntimeError, match=r"cannot be read: .*\. Nothing happens"):
        releases.check_file(module, releases.RELEASES["0.33.0"], "Nothing happens")


@pytest.mark.parametrize("value", ["0", "-3", "many"])
def test_a_bad_number_of_shadow_steps_is_the_default(package, monkeypatch, caplog, value):
    monkeypatch.setenv("BT_KERNELS", "shadow")
    monkeypatch.setenv("BT_KERNELS_SHADOW_STEPS", value)
    module = package()
    plugin.load()
    assert tables_of(module)._shadow.steps == 1000
    assert f"BT_KERNELS_SHADOW_STEPS={value!r}" in caplog.text


@pytest.mark.parametrize("imported", [(), ("block_table",), ("block_table", "model_runner")])
def test_it_may_be_loaded_before_or_after_modules(package, monkeypatch, imported):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    for name in imported:
        module(name)
    plugin.load()
    tables = tables_of(module)
    assert type(tables) is DeferringTables
    assert isinstance(tables, module("block_table").BlockTables)
    assert issubclass(module("block_table").BlockTables, object)
    assert module("block_table").BlockTables | None  # as annotations have it
    assert hasattr(module("model_runner").GPUModelRunner.execute_model, "_bt_kernels_wraps")


@pytest.mark.parametrize("copies", [True, False])
def test_a_wrapper_of_somebody_around_ours_stays(package, monkeypatch, copies):
    """Before the first tables, which bring wrappers in C, and when the plugin is taken out."""
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    plugin.load()
    runner, wrappers = module("model_runner").GPUModelRunner, {}
    for name in ("execute_model", "prepare_attn"):
        ours = vars(runner)[name]
        wrappers[name] = wrapper = lambda *given, ours=ours: ours(*given)
        if copies:
            functools.update_wrapper(wrapper, ours)
        setattr(runner, name, wrapper)
    tables_of(module)
    assert {name: vars(runner)[name] for name in wrappers} == wrappers
    plugin.remove()
    assert {name: vars(runner)[name] for name in wrappers} == wrappers


def test_loaders_are_the_modules_own(package, monkeypatch):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    plugin.load()
    found = module("block_table")
    assert type(found.__loader__) is type(found.__spec__.loader) is type(loading.__loader__)
    assert Path(found.__file__).read_text("utf-8") == found.__loader__.get_source(found.__name__)


def test_loading_twice_changes_nothing_more(package, monkeypatch):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    plugin.load()
    runner, tables = module("model_runner"), module("block_table")
    before = runner.BlockTables, runner.GPUModelRunner.prepare_attn, list(sys.meta_path)
    plugin.load()
    assert before == (runner.BlockTables, runner.GPUModelRunner.prepare_attn, sys.meta_path)
    assert tables.BlockTables is runner.BlockTables


def test_taken_out_everything_is_as_it_was(package, monkeypatch):
    module, finders = package(), list(sys.meta_path)
    own = module("block_table").BlockTables
    methods = dict(vars(module("model_runner").GPUModelRunner))
    monkeypatch.setenv("BT_KERNELS", "on")
    plugin.load()
    tables = tables_of(module)
    plugin.remove()
    assert type(tables) is own
    assert module("block_table").BlockTables is module("model_runner").BlockTables is own
    for name in ("execute_model", "prepare_attn"):
        assert vars(module("model_runner").GPUModelRunner)[name] is methods[name]
    assert sys.meta_path == finders
    plugin.remove()  # nothing is left to do
    plugin.load()
    assert module("block_table").BlockTables is not own


def test_a_class_of_another_plugin_stays(package, monkeypatch, caplog):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    other = type("BlockTables", (), {"__module__": "another_plugin"})
    module("block_table").BlockTables = other
    plugin.load()
    assert module("block_table").BlockTables is other
    assert "another_plugin.BlockTables" in caplog.text


def test_a_runner_without_the_methods_is_called_about(package, monkeypatch, caplog):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    del module("model_runner").GPUModelRunner.prepare_attn
    plugin.load()
    assert type(tables_of(module)) is DeferringTables
    assert "GPUModelRunner.prepare_attn is missing" in caplog.text


def test_subclasses_of_others_are_built_as_without(package, monkeypatch):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    plugin.load()
    theirs = type("Theirs", (module("block_table").BlockTables,), {})
    tables = theirs([16], 4, 32, [3], torch.device("cpu"))
    assert type(tables) is theirs


def test_tables_that_cannot_be_built_are_vllms(package, monkeypatch, caplog):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    plugin.load()

    def fail(_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(DeferringTables, "warmup", fail)
    with caplog.at_level(logging.WARNING):
        assert is_vllms(tables_of(module))
    assert "tables were not built (RuntimeError: no compiler)" in caplog.text
    assert plugin.counters()["failures"] == 1


def test_invalid_arguments_raise_as_in_vllm(package, monkeypatch):
    monkeypatch.setenv("BT_KERNELS", "on")
    module = package()
    plugin.load()
    with pytest.raises(TypeError):
        module("block_table").BlockTables(nonsense=1)


HEAVY = """
import sys
names = ("torch", "triton", "numpy", "bt_kernels.engines.vllm")
heavy = [name for name in names if name in sys.modules]
assert not heavy, heavy
"""


@pytest.mark.parametrize("mode", ["off", "on", "shadow", "nonsense"])
def test_a_front_end_loads_neither_torch_nor_triton(tmp_path, mode):
    module, _, name = entry_point().partition(":")
    code = f"import vllm\nfrom {module} import {name}\n{name}()\n{HEAVY}"
    run(code, tmp_path, BT_KERNELS=mode)


BUILD = """
import vllm
from bt_kernels.engines.plugin import load
load()
from bt_kernels import TableLayout
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
tables = GPUModelRunner(TableLayout((16,), (3,), 4, 32)).block_tables
tables.append_block_ids(1, ([5],), True)
tables.apply_staged_writes()
"""


# A process that is forked from one with torch ends as any other, and starts seconds sooner.
FORKED = """
import gc, os, sys
import bt_kernels.engines.vllm

gc.freeze()  # or each process would look at all of torch when it ends

def run(name, code, **environment):
    sys.stderr.write(f"\\nbegin {name}\\n")
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
        return
    os.environ.update(environment)
    exec(code, globals())
    sys.exit()
"""

IN_A_FORK = """
import multiprocessing, os
from bt_kernels.engines import counters

def in_child():
    assert (counters()["tables"], counters()["pid"]) == (0, os.getpid())
    tables = GPUModelRunner(TableLayout((16,), (3,), 4, 32)).block_tables
    assert hasattr(tables, "take_over") and counters()["tables"] == 1

child = multiprocessing.get_context("fork").Process(target=in_child)
child.start()
child.join()
assert child.exitcode == 0
assert counters()["tables"] == 1
"""


def test_counters_are_printed_at_exit_of_each_process_that_has_its_own(tmp_path):
    """A forked process has the plugin, too."""
    runs = [(value, BUILD, value) for value in ("1", "0", "")]
    runs.append(("fork", BUILD + IN_A_FORK, "1"))
    code = FORKED + "".join(
        f"run({name!r}, {text!r}, BT_KERNELS_COUNTERS={value!r})\n" for name, text, value in runs
    )
    done = run(code, tmp_path, BT_KERNELS="on")
    first = "bt_kernels counters: {'tables': 1, 'steps': 1, 'fused': 0"
    printed = {
        name: (text.count("bt_kernels counters: {'tables': 1"), text.count(first))
        for name, _, text in (part.partition("\n") for part in done.stderr.split("\nbegin ")[1:])
    }
    assert printed == {"1": (1, 1), "0": (0, 0), "": (0, 0), "fork": (2, 1)}, done.stderr


def test_counters_are_copies(package, monkeypatch):
    counters = plugin.counters()
    counters["calls"]["x"] = 1
    assert plugin.counters()["calls"] == {}
    from bt_kernels.engines import counters as exported

    assert exported is plugin.counters
    assert exported()["pid"] == multiprocessing.current_process().pid


def test_the_page_has_all_variables_and_counters():
    page = (KERNELS.parent / "docs" / "vllm-plugin.md").read_text("utf-8")
    variables = {settings.MODE, settings.SHADOW_STEPS, settings.COUNTERS}
    variables |= {settings.RECORD, settings.RECORD_MB, settings.REPRO, settings.INPUTS}
    assert set(re.findall(r"^\| `(BT_\w+)`", page, re.MULTILINE)) == variables
    table = page[page.index("| counter | |") : page.index("A process that is killed")]
    named = re.findall(
        r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:] if row)
    )
    assert set(named) == set(plugin.counters())
    assert f"default {settings.DEFAULT_SHADOW_STEPS}" in page
    assert f"default {settings.DEFAULT_RECORD_MB}" in page
    assert re.findall(r"^\| (0\.\S+) \| (\w+) \| (\w+) \| (\w+) \|$", page, re.MULTILINE) == [
        (
            version,
            "split" if release.splits_blocks else "kept",
            "zeroed" if release.clears_rows else "kept",
            "zeroed" if release.zeroes_dummies else "kept",
        )
        for version, release in releases.RELEASES.items()
    ]
    for code in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(code, {})
