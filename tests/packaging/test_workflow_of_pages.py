"""The workflow that opens pages in a browser and builds the site."""

from __future__ import annotations

import re
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
WORKFLOW = YAML(typ="safe").load((ROOT / ".github/workflows/pages.yml").read_text("utf-8"))
SCRIPTS = [
    step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step
]


def test_it_may_only_read():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in WORKFLOW["jobs"].values())
    assert not any("${{" in script for script in SCRIPTS)


def test_it_makes_targets_that_exist():
    made = [name for script in SCRIPTS for name in re.findall(r"^make (\S+)", script, re.MULTILINE)]
    assert made == ["test-browser", "site"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in made)


def test_it_installs_the_packages_that_the_target_asks_for():
    (told,) = re.findall(
        r"apt-get install --no-install-recommends ([\w -]+)",
        (ROOT / "tests/support/browser.py").read_text("utf-8"),
    )
    assert any(f"--no-install-recommends {told}\n" in script for script in SCRIPTS)
