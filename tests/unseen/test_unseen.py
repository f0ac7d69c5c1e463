"""Variants written by people who had not read the checker: wrong ones are found, right ones pass.

The docstring of each wrong one, or the top of its patch, has its fault and the calls that show it.
`found.json` of a set has the scenario that finds each, by `bt-bench check` and by `--deep`; `python
studies/unseen.py SET` writes it anew.

- `first/` was written before variants were explored, and the scenarios were widened by what they
  missed of it; `second/` after that, and they were widened by what they missed of it, too.
- `third/` was written after that.
- `fourth/` to `twelfth/` were written one after the other, by people who had read neither the
  scenarios nor each other; half of each are patches of the shipped kernels. Before the scenarios
  were widened by what they had missed of it, a default run found 45 of the 60, and of 30 each 21,
  20, 29, 25, 22, 27, 27, and 29. `found.json` says what finds each now.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.forked import workers_forked
from support.planted import PACKAGE, apply, variant_of

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "studies"))

from unseen import COMMAND, check, names_in, replaying  # noqa: E402

from bt_bench.runs import SCENARIOS  # noqa: E402

SETS = sorted(path.parent.name for path in HERE.glob("*/wrong"))
FOUND: dict[str, dict[str, dict[str, str | None]]] = {
    name: json.loads((HERE / name / "found.json").read_text(encoding="utf-8")) for name in SETS
}
PATCHES = sorted(HERE.glob("*/planted/*.patch"))
# Tests explore with few scenarios otherwise.
ALL = ("--explore", str(SCENARIOS[False]))
RIGHT = [(of, path.stem) for of in SETS for path in sorted((HERE / of / "right").glob("*.py"))]


@pytest.mark.parametrize("of", SETS)
def test_what_was_tried_is_there(of: str) -> None:
    there = names_in(HERE / of)
    assert {*FOUND[of]} <= {*there}
    assert sorted(FOUND[of]) == there


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: f"{patch.parts[-3]}-{patch.stem}")
def test_patches_apply(patch: Path) -> None:
    kernels = HERE.parents[1] / "kernels"
    apply(patch, kernels, "--dry-run")
    assert (kernels / PACKAGE / "variants" / f"{variant_of(patch)}.py").is_file()


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("of", "name"),
    [(of, name) for of in SETS for name, each in FOUND[of].items() if each["quick"]],
)
def test_wrong_variants_are_found(
    of: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each worker would import torch: those that look, that find it again, and that explain it.
    monkeypatch.setattr("unseen.COMMAND", f"{workers_forked()}\n{COMMAND}")
    scenario = FOUND[of][name]["quick"]
    outcome = check(HERE / of, name, tmp_path, *replaying(scenario or ""))
    assert outcome.returncode == 5, outcome.stdout + outcome.stderr
    # Found for what it computes, and not because today's kernels have no such part any more.
    assert not any(each in outcome.stdout for each in ("survey", "AttributeError", "NameError"))


@pytest.mark.slow
@pytest.mark.parametrize(("of", "name"), RIGHT)
def test_right_variants_pass(of: str, name: str, tmp_path: Path) -> None:
    outcome = check(HERE / of, name, tmp_path, *ALL)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
