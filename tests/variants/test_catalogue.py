"""Loading variants: shared, and with code of their own."""

from __future__ import annotations

import os
import re
import sys

import pytest
from support.repositories import KERNELS, write

from bt_bench.base.errors import UsageError
from bt_bench.protocol import default_suite
from bt_bench.variants.catalogue import find_variants, load, load_apart, variants_folder
from bt_bench.worker.checking.own_code import files_of, sizes_of


def test_arms_that_are_loaded_apart_share_no_code():
    """Python specialises code for the types that it meets; so each arm needs code of its own."""
    entry = find_variants()["fused"]
    before = {name: module for name, module in sys.modules.items() if "bt_kernels" in name}
    first, second = load_apart(entry), load_apart(entry)
    assert first is not second
    for method in ("append_block_ids", "prepare_step", "apply_staged_writes", "restore"):
        assert getattr(first, method).__code__ is not getattr(second, method).__code__, method
    globals_of = [variant.append_block_ids.__globals__ for variant in (first, second)]
    for name in ("arguments", "refuse_append", "CapturedWrites", "launches"):
        assert globals_of[0][name] is not globals_of[1][name], name
    after = {name: module for name, module in sys.modules.items() if "bt_kernels" in name}
    assert before == after


def test_what_is_loaded_shared_is_the_same_again():
    entry = find_variants()["fused"]
    assert load(entry) is load(entry)


def test_a_users_file_is_loaded_apart_as_well(tmp_path):
    (tmp_path / "mine.py").write_text("from bt_kernels.variants.fused import Variant as Variant\n")
    entry = find_variants([tmp_path])["mine"]
    shared, apart = load(entry), load_apart(entry)
    assert apart is not shared
    assert apart.prepare_step.__globals__ is not shared.prepare_step.__globals__


SUBCLASS = """from bt_kernels.fusions import FusedGatherSlots


class Variant(FusedGatherSlots):
    def {}(self, *arguments):
        pass
"""


@pytest.mark.parametrize(
    ("name", "meant"),
    [("_lanch_apply", "_launch_apply"), ("prepare_steps", "prepare_step")],
)
def test_a_method_that_nothing_calls_and_that_looks_like_another_is_refused(name, meant, tmp_path):
    (tmp_path / "mine.py").write_text(SUBCLASS.format(name))
    message = f"mine.py:5: Variant has '{name}', which nothing uses; did you mean '{meant}'?"
    with pytest.raises(UsageError, match=re.escape(message)):
        load(find_variants([tmp_path])["mine"])


ODD = {
    "a lock of an editor": lambda folder: (folder / ".#mine.py").symlink_to("somebody@host.1"),
    "a folder": lambda folder: (folder / "odd.py").mkdir(),
    "a loop": lambda folder: (folder / "odd.py").symlink_to("odd.py"),
    "a dead link": lambda folder: (folder / "odd.py").symlink_to("nowhere"),
    "a pipe": lambda folder: os.mkfifo(folder / "odd.py"),
    "a name of bytes": lambda folder: (folder / os.fsdecode(b"\xff.py")).touch(),
    "a name with an escape": lambda folder: (folder / "a\x1b[1m.py").touch(),
}


@pytest.mark.parametrize("what", ODD)
def test_what_cannot_be_a_variant_is_passed_over(what, tmp_path):
    write(tmp_path, {"mine/mine.py": "", "root/bt_kernels/variants/fused.py": ""})
    ODD[what](tmp_path / "mine")
    found = find_variants([tmp_path / "mine"])
    assert [name for name, entry in found.items() if not entry.shipped] == ["mine"]
    ODD[what](tmp_path / "root/bt_kernels/variants")
    (entry,) = find_variants(kernels=tmp_path / "root").values()
    assert (entry.name, len(entry.source_sha256())) == ("fused", 64)


def test_a_variant_too_deep_to_be_parsed_is_there_and_says_nothing(tmp_path):
    (tmp_path / "mine.py").write_text(f"x = {' + '.join('1' * 20_000)}\n")
    assert find_variants([tmp_path])["mine"].summary == ""


def sparse(path, text):
    """A file of a terabyte, which takes no room."""
    path.write_bytes(text)
    os.truncate(path, 1 << 40)


UNUSUAL = {
    "a byte-order mark": (b'\xef\xbb\xbf"""Mine."""\n', "Mine."),
    "another encoding": ('# -*- coding: latin-1 -*-\n"""Café."""\n'.encode("latin-1"), "Café."),
    "comments first": (b'#!/usr/bin/python\n\n# Mine.\nr"""\n  Mine, too.\n"""\n', "Mine, too."),
    "an unknown encoding": (b'# -*- coding: nonsense -*-\n"""Mine."""\n', ""),
    "no text": (b'"""\xff"""\n', ""),
    "UTF-16": ('"""Mine."""\n'.encode("utf-16"), ""),
    "a NUL": (b"x = 1\0\n", ""),
    "no docstring": (b"x = 1\n", ""),
    "bytes": (b'b"Mine."\n', ""),
    "no end of the docstring": (b'"""Mine.\n', ""),
    "brackets": (b"[" * 100_000, ""),
    "signs": (b"-" * 100_000 + b"1\n", ""),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_files_have_a_summary_or_none(what, tmp_path):
    content, summary = UNUSUAL[what]
    (tmp_path / "mine.py").write_bytes(content)
    assert find_variants([tmp_path])["mine"].summary == summary


def test_of_a_file_of_any_size_only_the_top_is_read(tmp_path):
    sparse(tmp_path / "mine.py", b'"""Mine."""\n')
    sparse(tmp_path / "other.py", b"")
    found = find_variants([tmp_path])
    assert (found["mine"].summary, found["other"].summary) == ("Mine.", "")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-8"])
def test_a_variant_loads_from_any_encoding_that_python_reads(encoding, tmp_path):
    declared = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    text = f'{declared}"""Café."""\n{SUBCLASS.format("_launch_apply")}\n'
    (tmp_path / "mine.py").write_bytes(text.encode(encoding))
    variant = load(find_variants([tmp_path])["mine"])
    assert variant.__name__ == "Variant"
    assert (tmp_path / "mine.py").resolve() in files_of(default_suite(), variant)
    assert sizes_of(default_suite(), variant) == ()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("_lanch_apply", "    def _launch_slots(self, *_):\n        self._lanch_apply()\n"),
        ("_lanch_apply", '    def _launch_slots(self):\n        getattr(self, "_lanch_apply")()\n'),
        ("_lanch_apply", "    def _launch_apply(self, *arguments):\n        pass\n"),
        ("halves", ""),  # which is like no other
    ],
)
def test_a_method_that_the_file_uses_or_has_beside_the_other_is_not(name, more, tmp_path):
    (tmp_path / "mine.py").write_text(f"{SUBCLASS.format(name)}\n{more}")
    assert getattr(load(find_variants([tmp_path])["mine"]), name)


def another_revision(folder):
    """A second `bt_kernels`, whose variants tell that they are of it."""
    write(
        folder,
        {
            "bt_kernels/__init__.py": "",
            "bt_kernels/layout.py": "REVISION = 2\n",
            "bt_kernels/variants/__init__.py": "",
            "bt_kernels/variants/fused.py": "from bt_kernels.layout import REVISION\n"
            "from bt_kernels_of import methods\n\nVariant = methods(REVISION)\n",
        },
    )
    methods = (
        "def methods(revision):\n"
        "    names = ('append_block_ids', 'apply_staged_writes', 'gather_block_tables',\n"
        "             'compute_slot_mappings', 'gather_and_compute_slot_mappings',\n"
        "             'prepare_step', 'snapshot', 'restore')\n"
        "    return type('Variant', (), dict.fromkeys(names, lambda self: revision))\n"
    )
    write(folder, {"bt_kernels_of.py": methods})
    return folder


def test_a_variant_of_another_revision_gets_that_revisions_kernels(tmp_path):
    root = another_revision(tmp_path)
    before = {name: module for name, module in sys.modules.items() if "bt_kernels" in name}
    found = find_variants(kernels=root)
    assert set(found) == {"fused"}
    variant = load_apart(found["fused"])
    assert variant().prepare_step() == 2
    assert str(root) not in sys.path
    sys.modules.pop("bt_kernels_of")
    assert before == {n: m for n, m in sys.modules.items() if "bt_kernels" in n}
    assert load_apart(find_variants()["fused"]).prepare_step.__module__ != variant.__module__


def test_the_digest_is_of_the_revision(tmp_path):
    root = another_revision(tmp_path)
    entry = find_variants(kernels=root)["fused"]
    before = entry.source_sha256()
    write(root, {"bt_kernels/layout.py": "REVISION = 3\n"})
    changed = entry.source_sha256()
    assert changed != before
    write(root, {"bt_kernels/staged.c": "int revision = 3;\n"})
    in_c = entry.source_sha256()
    assert in_c != changed
    write(root, {"bt_kernels/staged.h": "int of_a_header;\n"})
    assert entry.source_sha256() != in_c
    assert (
        find_variants(kernels=KERNELS)["fused"].source_sha256()
        == find_variants()["fused"].source_sha256()
    )


def test_kernels_that_come_from_elsewhere_all_the_same_are_refused(tmp_path, monkeypatch):
    """As by an editable installation whose import hook goes before sys.path."""
    root = another_revision(tmp_path)

    class Hook:
        def find_spec(self, name, path=None, target=None):
            if name == "bt_kernels":
                from importlib.util import spec_from_file_location

                file = KERNELS / "bt_kernels/__init__.py"
                return spec_from_file_location(
                    name, file, submodule_search_locations=[str(file.parent)]
                )
            return None

    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])
    with pytest.raises(UsageError, match=r"bt_kernels was imported from .* is to be measured"):
        load_apart(find_variants(kernels=root)["fused"])


def test_a_folder_without_kernels_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no bt_kernels/variants"):
        find_variants(kernels=tmp_path)


@pytest.mark.parametrize("package", ["odd_kernels", "odd.kernels"])
def test_an_installed_package_is_found_without_running_it(tmp_path, monkeypatch, package):
    """Who only looks for variants may be about to judge them."""
    folder = tmp_path.joinpath(*package.split("."))
    (folder / "variants").mkdir(parents=True)
    for each in (folder, folder.parent, folder / "variants"):
        if each != tmp_path:
            (each / "__init__.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert variants_folder(package) == folder / "variants"
    assert package.partition(".")[0] not in sys.modules
    with pytest.raises(UsageError, match="the package no_kernels is not installed"):
        variants_folder("no_kernels")
