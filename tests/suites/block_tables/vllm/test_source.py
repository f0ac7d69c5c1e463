"""Where vLLM's block tables are found, what the variants are called, and what is refused."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
from support.vllm_stand_in import NEW, OLD, write_stand_in

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.vllm.opponents import VllmOpponents
from bt_bench.suites.block_tables.vllm.source import Sources, find_sources, is_opponent
from bt_bench.variants.catalogue import find_variants


def two(tmp_path):
    old = write_stand_in(tmp_path / "old", OLD, "0.16.0")
    return find_sources([old, write_stand_in(tmp_path / "new", NEW, "0.33.0")])


def test_one_source_is_vllm_and_several_are_told_apart(tmp_path):
    sources = two(tmp_path)
    assert list(sources.names()) == ["vllm_0.16.0", "vllm_0.33.0"]
    assert list(Sources(sources.found[:1]).names()) == ["vllm"]
    assert all(map(is_opponent, [*sources.names(), "vllm", "vllm_unknown"]))
    assert not any(map(is_opponent, ["vllm_like", "my_vllm", "baseline"]))


def test_the_release_is_in_the_summary_and_the_digest_is_of_the_files(tmp_path):
    opponents = VllmOpponents(two(tmp_path))
    entry = find_variants(opponents=opponents)["vllm_0.16.0"]
    assert entry.summary == "BlockTables of vLLM 0.16.0 itself"
    before = entry.source_sha256()
    assert find_variants(opponents=opponents)["vllm_0.33.0"].source_sha256() != before
    file = entry.opponent.source.path_of("vllm.utils.torch_utils")
    file.write_text(file.read_text() + "\n")
    assert entry.source_sha256() != before


def test_a_release_is_stated_by_the_wheel_or_by_the_package(tmp_path):
    root = write_stand_in(tmp_path, NEW, "0.33.0")
    metadata = root / "vllm-0.33.0.dist-info/METADATA"
    (root / "vllm/_version.py").write_text("__version__ = version = '0.34.0rc1'\n")
    assert find_sources([root]).found[0].release == "0.33.0"
    metadata.unlink()
    assert find_sources([root]).found[0].release == "0.34.0rc1"
    (root / "vllm/_version.py").unlink()
    assert find_sources([root]).found[0].release == "unknown"


def test_what_is_no_source_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"none does not exist; expected a folder \(pip download"):
        find_sources([tmp_path / "none"])
    (tmp_path / "a.whl").write_text("")
    with pytest.raises(UsageError, match=r"a\.whl is a file; expected a folder"):
        find_sources([tmp_path / "a.whl"])
    root = write_stand_in(tmp_path, NEW)
    with pytest.raises(UsageError, match=r"vLLM 1\.2\.3, as in .*; expected .* different releases"):
        find_sources([root, root])
    (root / "vllm/v1/worker/gpu/buffer_utils.py").unlink()
    with pytest.raises(UsageError, match=r"holds no vllm/v1/worker/gpu/buffer_utils\.py"):
        find_sources([root])


def test_an_installed_vllm_is_found_without_importing_it(tmp_path, monkeypatch):
    assert find_sources([]) == Sources(
        (), "vLLM is not installed; pass an unpacked wheel by --vllm-source DIR"
    )
    root = write_stand_in(tmp_path, NEW)
    spec = SimpleNamespace(origin=str(root / "vllm/__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert find_sources([]).names()["vllm"].root == root
    (root / "vllm/v1/worker/gpu/block_table.py").unlink()
    assert find_sources([]).reason == (
        "the installed vLLM 1.2.3 has no vllm/v1/worker/gpu/block_table.py"
    )


def test_a_name_stands_for_all_that_there_are(tmp_path):
    both = two(tmp_path)
    names = ["fused", "vllm", "baseline"]
    releases = ["vllm_0.16.0", "vllm_0.33.0"]
    expanded = VllmOpponents(both).expand(names, by_name=True)
    assert expanded == (["fused", *releases, "baseline"], {})
    turned = VllmOpponents(both).expand(["vllm_0.33.0", "vllm"], by_name=True)
    assert turned == (releases[::-1], {})
    one = VllmOpponents(Sources(both.found[:1]))
    assert one.expand(names, by_name=True) == (names, {})
    none = VllmOpponents(Sources((), "there is none"))
    left = none.expand(names, by_name=False)
    assert left == (["fused", "baseline"], {"vllm": "there is none"})
    with pytest.raises(UsageError, match="variant 'vllm' is not available: there is none"):
        none.expand(names, by_name=True)
    with pytest.raises(UsageError, match=r"'vllm_0\.33\.0' .*: only vllm \(vLLM 0\.16\.0\)"):
        one.expand(["vllm_0.33.0"], by_name=True)


def test_a_users_variant_cannot_take_its_name(tmp_path):
    (tmp_path / "vllm.py").write_text("")
    with pytest.raises(UsageError, match="a variant that wraps code of others; rename the file"):
        find_variants([tmp_path])
