"""Reads a GPU's sensors by NVML. Nothing is ever set; what cannot be read is `None`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")

THROTTLE_REASONS = {
    # NVML's nvmlClocksEventReasons bits; "gpu_idle" is not throttling but explains low clocks.
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


def open_nvml() -> Any | None:
    """The initialized library, or `None` where there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library: there is nothing to read
        return None
    return pynvml


def why_not(uuid: object) -> str | None:
    """Why the clock of a GPU cannot be read, in one line; `None` if it can.

    Args:
        uuid: of the GPU, as for `GpuSensors`.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
        finally:
            pynvml.nvmlShutdown()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextmanager
def nvml_session() -> Iterator[Any | None]:
    """`open_nvml` for the length of a `with`."""
    nvml = open_nvml()
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def quietly(call: Callable[[], ValueT]) -> ValueT | None:
    """The call's value, or `None` where this machine does not offer the reading."""
    try:
        return call()
    except Exception:
        return None


def throttle_names(bits: int) -> list[str]:
    """Names of the reasons whose bits are set."""
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


class GpuSensors:
    """Readings of one GPU.

    Args:
        nvml: the initialized library, or `None`.
        uuid: of the GPU, as CUDA gives it, without the prefix. An index would not do: NVML counts
            GPUs that `CUDA_VISIBLE_DEVICES` hides.
    """

    def __init__(self, nvml: Any | None, uuid: object) -> None:
        self._nvml: Any = nvml
        # Without NVML, this fails like every other reading.
        self._handle = quietly(lambda: self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))

    def sm_clock_mhz(self) -> int | None:
        """Clock of the multiprocessors."""
        return self._read(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))
        )

    def memory_clock_mhz(self) -> int | None:
        """Clock of the memory."""
        return self._read(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))
        )

    def temperature_c(self) -> int | None:
        """Temperature of the chip."""
        return self._read(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
        )

    def power_w(self) -> float | None:
        """Power drawn by the card."""
        return self._read(lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)

    def processes(self) -> int | None:
        """How many processes compute on it, as far as this system's isolation lets them be seen."""
        return self._read(lambda nvml, gpu: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)))

    def throttle_reasons(self) -> list[str] | None:
        """Names of what holds the clocks down at present, `THROTTLE_REASONS`."""
        return self._read(
            lambda nvml, gpu: throttle_names(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
        )

    def _read(self, reading: Callable[[Any, Any], ValueT]) -> ValueT | None:
        if self._handle is None:
            return None
        return quietly(lambda: reading(self._nvml, self._handle))
