"""The report on counters, as text in 80 columns and as JSON."""

from __future__ import annotations

import json

from support.ncu import counters, kernel_counters
from support.timelines import shown

from bt_bench.analysis.profile import counter_changes
from bt_bench.report.profile import (
    counter_changes_document,
    counters_document,
    counters_json,
)
from bt_bench.results import Cache, Reason, ReasonCode, VariantCounters

LONG = kernel_counters("gather_slots_kernel", (9.0,) * 3, pcie_read_bytes=2e6, pcie_written_bytes=0)
SHORT = kernel_counters(
    "apply_kernel",
    stalls=(("barrier", None, 5), ("wait", "a.py:1", 3), ("x", "b", 2), ("y", "c", 1)),
)
FUSED = VariantCounters(name="fused", kernels=[SHORT, LONG])
BROKEN = VariantCounters(
    name="broken", reason=Reason(code=ReasonCode.RAISED, message="while profiled: oh no")
)
EMPTY = VariantCounters(name="empty")


def flat(text):
    return " ".join(text.split())


def test_one_screen_of_eighty_columns():
    text = shown(counters_document(counters(FUSED, BROKEN, EMPTY), whole=False))
    assert max(map(len, text.splitlines())) <= 80
    assert "Step 1 of 0 to 1; fused, broken, empty. NVIDIA H200, Nsight Compute 2025.3.1.0" in flat(
        text
    )
    assert "Caches were not flushed" in text
    assert "must read 8.00 KiB and write 2.00 KiB" in flat(text)
    assert "FAILED: broken: while profiled: oh no" in text
    assert "empty launches no kernel in this step." in text
    assert "fused: 2 kernels; 13.1 µs together; L2 moved 80.0 KiB, 8.00 times" in flat(text)
    (row,) = [line for line in text.splitlines() if line.strip().startswith("gather_slots")]
    figures = "9.00 1.00 KiB 0.2 40.0 KiB 2.5 1.91 MiB 12.5"
    assert flat(row) == f"gather_slots_kernel {figures}"
    # Of each variant the longest kernel says what it waits for.
    assert "fused, gather_slots_kernel: 41 % long scoreboard at parts.py:85; warps limited" in (
        flat(text)
    )
    assert "fused, apply_kernel:" not in text


def test_what_is_not_available_is_named_and_never_zero():
    text = flat(shown(counters_document(counters(FUSED), whole=False)))
    assert "Not available here:" in text
    assert "the share of the throughput from host memory (lts__d_sectors_fill_sysmem.sum" in text
    assert " PCIe %" not in text
    (row,) = [
        line
        for line in shown(counters_document(counters(FUSED), whole=False)).splitlines()
        if line.strip().startswith("apply_kernel")
    ]
    assert "–" in row  # of the bytes from the host, which only the other kernel has


def test_the_whole_has_all_kernels_and_the_state_of_the_cache():
    text = flat(shown(counters_document(counters(FUSED, l2=Cache.COLD), whole=True)))
    assert "Caches were flushed before each run of a kernel" in text
    expected = "apply_kernel: 5 % barrier at an unknown line, 3 % wait at a.py:1, 2 % x at b; warps"
    assert expected in text
    assert "y at c" not in text
    assert "too few programs" in text


def test_without_required_bytes_nothing_is_related_to_them():
    text = flat(shown(counters_document(counters(FUSED, read_bytes=None), whole=False)))
    assert "does not state how many bytes" in text
    assert "times the required bytes" not in text


def test_json():
    document = json.loads(json.dumps(counters_json(counters(FUSED, BROKEN))))
    assert document["required_bytes"] == 10_240
    assert any("fill_sysmem" in name for name in document["not_available"])
    (figures,) = document["figures"]
    assert figures["times_required"] == {"dram": 0.2, "l2": 8.0}
    assert figures["kernels"][1]["us"] == 9.0
    assert figures["kernels"][0]["pcie_bytes"] is None
    assert figures["kernels"][1]["pcie_bytes"] == 2e6
    assert figures["kernels"][0]["stalls"][1] == {
        "reason": "wait",
        "place": "a.py:1",
        "share": 0.03,
    }
    assert document["variants"][1]["reason"]["message"] == "while profiled: oh no"


def test_changes():
    was = counters(VariantCounters(name="fused", kernels=[kernel_counters("a")]))
    now = counters(VariantCounters(name="fused", kernels=[kernel_counters("a", (9.0,) * 3)]))
    changes = counter_changes(was, now)
    text = flat(shown(counter_changes_document(changes, "reports/x")))
    assert "Against reports/x" in text
    assert "a fused duration in ns 4100 9000" in text
    assert changes[0].more is True
    text = shown(counter_changes_document([], "reports/x"))
    assert "No kernel and no figure of any has changed." in text
