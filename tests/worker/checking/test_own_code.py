"""Which files a variant is written in, and that one which nobody imports does no harm."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from bt_bench.protocol import default_suite
from bt_bench.worker.checking.own_code import files_of, sizes_of

VARIANT = """\
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    def apply_staged_writes(self):
        super().apply_staged_writes()

    def unused(self):
        from my_package import old

        return old
"""


def made(folder: Path, old: bytes) -> type[Any]:
    """The class of a variant file, with a package beside it that has two modules."""
    (folder / "my_package").mkdir(parents=True)
    (folder / "my_package" / "__init__.py").write_text("MOST = 1234\n")
    (folder / "my_package" / "old.py").write_bytes(old)
    path = folder / "mine.py"
    path.write_text(VARIANT)
    space: dict[str, Any] = {"__name__": "mine"}
    exec(compile(VARIANT, str(path), "exec"), space)
    kind: type[Any] = space["Variant"]
    return kind


@pytest.mark.parametrize("old", [b"def (\n", b"LIMIT = '\xff'\n", b"a = 1\0\n"])
def test_files_that_do_not_parse_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = made(tmp_path, old)
    suite = default_suite()
    names = {path.name for path in files_of(suite, kind)}
    assert names == {"mine.py", "__init__.py"}
    assert 1234 in sizes_of(suite, kind)


@pytest.mark.parametrize(
    ("folder", "own"),
    [("lib/python-x/kernels", True), ("lib/python3.11/site-packages/kernels", False)],
)
def test_whose_code_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, own: bool
) -> None:
    place = tmp_path / folder
    monkeypatch.syspath_prepend(str(place))
    kind = made(place, b"LIMIT = 321\n")
    found = files_of(default_suite(), kind)
    assert (place / "mine.py" in found, place / "my_package/old.py" in found) == (own, own)
    standard = Path(sysconfig.get_path("stdlib"))
    assert not any(path.is_relative_to(standard) for path in found)
    assert "my_package" not in sys.modules
