"""Which variants a run was to measure, by the config that lies in its folder."""

from __future__ import annotations

import re
from pathlib import Path

from bt_bench.config.problems import Problems
from bt_bench.config.sources import read_config
from bt_bench.config.yaml_source import parse_yaml
from bt_bench.errors import UsageError
from bt_bench.store import CONFIG_NAME

# The key and what is indented below it, or a list beside it: a config of a thousand cases takes
# many times longer to read whole.
_VARIANTS = re.compile(r"^variants[ \t]*:.*\n(?:(?:[ \t-].*)?\n)*", re.MULTILINE)


def planned_variants(folder: Path) -> tuple[str, ...] | None:
    """The variants that a run folder's config names, in its order; `None` without a config.

    Raises:
        UsageError: for a config that does not say.
    """
    path = folder / CONFIG_NAME
    if not path.exists():
        return None  # of an earlier version, or results that somebody put together
    text = read_config(path).text
    found = _VARIANTS.findall(text if text.endswith("\n") else f"{text}\n")
    problems = Problems()
    root = parse_yaml(found[0] if len(found) == 1 else text, str(path), problems)
    problems.raise_if_any()
    top = root.plain() if root is not None else None
    names = top.get("variants") if isinstance(top, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"{path} does not say which variants were measured; expected a list under 'variants', "
            "as sweep writes it. Put it back as it was"
        )
    return tuple(dict.fromkeys(names))
