"""The workflow that builds, checks and signs a release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
JOBS_TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
WORKFLOW = YAML(typ="safe").load(JOBS_TEXT)
JOBS = WORKFLOW["jobs"]
KERNELS = tomllib.loads((ROOT / "kernels" / "pyproject.toml").read_text(encoding="utf-8"))


def scripts() -> list[str]:
    return [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]


def test_it_publishes_nothing():
    assert not re.search(r"twine upload|pypi-publish|gh release|action-gh-release", JOBS_TEXT)


def test_only_what_signs_may_write():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [name for name, job in JOBS.items() if "permissions" in job] == ["sign"]
    assert JOBS["sign"]["permissions"]["contents"] == "read"
    assert not any("run" in step for step in JOBS["sign"]["steps"])


def test_what_is_signed_was_checked_and_what_is_checked_was_built():
    assert JOBS["sign"]["needs"] == "check"
    assert set(JOBS["check"]["needs"]) == {"kernels", "sources"}


def test_wheels_are_built_and_checked_for_each_python_that_is_named():
    named = {
        line.rpartition(" ")[2]
        for line in KERNELS["project"]["classifiers"]
        if "Python :: 3." in line
    }
    assert set(JOBS["check"]["strategy"]["matrix"]["python"]) == named
    build = KERNELS["tool"]["cibuildwheel"]["build"].split()
    assert {each.removesuffix("-manylinux*") for each in build} == {
        f"cp{each.replace('.', '')}" for each in named
    }


def test_no_expression_is_pasted_into_a_script():
    assert not any("${{" in script for script in scripts())


def test_folders_that_scripts_read_are_there():
    text = "\n".join(scripts())
    assert (ROOT / "reports/h100/origin").is_dir()
    assert "reports/h100/origin" in text
    assert set(re.findall(r"--outdir dist (\S+)", text)) == {".", "kernels"}


def test_the_oldest_versions_are_tried_where_they_all_have_wheels():
    (step,) = [s for s in JOBS["check"]["steps"] if "lowest-direct" in s.get("run", "")]
    bench = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = bench["project"]["requires-python"].removeprefix(">=")
    assert step["if"] == f"matrix.python == '{oldest}'"
