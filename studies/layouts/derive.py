"""Derive the layouts of `models.json` anew: the models' tables as vLLM makes them.

    python studies/layouts/derive.py vllm-0.33.0            # compare, and print each group
    python studies/layouts/derive.py vllm-0.33.0 --write    # write the groups to models.json
    python studies/layouts/derive.py --dimensions           # compare with transformers' classes

The groups come from the code of an unpacked wheel of vLLM (`engine.py`). With `--dimensions`, run
it where the release of transformers is installed that `models.json` names: every dimension that is
not listed as changed must be the default of the model's config class.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib import import_module
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
MODELS = _HERE.parents[1] / "bt_bench/suites/block_tables/workloads/layouts/models.json"


def planned(
    wheel: Path, models: dict[str, dict[str, Any]], lengths: list[int], ranks: int = 1
) -> dict[str, list[dict[str, Any]]]:
    """Return the groups of each model as vLLM plans them, in a process of its own.

    Args:
        wheel: folder of the unpacked wheel.
        models: entries of `models.json`, by name.
        lengths: values of `max_model_len`; the groups have a width for each.
        ranks: ranks that share the tokens of a sequence.

    Raises:
        RuntimeError: with the last line of its errors, if vLLM's code fails.
    """
    requests = [
        {
            "family": entry["family"],
            "dimensions": entry["dimensions"],
            "lengths": lengths,
            "num_speculative_tokens": entry.get("num_speculative_tokens", 0),
            "ranks": ranks,
        }
        for entry in models.values()
    ]
    ended = subprocess.run(
        [sys.executable, str(_HERE / "engine.py"), str(wheel)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"planning failed: {ended.stderr.strip().splitlines()[-1]}")
    return dict(zip(models, json.loads(ended.stdout), strict=True))


def compact(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return equal neighbours as one, with their count, and without widths."""
    rules = [{key: group[key] for key in group if key != "widths"} for group in groups]
    return [{"count": len(list(equal)), **rule} for rule, equal in groupby(rules)]


def differing_dimensions(entry: dict[str, Any]) -> list[str]:
    """Return the dimensions that are not the default of the config class, unless it says so."""
    module, name = entry["config_class"].split(".")
    made = import_module(f"transformers.models.{module}.configuration_{module}")
    config = getattr(made, name)().to_dict()
    found = []
    for key, value in entry["dimensions"].items():
        default = config.get(key)
        if key == "layer_types" and default is not None:
            value = list(islice(cycle(value), len(default)))
        if key not in entry.get("changed", ()) and default != value:
            found.append(f"{key} is {value!r}; {name} has {default!r}")
    return found


def rendered(document: dict[str, Any]) -> str:
    """Return the JSON of `models.json`, with a line for each key of a model and each group."""
    models = []
    for name, entry in document["models"].items():
        groups = ",\n".join(f"    {json.dumps(group)}" for group in entry["groups"])
        keys = [
            f"   {json.dumps(key)}: {json.dumps(value)}"
            for key, value in entry.items()
            if key != "groups"
        ]
        keys.append(f'   "groups": [\n{groups}\n   ]')
        models.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(keys) + "\n  }")
    head = [f" {json.dumps(key)}: {json.dumps(document[key])}" for key in ("release", "conditions")]
    text = ",\n".join([*head, ' "models": {\n' + ",\n".join(models) + "\n }"])
    return f"{{\n{text}\n}}\n"


def main() -> int:
    """Compare, print, or write; return 1 for a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", nargs="?", type=Path, help="folder of the unpacked wheel")
    parser.add_argument("--write", action="store_true", help="write the groups")
    parser.add_argument("--dimensions", action="store_true", help="compare with transformers")
    given = parser.parse_args()
    document = json.loads(MODELS.read_text())
    models = document["models"]
    differences = []
    if given.dimensions:
        for name, entry in models.items():
            differences += [f"{name}: {text}" for text in differing_dimensions(entry)]
    elif given.wheel is None:
        parser.error("expected the folder of an unpacked wheel, or --dimensions")
    else:
        for name, groups in planned(given.wheel, models, [262_144]).items():
            for group in groups:
                print(name, json.dumps(group))
            if compact(groups) != models[name].get("groups"):
                differences.append(f"{name}: vLLM plans other groups")
                models[name]["groups"] = compact(groups)
        if given.write:
            MODELS.write_text(rendered(document))
            differences = []
    print("\n".join(differences) or "no difference")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
