"""Sensors, and which rounds they spoil."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bt_bench.results import DiscardCode
from bt_bench.worker.machine.nvml import THROTTLE_REASONS, GpuSensors, throttle_names
from bt_bench.worker.measuring.watch import (
    LOOK_SECONDS,
    NoTelemetry,
    SensorReading,
    Strangers,
    Surroundings,
    Watch,
    is_throttled,
    slow_rounds,
)

QUIET = SensorReading(sm_clock_mhz=1980, throttle_reasons=())
HARMLESS = ("gpu_idle", "applications_clocks", "sync_boost", "display_clocks")
HARMFUL = ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


def with_reason(reason):
    return SensorReading(sm_clock_mhz=1980, throttle_reasons=(reason,))


@pytest.mark.parametrize("reason", HARMFUL)
def test_a_harmful_reason_before_or_after_is_throttling(reason):
    assert is_throttled(with_reason(reason), QUIET)
    assert is_throttled(QUIET, with_reason(reason))


@pytest.mark.parametrize("reason", HARMLESS)
def test_other_reasons_spoil_nothing(reason):
    assert not is_throttled(with_reason(reason), with_reason(reason))


def test_every_reason_is_one_of_both_kinds():
    assert sorted(THROTTLE_REASONS.values()) == sorted((*HARMFUL, *HARMLESS))


@pytest.mark.parametrize(("mhz", "slow"), [(950, set()), (949, {3})])
def test_a_clock_below_95_percent_of_what_was_reached_is_slow(mhz, slow):
    assert slow_rounds([1000, 1000, None, mhz, 1000]) == slow


def test_a_case_that_is_slowed_down_half_way_is_not_mixed():
    assert slow_rounds([1980] * 20 + [1500] * 60) == set(range(20, 80))
    assert slow_rounds([1000] * 3 + [1980] * 20) == {0, 1, 2}


def test_what_is_not_known_spoils_nothing():
    nothing = NoTelemetry().read()
    assert nothing == SensorReading()
    assert not is_throttled(nothing, nothing)
    assert slow_rounds([None, None]) == set()


def test_names_of_bits():
    assert throttle_names(0x44) == ["sw_power_cap", "hw_thermal"]
    assert throttle_names(0) == []
    assert throttle_names(1 << 40) == []


class FakeNvml:
    """A library that knows one GPU and cannot tell its memory clock."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = "sm", "mem", "gpu"

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802 - NVML's names
        if uuid != "GPU-abc":
            raise RuntimeError("not found")
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        if kind != "sm":
            raise RuntimeError("not supported")
        return 1980

    def nvmlDeviceGetTemperature(self, handle, kind):  # noqa: N802
        return 41

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return 123_400

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):  # noqa: N802
        return 0x1


def test_what_a_gpu_does_not_offer_is_absent():
    sensors = GpuSensors(FakeNvml(), "abc")
    assert sensors.sm_clock_mhz() == 1980
    assert sensors.memory_clock_mhz() is None
    assert sensors.temperature_c() == 41
    assert sensors.power_w() == 123.4
    assert sensors.throttle_reasons() == ["gpu_idle"]


class FakeMig(FakeNvml):
    """A library whose GPU is divided: an instance has no clock, but processes of its own."""

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "MIG-part":
            raise RuntimeError("not found")
        return "part"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part):  # noqa: N802
        return {"part": "whole"}[part]

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        return {"whole": 1980}[handle]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return {"part": [SimpleNamespace(pid=1), SimpleNamespace(pid=2)]}[handle]

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return {"whole": SimpleNamespace(gpu=42)}[handle]


def test_a_mig_instance_has_the_sensors_of_its_gpu():
    sensors = GpuSensors(FakeMig(), "part")
    assert sensors.sm_clock_mhz() == 1980
    assert sensors.processes() == {1, 2}
    assert sensors.busy_percent() == 42
    assert GpuSensors(FakeMig(), "other").sm_clock_mhz() is None


@pytest.mark.parametrize(("nvml", "uuid"), [(None, "abc"), (FakeNvml(), "xyz")])
def test_without_the_library_or_the_gpu_all_is_absent(nvml, uuid):
    sensors = GpuSensors(nvml, uuid)
    assert sensors.sm_clock_mhz() is None
    assert sensors.throttle_reasons() is None


def test_a_round_does_not_count_while_a_stranger_is_on_the_gpu():
    now = [0.0]
    there = [frozenset({1, 2})]  # this process, and one that was there before
    strangers = Strangers(lambda: there[0], lambda: now[0])
    telemetry = NoTelemetry()
    telemetry.strangers = strangers.there
    around = Surroundings(None, telemetry, SimpleNamespace(loads=0))
    watch, beside_others = Watch(around, alone=True), Watch(around)
    seen = []
    for found in [{1, 2}, {1}, {1, 7}, {1}, {1}]:
        there[0] = frozenset(found)
        now[0] += 2 * LOOK_SECONDS
        seen.append(watch.end_round().discarded)
        assert beside_others.end_round().discarded is None
    assert seen == [None, None, DiscardCode.SHARED, DiscardCode.SHARED, None]


def test_it_is_looked_for_from_time_to_time():
    now, looks = [0.0], []
    strangers = Strangers(lambda: looks.append(1), lambda: now[0])
    for _ in range(30):
        now[0] += LOOK_SECONDS / 10
        assert not strangers.there()
    assert len(looks) == 3


@pytest.mark.gpu
def test_the_sensors_of_this_gpu(device):
    from bt_bench.worker.measuring.watch import NvmlTelemetry

    reading = NvmlTelemetry().read()
    assert reading.sm_clock_mhz is None or 100 < reading.sm_clock_mhz < 5000
    assert reading.temperature_c is None or 0 < reading.temperature_c < 120
