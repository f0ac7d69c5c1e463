"""A Triton driver without a GPU: kernels are compiled and bound, but not launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bt_bench.worker.compiling.targets import MAX_SHARED_BYTES

MAX_THREADS = 1024


@dataclass(frozen=True)
class Launch:
    """A launch that a GPU would make.

    Args:
        kernel: name of the kernel.
        binary: the value that `on_load` returned for its binary.
        signature: types, specialisations and constants of the arguments.
        settings: other launch settings, such as the number of warps.
        shared_bytes: shared memory of a program.
        grid: number of programs in each dimension.
        arguments: the kernel's arguments, including constants.
    """

    kernel: str
    binary: object
    signature: str
    settings: tuple[object, ...]
    shared_bytes: int
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]


class AheadDriver:
    """A stand-in for Triton's driver; it accepts pointers to CPU memory.

    Args:
        targets: compute capabilities; each becomes a device, in this order.
        on_load: called with each binary before its first launch.
        on_launch: called in place of each launch.

    Attributes:
        device: the current device.
    """

    def __init__(
        self,
        targets: list[int],
        on_load: Callable[[bytes], object],
        on_launch: Callable[[Launch], None],
    ) -> None:
        self.device = 0
        self.utils = self  # Triton's own driver has a module of C functions there
        self._targets = targets
        self._on_load = on_load
        self._on_launch = on_launch

    def get_current_device(self) -> int:
        """Return the current device."""
        return self.device

    def set_current_device(self, device: int) -> None:
        """Set the current device."""
        self.device = device

    def get_current_stream(self, _device: int) -> int:
        """Return the default stream."""
        return 0

    def get_current_target(self) -> Any:
        """Return the target that kernels are compiled for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._targets[self.device], 32)

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return a function that raises: Triton would time kernels to tune them."""
        return _refuse_to_time

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the limits that Triton checks before it loads a binary."""
        return {"max_shared_mem": MAX_SHARED_BYTES[self._targets[device]]}

    def load_binary(
        self, name: str, binary: bytes, _shared: int, _device: int
    ) -> tuple[object, object, int, int, int]:
        """Return module, function, registers (0), spills (0), and the maximum threads per program.

        The function is the value that `on_load` returns for the binary.
        """
        return name, self._on_load(binary), 0, 0, MAX_THREADS

    def unload_module(self, _module: object) -> None:
        """Do nothing."""

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Return a kernel's launcher, which only passes the launch to `on_launch`."""
        signature = _signature(source)
        settings = tuple(
            getattr(metadata, name, None)
            for name in ("num_warps", "num_ctas", "launch_cooperative_grid", "launch_pdl")
        )

        def launch(*call: Any) -> None:
            first, second, third, _stream, binary, _packed, _metadata, _enter, _exit = call[:9]
            self._on_launch(
                Launch(
                    kernel=metadata.name,
                    binary=binary,
                    signature=signature,
                    settings=settings,
                    shared_bytes=metadata.shared,
                    grid=(first, second, third),
                    arguments=call[9:],
                )
            )

        return launch


def _refuse_to_time(*_args: object, **_kwargs: object) -> None:
    raise RuntimeError("Triton tunes this kernel by timing it, which needs a GPU")


def _signature(source: Any) -> str:
    """Format a signature as `source: *i64:16, rows: i32, BLOCK = 128`."""
    names = list(source.signature)
    divisors = {path: _divisor(attributes) for path, attributes in source.attrs.items()}
    constants = {path: value for path, value in source.constants.items() if len(path) == 1}
    shown = []
    for place, name in enumerate(names):
        if (place,) in constants:
            shown.append(f"{name} = {_constant(constants[place,])}")
        else:
            kind = _kind(source.signature[name])
            shown.append(f"{name}: {kind}{divisors.get((place,), '')}")
    return ", ".join(shown)


def _kind(kind: object) -> str:
    """Format a type; shorten a tuple of equal types, which may be long, to `(type x count)`."""
    if isinstance(kind, tuple) and len(kind) > 1 and len(set(kind)) == 1:
        return f"({kind[0]} x {len(kind)})"
    return str(kind)


def _constant(value: object) -> str:
    """Format a constant; use the name of a function or type, as its `repr` may hold an address."""
    return str(getattr(value, "__name__", None) or repr(value))


def _divisor(attributes: Any) -> str:
    return "".join(f":{value}" for name, value in attributes if name == "tt.divisibility")
