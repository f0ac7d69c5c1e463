"""Variants written by people who had not read the checker: wrong ones are found, right ones pass.

Each wrong one says in its docstring, or at the top of its patch, what is wrong and how it shows;
`demos*.py` beside it show that it does. `found.json` of a set has what finds each, by `bt-bench
check` and by `--deep`; `python benchmarks/unseen.py SET` writes it anew.

- `first/` was written before variants were explored, and the scenarios were widened by what they
  missed of it; `second/` after that, and they were widened by what they missed of it, too.
- `third/` was written after that. What `found.json` of these three says is of older scenarios.
- `fourth/` was written before today's scenarios, by people who had read neither these nor those
  before; half of it are patches of the shipped kernels. `found.json` has those that were tried.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.planted import plant

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

from unseen import check, names_in  # noqa: E402

from bt_bench.runs import SCENARIOS  # noqa: E402

SETS = sorted(path.parent.name for path in HERE.glob("*/wrong"))
LAST = "fourth"
FOUND: dict[str, dict[str, dict[str, str | None]]] = {
    name: json.loads((HERE / name / "found.json").read_text(encoding="utf-8")) for name in SETS
}
# Tests explore with few scenarios otherwise.
ALL = ("--explore", str(SCENARIOS[False]))
RIGHT = [(of, path.stem) for of in SETS for path in sorted((HERE / of / "right").glob("*.py"))]


@pytest.mark.parametrize("of", SETS)
def test_what_was_tried_is_there(of: str) -> None:
    there = names_in(HERE / of)
    assert {*FOUND[of]} <= {*there}
    assert of == LAST or sorted(FOUND[of]) == there


@pytest.mark.parametrize("patch", sorted((HERE / LAST / "planted").glob("*.patch")))
def test_patches_apply(patch: Path, tmp_path: Path) -> None:
    assert plant(patch, tmp_path).is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "name"),
    [(of, name) for of in SETS for name, each in FOUND[of].items() if of != LAST and each["quick"]],
)
def test_wrong_variants_are_found(of: str, name: str, tmp_path: Path) -> None:
    outcome = check(HERE / of, name, tmp_path, *ALL)
    assert outcome.returncode == 5, outcome.stdout + outcome.stderr


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name, each in FOUND[LAST].items() if each["quick"]])
def test_those_of_the_last_set_are_found(name: str, tmp_path: Path) -> None:
    scenario = FOUND[LAST][name]["quick"]
    options = ("--explore", "0") if scenario == "workload" else ("--scenario", scenario or "")
    outcome = check(HERE / LAST, name, tmp_path, *options)
    assert outcome.returncode == 5, outcome.stdout + outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("of", "name"), RIGHT)
def test_right_variants_pass(of: str, name: str, tmp_path: Path) -> None:
    outcome = check(HERE / of, name, tmp_path, *ALL)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
