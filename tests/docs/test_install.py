"""The page on installing names what there is."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

from bt_bench.cli.app import _COMMANDS, _MEASURE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
BENCH, KERNELS = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
    for folder in (".", "kernels")
)


def test_every_extra_is_in_the_table_and_no_other():
    extras = set(BENCH["project"]["optional-dependencies"])
    assert set(re.findall(r"bt-bench\[(\w+)\]", PAGE)) == extras


def test_the_commands_that_need_the_extra_are_named():
    (names,) = re.findall(r"Commands that measure \(([^)]*)\)", PAGE)
    assert [name.strip("`") for name in names.split(", ")] == [
        function.__name__ for function in _COMMANDS[_MEASURE]
    ]


def test_folders_to_install_from_are_there():
    lines = re.findall(r"^(?:uv )?pipx? install (.*?)(?:  #.*)?$", PAGE, re.MULTILINE)
    local = [word for line in lines for word in shlex.split(line) if word.startswith(".")]
    assert {word.partition("[")[0] for word in local} == {".", "./kernels"}
    for word in local:
        assert (ROOT / word.partition("[")[0] / "pyproject.toml").is_file()


def test_versions_are_those_that_are_required():
    pythons = [
        line.rpartition(" ")[2]
        for line in KERNELS["project"]["classifiers"]
        if "Python :: 3." in line
    ]
    assert f"CPython {', '.join(pythons[:-1])} and {pythons[-1]}" in " ".join(PAGE.split())
    assert f"Python {BENCH['project']['requires-python'].removeprefix('>=')} or later" in PAGE
    required = dict(
        re.findall(
            r"^(torch|triton)>=([\d.]+)",
            "\n".join(KERNELS["project"]["dependencies"]),
            re.MULTILINE,
        )
    )
    assert f"torch ({required['torch']} or later) and Triton ({required['triton']} or later)" in (
        " ".join(PAGE.split())
    )
    image = KERNELS["tool"]["cibuildwheel"]["manylinux-x86_64-image"]
    assert f"the gcc of {image}" in " ".join(PAGE.split())


def test_the_oldest_versions_are_those_that_were_tried():
    """With pydantic 2.7 to 2.10 every command ended with a TypeError, and 2.7 was allowed."""
    (told,) = re.findall(r"The oldest versions [^.]* are (.*?);", " ".join(PAGE.split()))
    required = [each.replace(">=", " ") for each in BENCH["project"]["dependencies"]]
    assert re.split(", | and ", told) == required
