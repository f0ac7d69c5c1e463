"""Trees of two revisions, each with a helper, data, and a variant."""

from __future__ import annotations

from pathlib import Path

from bt_bench.protocol import default_suite
from support.repositories import write

METHODS = (*(each.method for each in default_suite().operations), "snapshot", "restore")
# The methods are there, and `says` is what a test looks at.
VARIANT = (
    '"""A variant that nobody runs."""\n{head}\n\nclass Variant:\n'
    + "".join(f"    def {name}(self): ...\n" for name in METHODS)
    + "    @staticmethod\n    def says():\n        {body}\n"
)


def write_sides(top: Path, head: str, body: str, **files: str) -> None:
    """Writes the trees `base` and `head`; in files, `{name}` becomes the tree's name."""
    files = {"lib/helper.py": "NAME = {name!r}\n", "mine/data.json": '"{name}"'} | files
    for name in ("base", "head"):
        texts = {path: text.format(name=name) for path, text in files.items()}
        write(top / name, texts | {"mine/one.py": VARIANT.format(head=head, body=body)})
