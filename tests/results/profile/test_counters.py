"""Files of counters: written, read, refused."""

from __future__ import annotations

import json

import pytest
from support.ncu import counters, kernel_counters

from bt_bench.base.errors import UsageError
from bt_bench.results import Counter, VariantCounters, read_counters, write_counters


def written(path):
    made = counters(VariantCounters(name="fused", kernels=[kernel_counters()]))
    write_counters(path / "counters.json", made)
    return made


def test_what_was_written_is_read_from_the_file_or_its_folder(tmp_path):
    made = written(tmp_path)
    assert read_counters(tmp_path) == made
    assert read_counters(tmp_path / "counters.json") == made


def test_counters_that_nothing_has_are_absent(tmp_path):
    absent = written(tmp_path).absent()
    assert Counter.PCIE_READ_BYTES in absent
    assert Counter.DURATION_NS not in absent
    assert counters().absent() == []


def test_what_is_no_file_of_counters(tmp_path):
    with pytest.raises(UsageError, match=r"has no counters.json; expected the folder of a profile"):
        read_counters(tmp_path)
    written(tmp_path)
    path = tmp_path / "counters.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"schema_version": 2}))
    with pytest.raises(UsageError, match=r"counters.json .*schema"):
        read_counters(path)
    data["variants"][0]["kernels"][0]["values"]["duration_ns"] = [-1.0]
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=r"duration_ns"):
        read_counters(path)
    path.write_text("{")
    with pytest.raises(UsageError, match=r"is not JSON"):
        read_counters(path)
    with pytest.raises(UsageError, match=r"does not exist"):
        read_counters(tmp_path / "none.json")


def test_every_counter_has_a_source_of_its_own():
    names = [name for counter in Counter for name, _ in counter.traits.sources]
    assert len(names) == len(set(names))
