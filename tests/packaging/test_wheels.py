"""The wheels and source distributions of both packages, as their build backend makes them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.vllm_runner import write_package

from bt_kernels import native

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
BUILD = "from hatchling import build; print(build.build_{what}({folder!r}))"
HELPERS = ("launcher", "staged")

COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
CAN_COMPILE = COMPILER and (Path(sysconfig.get_path("include")) / "Python.h").is_file()
needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
needs_compiler = pytest.mark.skipif(not CAN_COMPILE, reason="no C compiler or no Python.h")

# Prints where each helper was loaded from, or why there is none.
LOADED = """\
import sys
from bt_kernels import native
for name in ("launcher", "staged"):
    module = native.load(name)
    print(native.why_not(name) if module is None else module.__file__)
assert "triton" not in sys.modules or native.load("staged") is None
"""


def built(what: str, source: Path, folder: Path, **environment: str) -> tuple[Path, str]:
    """Builds a wheel or an sdist; returns it, and what was said meanwhile."""
    folder.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if k not in ("CC", "PYTHONPATH", native.SWITCH)}
    # For a hatchling that a path names.
    kept["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", BUILD.format(what=what, folder=str(folder))],
        cwd=source,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1], done.stdout + done.stderr


@pytest.fixture(scope="module")
def kernels_wheel(tmp_path_factory):
    return built("wheel", KERNELS, tmp_path_factory.mktemp("kernels"))[0]


@pytest.fixture
def unpacked(kernels_wheel, tmp_path):
    folder = tmp_path / "unpacked"
    zipfile.ZipFile(kernels_wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def bench_wheel(tmp_path_factory):
    return built("wheel", ROOT, tmp_path_factory.mktemp("bench"))[0]


def names_in(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def metadata_of(wheel: Path):
    (name,) = [n for n in names_in(wheel) if n.endswith(".dist-info/METADATA")]
    return Parser().parsestr(zipfile.ZipFile(wheel).read(name).decode())


def tracked(folder: str) -> set[str]:
    """The files below a folder of the repository that git tracks or would."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if (ROOT / line).is_file()}


def settings(folder: Path):
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def loaded(folder: Path) -> list[str]:
    """What `LOADED` prints where there are neither compiler nor cache."""
    environment = {
        "PYTHONPATH": str(folder),
        "PATH": str(folder),
        "TRITON_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# bt-kernels


@needs_git
def test_the_kernels_wheel_has_the_package_and_no_more(kernels_wheel):
    files = {name.removeprefix("kernels/") for name in tracked("kernels/bt_kernels")}
    helpers = {f"bt_kernels/native/{native.file_of(name)}" for name in HELPERS}
    found = {name for name in names_in(kernels_wheel) if ".dist-info/" not in name}
    assert found - helpers == files
    assert found & helpers == (helpers if CAN_COMPILE else set())


@needs_compiler
def test_it_is_tagged_for_one_python_and_platform(kernels_wheel):
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert kernels_wheel.name == f"bt_kernels-0.1.0-{python}-{python}-{platform}.whl"


@needs_compiler
def test_its_helpers_are_used_without_a_compiler(unpacked):
    folder = unpacked / "bt_kernels" / "native"
    assert loaded(unpacked) == [str(folder / native.file_of(name)) for name in HELPERS]


@needs_compiler
@pytest.mark.parametrize("harm", ["source", "header", "file"])
def test_its_helpers_are_not_used_if_they_are_not_of_what_is_beside_them(harm, unpacked):
    folder = unpacked / "bt_kernels" / "native"
    if harm == "file":
        for name in HELPERS:
            path = folder / native.file_of(name)
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
    else:
        for path in folder.glob("*.c" if harm == "source" else "packing.h"):
            path.write_text(path.read_text() + "\n")
    assert all(".so" not in line for line in loaded(unpacked))


@needs_compiler
def test_an_editable_installation_has_none(tmp_path):
    wheel, _ = built("editable", KERNELS, tmp_path / "out")
    assert not [name for name in names_in(wheel) if name.endswith(".so")]
    assert not list((KERNELS / "bt_kernels").rglob("*.so"))


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"CC": "no-such-compiler"}, "CC is no-such-compiler, which was not found"),
        ({"CC": "false"}, "returned non-zero exit status 1"),
        ({native.SWITCH: "0"}, "the environment has BT_KERNELS_NATIVE=0"),
    ],
)
def test_without_helpers_it_is_built_all_the_same_and_says_so(environment, why, tmp_path):
    wheel, said = built("wheel", KERNELS, tmp_path / "out", **environment)
    assert wheel.name == "bt_kernels-0.1.0-py3-none-any.whl"
    assert "built without its helpers in C" in said
    assert why in said or "Python.h is not in" in said
    assert not [name for name in names_in(wheel) if name.endswith(".so")]


@pytest.mark.skipif(not sysconfig.get_platform().startswith("linux"), reason="for Linux")
def test_it_can_be_built_for_another_processor(tmp_path):
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        pytest.skip("no Python.h")
    compiler = tmp_path / "cross-cc"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last"\n')
    compiler.chmod(0o755)
    other = {"CC": str(compiler), "_PYTHON_HOST_PLATFORM": "linux-riscv64"}
    wheel, _ = built("wheel", KERNELS, tmp_path / "out", **other)
    assert wheel.name.endswith("-linux_riscv64.whl")
    here = sysconfig.get_platform().removeprefix("linux-")
    suffix = EXTENSION_SUFFIXES[0].replace(here, "riscv64")
    for name in HELPERS:
        content = zipfile.ZipFile(wheel).read(f"bt_kernels/native/{name}{suffix}")
        assert content.startswith(b"-O3 -shared -fPIC ")


# Loads general plugins as vLLM does, has its runner make a step, and prints what is there.
ENGINE = """\
import json, os, sys
from importlib import metadata, util
import vllm
before = dict(os.environ), list(sys.meta_path)
for entry in metadata.entry_points(group="vllm.general_plugins"):
    entry.load()()
import torch
from types import SimpleNamespace
from vllm.v1.worker.gpu import block_table, model_runner
layout = SimpleNamespace(
    block_sizes=[16], max_num_reqs=4, max_num_batched_tokens=32, widths=[3], cp_size=1, cp_rank=0,
    cp_interleave=1, slot_mapping_enabled=[True], dcp_sharded=[True], sliding_window_reach=[0],
)
runner = model_runner.GPUModelRunner
tables = runner(layout).block_tables
print(json.dumps({
    "classes": [repr(block_table.BlockTables), repr(model_runner.BlockTables)],
    "metaclass": type(block_table.BlockTables).__name__,
    "tables": f"{type(tables).__module__}.{type(tables).__qualname__}",
    "wrapped": [n for n, m in vars(runner).items() if hasattr(m, "_bt_kernels_wraps")],
    "changed": [dict(os.environ) != before[0], sys.meta_path != before[1]],
    "importable": util.find_spec("bt_kernels") is not None,
}))
"""


@pytest.fixture
def engine(tmp_path):
    """Functions that run pip, and the engine above, in an environment with torch and Triton."""
    links, venv = tmp_path / "links", tmp_path / "venv"
    links.mkdir()
    # All that is here, but not this project, which may be installed as editable.
    for folder in {sysconfig.get_path(which) for which in ("purelib", "platlib")}:
        for entry in Path(folder).iterdir():
            if not re.match(r"_*(editable_*)?bt[_-]", entry.name) and entry.suffix != ".pth":
                (links / entry.name).symlink_to(entry)
    words = [sys.executable, "-m", "venv", "--without-pip", str(venv)]  # that of the links
    subprocess.run(words, check=True, capture_output=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "links.pth").write_text(f"{links}\n")
    write_package(tmp_path / "vllm")
    path = os.pathsep.join(map(str, (tmp_path / "vllm", ROOT / "tests")))
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("BT_", "PIP_"))
    }

    def run(*words, **variables):
        done = subprocess.run(
            [str(venv / "bin" / "python"), *map(str, words)],
            env=kept | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(mode):
        environment = {"PYTHONPATH": path, "BT_KERNELS": mode, "TRITON_INTERPRET": "1"}
        return json.loads(run("-c", ENGINE, **environment).splitlines()[-1])

    def pip(*words):
        return run("-m", "pip", "--disable-pip-version-check", *words)

    def files():
        return sorted(path.name for path in packages.iterdir())

    return SimpleNamespace(start=start, pip=pip, files=files)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pip") is None, reason="this environment has no pip")
def test_an_engine_is_as_it_was_once_it_is_uninstalled(kernels_wheel, engine):
    """Nor does installing it change torch, Triton, or anything else that is there."""
    files, distributions = engine.files(), engine.pip("list", "--format=freeze").splitlines()
    assert [line for line in distributions if line.startswith("torch==")]
    assert not [line for line in distributions if line.startswith("bt")]
    before = engine.start("on")
    assert (before["importable"], before["wrapped"]) == (False, [])
    engine.pip("install", "--no-index", kernels_wheel)
    found = engine.pip("list", "--format=freeze").splitlines()
    assert set(found) - set(distributions) == {"bt-kernels==0.1.0"}
    assert set(distributions) < set(found)
    assert engine.start("off") == before | {"importable": True}
    replaced = engine.start("on")
    assert replaced["tables"] == "bt_kernels.engines.plugin.deferring.DeferringTables"
    assert replaced["wrapped"] == ["prepare_attn", "execute_model"]
    assert replaced["metaclass"] != before["metaclass"]
    engine.pip("uninstall", "--yes", "bt-kernels")
    assert engine.start("on") == before
    assert engine.files() == files
    assert engine.pip("list", "--format=freeze").splitlines() == distributions


# bt-bench


@needs_git
def test_the_light_wheel_has_the_tool_and_its_configs_and_no_kernels(bench_wheel):
    assert bench_wheel.name == "bt_bench-0.1.0-py3-none-any.whl"
    found = {name for name in names_in(bench_wheel) if ".dist-info/" not in name}
    configs = {f"bt_bench/{name}" for name in tracked("configs")}
    assert found == tracked("bt_bench") | configs


def test_it_requires_nothing_heavy_but_by_extras(bench_wheel):
    required = metadata_of(bench_wheel).get_all("Requires-Dist")
    light = {re.match(r"[\w-]+", line)[0] for line in required if "extra ==" not in line}
    assert light == {"jinja2", "msgspec", "numpy", "pydantic", "rich", "ruamel-yaml", "typer"}
    run = {re.match(r"[\w-]+", line)[0] for line in required if "extra == 'run'" in line}
    assert run == {"bt-kernels", "nvidia-ml-py", "nvtx", "torch", "triton"}


def test_both_packages_agree():
    bench, kernels = settings(ROOT), settings(KERNELS)
    for key in ("version", "requires-python", "license", "authors"):
        assert bench[key] == kernels[key]
    pythons = [
        {line for line in each["classifiers"] if "Python :: 3." in line}
        for each in (bench, kernels)
    ]
    assert pythons[0] == pythons[1]
    run = bench["optional-dependencies"]["run"]
    major, minor, _ = kernels["version"].split(".")
    assert f"bt-kernels>={major}.{minor},<{major}.{int(minor) + 1}" in run
    shared = {line for line in kernels["dependencies"] if line.startswith(("torch", "triton"))}
    assert shared < set(run)
    assert (ROOT / "LICENSE").read_bytes() == (KERNELS / "LICENSE").read_bytes()


# Source distributions


def in_sdist(archive: Path) -> set[str]:
    with tarfile.open(archive) as file:
        return {name.partition("/")[2] for name in file.getnames()}


@needs_git
def test_the_source_of_the_tool_can_be_set_up_and_tested(tmp_path):
    """All that git tracks is there but what a checkout alone needs."""
    archive, _ = built("sdist", ROOT, tmp_path / "out")
    missing = {name.partition("/")[0] for name in tracked(".") - in_sdist(archive)}
    assert missing <= {".ci", ".gitattributes", ".github", "reports"}


def test_the_source_of_the_kernels_makes_the_same_wheel(tmp_path, kernels_wheel):
    archive, _ = built("sdist", KERNELS, tmp_path / "out")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    wheel, _ = built("wheel", source, tmp_path / "again")
    assert names_in(wheel) == names_in(kernels_wheel)
