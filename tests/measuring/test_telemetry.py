"""Sensors, and which rounds they spoil."""

from __future__ import annotations

import pytest

from bt_bench.measuring.telemetry import NoTelemetry, Reading, why_disturbed
from bt_bench.model import DiscardCode
from bt_bench.nvml import THROTTLE_REASONS, GpuSensors, throttle_names

QUIET = Reading(sm_clock_mhz=1980, throttle_reasons=())
HARMLESS = ("gpu_idle", "applications_clocks", "sync_boost", "display_clocks")
HARMFUL = ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


def with_reason(reason):
    return Reading(sm_clock_mhz=1980, throttle_reasons=(reason,))


def at_clock(mhz):
    return Reading(sm_clock_mhz=mhz, throttle_reasons=())


@pytest.mark.parametrize("reason", HARMFUL)
def test_a_harmful_reason_before_or_after_is_throttling(reason):
    assert why_disturbed(with_reason(reason), QUIET, 1980) is DiscardCode.THROTTLED
    assert why_disturbed(QUIET, with_reason(reason), None) is DiscardCode.THROTTLED


@pytest.mark.parametrize("reason", HARMLESS)
def test_other_reasons_spoil_nothing(reason):
    assert why_disturbed(with_reason(reason), with_reason(reason), 1980) is None


def test_every_reason_is_one_of_both_kinds():
    assert sorted(THROTTLE_REASONS.values()) == sorted((*HARMFUL, *HARMLESS))


@pytest.mark.parametrize(("mhz", "code"), [(950, None), (949, DiscardCode.CLOCK)])
def test_a_clock_below_95_percent_of_the_typical_one(mhz, code):
    assert why_disturbed(at_clock(mhz), at_clock(1000), 1000) is code
    assert why_disturbed(at_clock(1000), at_clock(mhz), 1000) is code


def test_without_a_typical_clock_none_is_too_low():
    assert why_disturbed(at_clock(200), at_clock(1980), None) is None


def test_throttling_is_the_reason_where_both_apply():
    slow = Reading(sm_clock_mhz=200, throttle_reasons=("hw_thermal",))
    assert why_disturbed(slow, slow, 1980) is DiscardCode.THROTTLED


def test_what_is_not_known_spoils_nothing():
    nothing = NoTelemetry().read()
    assert nothing == Reading()
    assert why_disturbed(nothing, nothing, 1980) is None


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


@pytest.mark.parametrize(("nvml", "uuid"), [(None, "abc"), (FakeNvml(), "xyz")])
def test_without_the_library_or_the_gpu_all_is_absent(nvml, uuid):
    sensors = GpuSensors(nvml, uuid)
    assert sensors.sm_clock_mhz() is None
    assert sensors.throttle_reasons() is None


@pytest.mark.gpu
def test_the_sensors_of_this_gpu(device):
    from bt_bench.measuring.telemetry import NvmlTelemetry

    reading = NvmlTelemetry().read()
    assert reading.sm_clock_mhz is None or 100 < reading.sm_clock_mhz < 5000
    assert reading.temperature_c is None or 0 < reading.temperature_c < 120
