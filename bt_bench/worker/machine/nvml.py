"""A GPU's sensors, read by NVML. Nothing is ever set, and an unavailable reading is `None`."""

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
    """Return the initialized library, or `None` where there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library: there is nothing to read
        return None
    return pynvml


def why_not(uuid: object) -> str | None:
    """Return in one line why a GPU's clock cannot be read; `None` if it can.

    Args:
        uuid: of the GPU, as for `GpuSensors`.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            gpu, _part = _handles(pynvml, uuid)
            pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
        finally:
            pynvml.nvmlShutdown()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextmanager
def nvml_session() -> Iterator[Any | None]:
    """Yield `open_nvml`'s result for the length of a `with`, then shut NVML down."""
    nvml = open_nvml()
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def gpu_uuids() -> list[str]:
    """Return the UUIDs of all GPUs of this host as CUDA spells them; none without NVML."""
    with nvml_session() as nvml:
        if nvml is None:
            return []
        count = nvml.nvmlDeviceGetCount()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def quietly(call: Callable[[], ValueT]) -> ValueT | None:
    """Return the call's value, or `None` where this machine does not offer the reading."""
    try:
        return call()
    except Exception:
        return None


def throttle_names(bits: int) -> list[str]:
    """Return the names of the reasons whose bits are set."""
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def _handles(nvml: Any, uuid: object) -> tuple[Any, Any]:
    """Return NVML's handles of a GPU: for sensors, and for its processes.

    A MIG instance has no sensors of its own, so the GPU that it is a part of is read for it.
    """
    try:
        gpu = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except Exception as error:
        try:
            part = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part), part
        except Exception:
            raise error from None
    return gpu, gpu


class GpuSensors:
    """Readings of one GPU, or of the GPU that a MIG instance is a part of.

    Args:
        nvml: the initialized library, or `None`.
        uuid: of the GPU, as CUDA returns it, without the prefix. An index would not do: NVML counts
            GPUs that `CUDA_VISIBLE_DEVICES` hides.
    """

    def __init__(self, nvml: Any | None, uuid: object) -> None:
        self._nvml: Any = nvml
        # Without NVML, this fails like every other reading.
        handles = quietly(lambda: _handles(self._nvml, uuid)) or (None, None)
        self._handle: Any = handles[0]
        self._part: Any = handles[1]

    def sm_clock_mhz(self) -> int | None:
        """Return the clock of the multiprocessors, in MHz."""
        return self._read(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))
        )

    def memory_clock_mhz(self) -> int | None:
        """Return the clock of the memory, in MHz."""
        return self._read(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))
        )

    def temperature_c(self) -> int | None:
        """Return the temperature of the chip, in °C."""
        return self._read(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
        )

    def power_w(self) -> float | None:
        """Return the power drawn by the card, in W."""
        return self._read(lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)

    def processes(self) -> frozenset[int] | None:
        """Return the ids of processes computing on it, without those hidden by isolation.

        In a container they are ids of the host.
        """
        return self._read(
            lambda nvml, _gpu: frozenset(
                process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(self._part)
            )
        )

    def busy_percent(self) -> int | None:
        """Return the share of the last moments, up to a second, in which a kernel ran."""
        return self._read(lambda nvml, gpu: int(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu))

    def throttle_reasons(self) -> list[str] | None:
        """Return the present reasons for held-down clocks, by their names in `THROTTLE_REASONS`."""
        return self._read(
            lambda nvml, gpu: throttle_names(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
        )

    def _read(self, reading: Callable[[Any, Any], ValueT]) -> ValueT | None:
        if self._handle is None:
            return None
        return quietly(lambda: reading(self._nvml, self._handle))
