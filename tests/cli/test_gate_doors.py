"""A regression that is not in the variant's own file, seen by whole gates of real processes."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap

import pytest
from support.commands import ONE_CHECK, run_apart
from support.repositories import commit, repository, write
from support.staging import STAGING

# What the variant does beside its work is said by something else: operations of torch for the
# static gate, and milliseconds for the clock.
VARIANT = '''\
"""A variant that does as much as something else says."""
import time
import torch
from bt_kernels.variants.baseline import Variant as Baseline

{how}

class Variant(Baseline):
    def append_many(self, *arguments):
        more = how_many()
        for _ in range(more):
            torch.ones(1)
        time.sleep(0.05 * more)
        super().append_many(*arguments)
'''
BESIDE = """\
import os, sys
sys.path.insert(0, os.path.dirname(__file__))
"""
HELPER = "import extras\ndef how_many(): return extras.MORE\n"
LIBRARY = "import ctypes\ndef how_many(): return ctypes.CDLL({path}).more()\n"


def variant(how):
    return VARIANT.format(how=textwrap.dedent(how))


def make(folder, way):
    """A repository whose base does nothing more, and whose working tree does 3 of it."""
    files = {"my.yaml": STAGING, ".gitignore": "reports/\n*.so\n", "mine/other.txt": ""}
    where, options, environment, prologue = "mine", [], {}, ""
    if way in ("helper", "symlink"):
        files["mine/one.py"] = variant(BESIDE + HELPER)
        where = "mine/extras/__init__.py" if way == "helper" else "lib/extras.py"
    elif way == "data":
        files["mine/one.py"] = variant(
            "from pathlib import Path\nimport json\n"
            "def how_many(): return json.loads(Path(__file__).with_name('more.json').read_text())\n"
        )
        where = "mine/more.json"
    elif way == "library":
        files["mine/one.py"] = variant(
            LIBRARY.format(path="os.path.dirname(os.path.dirname(__file__)) + '/more.so'").replace(
                "import ctypes", "import ctypes, os"
            )
        )
        where, options = (
            "more.txt",
            [
                "--build",
                'echo "int more(void) { return $(cat more.txt); }" | '
                "gcc -shared -fPIC -x c - -o more.so",
            ],
        )
    else:
        files["mine/one.py"] = variant(HELPER)
        where = "lib/extras.py"
    text = "MORE = {}\n" if where.endswith(".py") else "{}\n"
    top = repository(folder / "repo", files | {where: text.format(0)})
    if way == "symlink":
        (top / "mine/extras.py").symlink_to(top / "lib/extras.py")
        commit(top, "link")
    write(top, {where: text.format(3)})
    lib = str(top / "lib")
    if way == "PYTHONPATH":
        environment = {"PYTHONPATH": lib}
    if way == "BT_BENCH_PYTHONPATH":
        environment = {way: lib}
    if way == "python -m":
        prologue = f"import sys; sys.path[0] = {lib!r}"
    if way == "editable":
        write(
            folder,
            {
                "site/extras.pth": f"{lib}\n",
                "site/sitecustomize.py": "import site\n"
                f"site.addsitedir({str(folder / 'site')!r})\n",
            },
        )
        environment = {"PYTHONPATH": str(folder / "site")}
    return top, options, environment, prologue


def beside_an_environment(made):
    """The same repository, whose top is an environment too: `python -m venv .`; and its Python."""
    top, *others = made
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", top], check=True)
    # What is installed for the tests is installed there.
    path = [place for place in sys.path if place and not place.endswith((".zip", "tests"))]
    packages = sysconfig.get_path("purelib", vars={"base": str(top)})
    write(top, {f"{packages}/all.pth": "".join(f"{place}\n" for place in path)})
    return (top, *others), str(top / "bin/python")


ALL = ["helper", "data", "library", "editable", "python -m", "PYTHONPATH", "symlink"]
ALL += ["BT_BENCH_PYTHONPATH"]


def gate(made, *more, python=sys.executable):
    top, options, environment, prologue = made
    outcome = run_apart(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine", "--json"),
        *options,
        *more,
        cwd=top,
        prologue=ONE_CHECK + prologue,
        environment=environment,
        timeout=600,
        python=python,
    )
    assert outcome.code in (0, 1), outcome.err
    return outcome


def test_an_environment_at_the_top_hides_no_module(tmp_path):
    """Of the doors the one that is not slow."""
    made, python = beside_an_environment(make(tmp_path, "PYTHONPATH"))
    outcome = gate(made, "--static", "--metric", "launches", python=python)
    (judgement,) = outcome.json()["judgements"]
    assert (judgement["base_value"], judgement["other_value"]) == (0, 3)
    said = "Everything is measured, since the trees differ: lib/extras.py."
    assert outcome.json()["facts"][0] == said


# The others are slow. Each way by itself, without a whole gate, is in
# tests/worker/isolation/test_fence.py.
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ALL)
def test_the_static_gate_sees_it(tmp_path, way):
    outcome = gate(make(tmp_path, way), "--static", "--metric", "launches")
    (judgement,) = outcome.json()["judgements"]
    assert judgement["verdict"] == "SLOWER"
    assert outcome.code == 1
    assert judgement["other_value"] - judgement["base_value"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("way", ALL)
def test_the_live_gate_sees_it(tmp_path, way):
    """That each side ran its own; how sure the verdict is depends on the machine."""
    timed = ("--device", "cpu", "--metric", "stage_us", "--rounds", "3", "--threshold", "20")
    outcome = gate(make(tmp_path, way), *timed)
    (judgement,) = outcome.json()["judgements"]
    assert judgement["other_value"] > 150_000
    assert judgement["other_value"] > judgement["base_value"] + 100_000
    assert judgement["verdict"] in ("SLOWER", "INCONCLUSIVE")
