"""Variants written by people who had not read the checker: wrong ones are found, right ones pass.

Each wrong one says in its docstring what is wrong and how it shows; `demos.py` beside it shows that
it does. `found.json` of a set has what finds each, by `bt-bench check` and by `--deep`, so that not
all scenarios before it have to be played; `python benchmarks/unseen.py SET` writes it anew when
scenarios have changed.

- `first/` was written before variants were explored, and the scenarios were widened by what they
  missed of it.
- `second/` was written after that, and they were widened by what they missed of it too: with the
  code of that time 25 of 30 were found by 42 scenarios, and 26 by `--deep`.
- `third/` was written after that, and nothing was changed since.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SETS = ("first", "second", "third")
FOUND: dict[str, dict[str, dict[str, str | None]]] = {
    name: json.loads((HERE / name / "found.json").read_text(encoding="utf-8")) for name in SETS
}
RIGHT = sorted(path.stem for path in (HERE / "first" / "right").glob("*.py"))
# Shares of each set that are found: by `check`, and by it or by `--deep`. The latter was run on the
# third set alone since scenarios have changed.
LEAST = {"first": (0.9, 0.9), "second": (24 / 30, 24 / 30), "third": (24 / 30, 28 / 30)}


def check(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    given = ("-k", "uniform_1grp", "--kernels", str(folder), "--variants", name, *options)
    return subprocess.run(
        [sys.executable, "-m", "bt_bench", "check", "quick", *given],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", SETS)
def test_enough_of_each_set_is_found(name: str) -> None:
    found = FOUND[name]
    assert sorted(found) == sorted(path.stem for path in (HERE / name / "wrong").glob("*.py"))
    quick, deep = LEAST[name]
    assert sum(each.get("quick") is not None for each in found.values()) >= quick * len(found)
    either = [each for each in found.values() if any(each.values())]
    assert len(either) >= deep * len(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "name"),
    [(of, name) for of in SETS for name, found in FOUND[of].items() if any(found.values())],
)
def test_wrong_variants_are_found(of: str, name: str) -> None:
    quick, deep = FOUND[of][name].get("quick"), FOUND[of][name].get("deep")
    scenario = quick or deep
    options = () if scenario == "workload" else ("--scenario", scenario or "")
    outcome = check(HERE / of / "wrong", name, *options, *["--deep"] * (quick is None))
    assert outcome.returncode == 5, outcome.stdout + outcome.stderr


def test_the_documentation_says_how_many() -> None:
    quick, deep = (
        sum(each[way] is not None for each in FOUND["third"].values()) for way in ("quick", "deep")
    )
    text = " ".join((HERE.parents[1] / "docs" / "variants.md").read_text("utf-8").split())
    assert f"`bt-bench check` finds {quick} of the 30, and `--deep` {deep} " in text


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_variants_pass(name: str) -> None:
    outcome = check(HERE / "first" / "right", name, "--scenario", "0-59")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
