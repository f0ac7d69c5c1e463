"""The page on the gate's statistics quotes what was simulated, and the constants that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Noise, SyntheticPopulation

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.judging import SPREAD_FACTOR
from bt_bench.analysis.power import COMMON_NOISE, DEFAULT_DETECT, LEAST_US, US_PER_SHARE
from bt_bench.analysis.rounds import APART, GATE_MARGIN, PAIRED, PAIRED_FLOOR_US, SPREAD_CONFIDENCE
from bt_bench.cli.selfcheck import _shipped
from bt_bench.results.gate.recording import read_recording
from bt_bench.results.gate.rounds import GateArm
from bt_bench.results.run.nouns import Quantity
from bt_bench.runs.gate.loop import DEFAULT_LOOKS, EXTRA_ALPHA, SURPLUS, GatePlan
from bt_bench.runs.selfcheck.rates import (
    LEAST_ASKED,
    LEAST_FOUND,
    LEAST_SAID,
    LONG_US,
    MOST_MARGIN,
    MOST_RED,
)
from bt_bench.worker.isolation import global_state, module_readings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gate-statistics.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
FIGURES = " ".join((ROOT / "docs" / "how-fast.md").read_text(encoding="utf-8").split())
RATES = ROOT / "reports" / "gate-rates"
PAIRS = ROOT / "reports" / "h200" / "gate-pairs"


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rate(counted: dict[str, Any]) -> str:
    low, high = (100 * end for end in counted["interval_95"])
    return f"{100 * counted['rate']:.1f} % ({low:.1f}-{high:.1f})"


def test_rates_are_those_of_the_report() -> None:
    report = rows((RATES / "gate-rates.md").read_text(encoding="utf-8"))
    report += rows((RATES / "gate-design.md").read_text(encoding="utf-8"))
    quoted = [row for row in rows(PAGE) if len(row) == 5 and row[0]]
    assert len(quoted) >= 10
    for row in quoted:
        assert row in report


def test_the_report_kept_its_promises_at_the_defaults() -> None:
    summary = json.loads((RATES / "gate-rates.json").read_text(encoding="utf-8"))
    assert set(summary["kinds"]) == set(Noise)
    assert tuple(summary["looks"]) == DEFAULT_LOOKS
    assert summary["rules"] == vars(Rules(margin=GATE_MARGIN))
    assert summary["detect"] == DEFAULT_DETECT
    for kind in summary["kinds"].values():
        assert kind["runs"] >= 1000
        assert kind["rates"]["red"]["rate"] <= MOST_RED
        assert kind["rates"]["found said"]["rate"] >= LEAST_SAID


def test_constants() -> None:
    first, last = DEFAULT_LOOKS
    for text in (
        f"looks after {first} and {last} rounds",
        f"{100 * PAIRED.trimmed:g} % left out at either end",
        f"less half of its {100 * SPREAD_CONFIDENCE:g} % interval",
        f"the configured one ({100 * GATE_MARGIN:g} %), {PAIRED_FLOOR_US:g} µs",
        f"their rules: {100 * APART.trimmed:g} % trimmed",
        f"`--detect`, {100 * DEFAULT_DETECT:g} % by default",
        f"as of one of {US_PER_SHARE:g} µs, and at least {LEAST_US:g} µs",
        f"from {100 * COMMON_NOISE:g} % of it on",
        f"at most {100 * MOST_RED:g} % of builds red",
        f"found in at least {100 * LEAST_SAID:g} %",
        f"Figures above {LONG_US:g} µs have a median margin of at most {100 * MOST_MARGIN:g} %",
        f"found in at least {100 * LEAST_FOUND[2]:g} %, by three times in at least "
        f"{100 * LEAST_FOUND[3]:g} %",
    ):
        assert text in WORDS, text
    (floor,) = {quantity.traits.floor_us for quantity in Quantity}
    assert f"floor of {floor} µs" in WORDS
    assert (SPREAD_FACTOR, EXTRA_ALPHA, SURPLUS) == (3, 0.2, 1.1)
    assert PAIRED.fewer_degrees == APART.fewer_degrees == 2
    assert LEAST_ASKED == {0.05: 0.99, 0.03: 0.95}
    plan = GatePlan(SyntheticPopulation(Noise.WHITE).subjects)
    spent = [f"{100 * alpha:.2f}" for alpha in plan.alphas(Rules().alpha)]
    assert f"{spent[0]}, {spent[1]} and {spent[2]} %" in WORDS
    assert f"`--max-rounds` ({plan.most_rounds})" in WORDS


def test_the_recording_that_comes_with_the_package() -> None:
    recording = read_recording(_shipped())
    assert "H200" in recording.environment.gpus[0].name
    assert recording.apart == {}
    assert len(recording.rounds) >= DEFAULT_LOOKS[-1]
    (same,) = [
        path.name
        for path in PAIRS.glob("pairs-*.json")
        if path.read_bytes() == _shipped().read_bytes()
    ]
    assert f"`{same}` comes with bt-bench" in WORDS


def test_rates_of_recordings_are_those_of_their_report() -> None:
    rates = json.loads((PAIRS / "rates.json").read_text(encoding="utf-8"))
    assert (rates["gates"], tuple(rates["looks"])) == (1000, DEFAULT_LOOKS)
    assert rates["kept"]
    table = {row[0]: row[1:] for row in rows(PAGE) if row[0].startswith("`pairs-")}
    assert len(table) == len(rates["recordings"]) == len(list(PAIRS.glob("pairs-*.json")))
    for number, found in enumerate(rates["recordings"], 1):
        stored = read_recording(PAIRS / f"pairs-{number}.json")
        assert found["recording"]["created"] == stored.created
        slowed = {row["slowdown"]: row["found"] for row in found["slowed"]}
        assert table[f"`pairs-{number}.json`"] == [
            f"{len(stored.rounds)}, {len(stored.subjects)}",
            rate(found["equal_code"]["red"]),
            rate(slowed["5 % or 0.15 us"]),
            rate(slowed["3 % or 0.1 us"]),
            rate(slowed["what the gate said it finds"]),
        ]
    asked = [
        row for found in rates["recordings"] for row in found["slowed"] if row["amount"] == 0.03
    ]
    for metric in ("gpu_us", "host_us"):
        shares = [100 * row["metrics"][metric]["rate"] for row in asked]
        assert f"{min(shares):.1f} to {max(shares):.1f} % of `{metric}`" in WORDS
    shares = [100 * row["found"]["rate"] for row in asked]
    assert f"3 % or 0.1 µs in {min(shares):.1f} to {max(shares):.1f} %" in FIGURES


def test_noise_of_the_recordings() -> None:
    noise: dict[str, list[float]] = {"host_us": [], "gpu_us": []}
    most = dict.fromkeys(noise, 0.0)
    processes = []
    for path in PAIRS.glob("pairs-*.json"):
        recording = read_recording(path)
        logs = {
            arm: np.log([[one or np.nan for one in row.values[arm]] for row in recording.rounds])
            for arm in GateArm
        }
        contrast = logs[GateArm.HEAD] - (logs[GateArm.BASE] + logs[GateArm.CONTROL]) / 2
        for metric, medians in noise.items():
            of = [row.metric == metric for row in recording.subjects]
            spread = contrast[:, of].std(axis=0, ddof=1)
            medians.append(100 * float(np.median(spread)))
            most[metric] = max(most[metric], 100 * float(spread.max()))
            if metric == "host_us":
                processes.append(100 * logs[GateArm.BASE][:, of].mean(axis=1).std(ddof=1))
    assert f"differed by {min(processes):.0f} to {max(processes):.0f} % in `host_us`" in WORDS
    host, gpu = noise.values()
    assert f"{min(host):.1f}" == f"{max(host):.1f}"
    assert (
        f"by {max(host):.1f} % in the median figure of `host_us` "
        f"(at most {most['host_us']:.1f} %), "
        f"and by {min(gpu):.1f} to {max(gpu):.1f} % in `gpu_us` (at most {most['gpu_us']:.1f} %)"
    ) in WORDS


@pytest.mark.parametrize("folder", ["gates", "gates/loops"])
def test_gates_on_hardware(folder: str) -> None:
    changes: dict[str, list[float]] = {"equal": [], "kernel": [], "host": []}
    for path in sorted((PAIRS / folder).glob("*-[123].json")):
        kind = path.stem.partition("-")[0]
        if kind == "amount":
            continue
        metric = "gpu_us" if kind == "kernel" else "host_us"
        judged = json.loads(path.read_text(encoding="utf-8"))
        slower = [row for row in judged["judgements"] if row["verdict"] == "SLOWER"]
        assert len(slower) == (kind != "equal")
        assert all(row["metric"] == metric for row in slower)
        changes[kind] += [row["percent"] for row in slower] or [0.0]
    assert len(changes["host"]) == 3
    for found in (changes["kernel"], changes["host"]):
        if found:
            assert f"slower by {min(found):.1f} to {max(found):.1f} %" in WORDS


# Where the page names a reading of the global state in other words than the code.
IN_WORDS = {
    "sys.settrace": "trace and profile functions",
    "sys.setprofile": "trace and profile functions",
    "threading.settrace": "trace and profile functions",
    "threading.setprofile": "trace and profile functions",
    "sys.monitoring": "`sys.monitoring` tools",
    "sys.setswitchinterval": "switch interval",
    "sys.flags": "`sys.flags`",
    "sys.displayhook": "display hook",
    "gc.set_threshold": "thresholds, callbacks and flags of the garbage collector",
    "gc.callbacks": "thresholds, callbacks and flags of the garbage collector",
    "gc.set_debug": "thresholds, callbacks and flags of the garbage collector",
    "gc.enable": "and whether it runs",
    "tracemalloc": "`tracemalloc`",
    "numpy.seterr": "`numpy.seterr`",
    "running interval timers": "interval timers",
    "scheduling": "scheduling policy, priority",
    "num_threads": "numbers of threads",
    "num_interop_threads": "numbers of threads",
    "default dtype": "default dtype and device",
    "default device": "default dtype and device",
    "grad mode": "grad, inference, autocast and anomaly mode",
    "inference mode": "grad, inference, autocast and anomaly mode",
    "autocast": "grad, inference, autocast and anomaly mode",
    "anomaly mode": "grad, inference, autocast and anomaly mode",
    "fill uninitialized memory": "filling of uninitialized memory",
    "float32 matmul precision": "precision of float32 products",
    "TF32": "precision of float32 products",
    "cuDNN": "cuDNN's flags",
    "current stream and device": "current stream and device",
    "dispatch modes": "function and dispatch modes",
    "function modes": "function and dispatch modes",
    "cudaLimitStackSize": "the context's limits",
    "cudaLimitPrintfFifoSize": "the context's limits",
    "cudaLimitMallocHeapSize": "the context's limits",
    "cudaLimitMaxL2FetchGranularity": "the context's limits",
    "persisting L2": "the share of L2 set aside for persisting lines",
}


def test_everything_that_is_compared_is_listed() -> None:
    readings = {**global_state._PYTHON, **global_state._TORCH, **global_state._LIMITS}
    for name in readings:
        assert IN_WORDS.get(name, name) in WORDS, name
    assert set(IN_WORDS) <= set(readings)
    modules = {*module_readings.WATCHED_MODULES, *module_readings.WATCHED_PACKAGES}
    (row,) = [row for row in rows(PAGE) if row[0] == "patched modules"]
    for package in {name.partition(".")[0] for name in modules}:
        told = {"bt_bench": "bt-bench", "triton": "Triton"}.get(package, package)
        assert told in row[1], package
