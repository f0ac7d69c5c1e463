"""The launch paths of a kernel: Triton's own call, a compiled handle, or the driver directly.

All take the arguments of `launch_jit`. Each launches on the device of the tables, on its current
stream, whatever device is current.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import triton

from bt_kernels import native
from bt_kernels.device_code import (
    apply_writes_kernel,
)

if TYPE_CHECKING:
    import torch

    from bt_kernels.launches.place import Place
    from bt_kernels.native.launcher import Launch

Grid: TypeAlias = "tuple[int, int, int]"
"""Programs in each dimension."""

NUM_WARPS = 4  # Triton's own choice

# Pointers that are multiples of this many bytes count as aligned when Triton compiles.
ALIGNMENT = 16

COMPILES: bool = isinstance(apply_writes_kernel, triton.JITFunction)
"""Whether kernels are compiled in this process, rather than interpreted."""


class LaunchFunction(Protocol):
    """A function that launches like `launch_jit`. Kernels are `Any`: Triton ships no types."""

    def __call__(
        self,
        kernel: Any,
        grid: Grid,
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        inputs: tuple[torch.Tensor | None, ...],
        num_warps: int = ...,
        /,
    ) -> object:
        """Launch once; arguments as in `launch_jit`."""
        ...


def launch_jit(
    kernel: Any,
    grid: Grid,
    arguments: tuple[Any, ...],
    constants: tuple[Any, ...],
    _inputs: tuple[torch.Tensor | None, ...],
    num_warps: int = NUM_WARPS,
) -> Any:
    """Launch through Triton's call on the current device; it selects the binary by all arguments.

    Args:
        kernel: a function under `triton.jit`.
        grid: programs in each dimension.
        arguments: values of the parameters that are not constants, in their order.
        constants: values of the `tl.constexpr` parameters, which come last.
        _inputs: the `arguments` that a caller passed in and whose dtype, alignment or absence
            (`None`) selects a binary; `CompiledLaunches` needs them.
        num_warps: warps of a program.

    Returns:
        The handle of the compiled kernel; meaningless if kernels are interpreted.
    """
    return kernel[grid](*arguments, *constants, num_warps=num_warps)


class CompiledLaunches:
    """Launches through handles of compiled kernels, cached by the properties that select a binary.

    The first launch of each binary is Triton's call, which returns the handle. Later ones find it
    by the kernel, the constants, and dtype and alignment of the inputs. All other properties that
    select a binary must be the same in all launches of a kernel: dtype and alignment of the tables'
    own tensors, and integers, unless the kernel has them in `do_not_specialize`.

    Args:
        place: where kernels are launched.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._is_current = place.is_current
        self._handles: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self,
        kernel: Any,
        grid: Grid,
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        inputs: tuple[torch.Tensor | None, ...],
        num_warps: int = NUM_WARPS,
    ) -> None:
        """Launch once; arguments as in `launch_jit`."""
        key = _selects(kernel, constants, inputs, num_warps)
        handle = self._handles.get(key)
        self._place.python_launches += 1
        if handle is None:
            launched = kernel, grid, arguments, constants, inputs, num_warps
            self._handles[key] = self._place.run(launch_jit, *launched)
        elif self._is_current():  # as `run` does, but quicker
            handle[grid](*arguments, *constants)
        else:
            self._place.run(handle[grid], *arguments, *constants)


class DirectLaunches:
    """Launches by the driver's `cuLaunchKernel`, bypassing Triton's Python code.

    Binaries are found as by `CompiledLaunches`. Triton's hooks for launches are not called.

    Args:
        place: where kernels are launched, with the compiled module.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._index = place.index
        self._current_stream = triton.runtime.driver.active.get_current_stream
        self._kept: dict[tuple[Any, ...], Callable[[int, Grid, tuple[Any, ...]], None]] = {}

    def __call__(
        self,
        kernel: Any,
        grid: Grid,
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        inputs: tuple[torch.Tensor | None, ...],
        num_warps: int = NUM_WARPS,
    ) -> None:
        """Launch once; arguments as in `launch_jit`."""
        key = _selects(kernel, constants, inputs, num_warps)
        launch = self._kept.get(key)
        if launch is None:
            launched = kernel, grid, arguments, constants, inputs, num_warps
            handle = self._place.run(launch_jit, *launched)
            self._place.python_launches += 1
            self._kept[key] = self._keep(handle, arguments, constants)
        else:
            launch(self._current_stream(self._index), grid, arguments)

    def _keep(
        self, handle: Any, arguments: tuple[Any, ...], constants: tuple[Any, ...]
    ) -> Callable[[int, Grid, tuple[Any, ...]], None]:
        num_arguments = sum(argument is not None for argument in arguments)
        launch = direct_launch(self._place, handle, num_arguments)
        if launch is not None:
            return launch
        place = self._place

        def launch_by_handle(_stream: int, grid: Grid, arguments: tuple[Any, ...]) -> None:
            place.python_launches += 1
            place.run(handle[grid], *arguments, *constants)

        return launch_by_handle


# Values of a plain launch; with any others Triton sets attributes of the launch.
_ATTRIBUTES = (("num_ctas", 1), ("launch_cooperative_grid", False), ("launch_pdl", False))


def direct_launch(place: Place, handle: Any, num_arguments: int) -> Launch | None:
    """Return a compiled kernel as a callable that takes stream, grid and arguments.

    Args:
        place: where the kernel is launched, with the compiled module.
        handle: handle of the kernel, loaded there.
        num_arguments: number of arguments that the kernel is called with.

    Returns:
        `None` if only Triton's own launcher can do it: with instrumentation, an argument that
        became a constant, or a launch with attributes, such as clusters.
    """
    metadata = handle.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        return None
    if getattr(metadata, "instrumentation_mode", ""):  # has parameters of its own
        return None
    if any(getattr(metadata, name, usual) != usual for name, usual in _ATTRIBUTES):
        return None
    if sum(_num_parameters(kind) for kind in handle.src.signature.values()) != num_arguments:
        return None
    assert place.launcher is not None
    assert place.native is not None
    return place.launcher.Launch(
        owner=handle,
        function=handle.function,
        device=place.native,
        threads=32 * metadata.num_warps,
        shared=metadata.shared,
        num_arguments=num_arguments,
    )


def direct_replay(place: Place, graph: torch.cuda.CUDAGraph) -> Callable[[], None]:
    """Return a function that replays a captured graph on its device, by the driver if possible."""
    device = place.native
    if device is None or not hasattr(graph, "raw_cuda_graph_exec"):
        return graph.replay
    current_stream = triton.runtime.driver.active.get_current_stream
    executable = graph.raw_cuda_graph_exec()

    def replay(_graph: torch.cuda.CUDAGraph = graph) -> None:  # keeps the graph alive
        device.replay(executable, current_stream(place.index))

    return replay


def _num_parameters(kind: str | tuple[Any, ...]) -> int:
    """Return how many parameters of the binary a kernel's parameter becomes, by its type."""
    if isinstance(kind, tuple):
        return sum(_num_parameters(part) for part in kind)
    return int(kind != "constexpr")


def require_driver() -> None:
    """Refuse to go on where kernels can neither be launched nor interpreted.

    Raises:
        RuntimeError: if Triton compiles kernels and finds no GPU, with a remedy in the message.
    """
    if not COMPILES:
        return
    try:
        _ = triton.runtime.driver.active.get_current_device  # looked for once it is used
    except RuntimeError as error:
        raise RuntimeError(
            "no kernel can run: Triton finds no GPU, and does not interpret kernels either. Run "
            "on a host with a GPU and its driver, or set TRITON_INTERPRET=1 before anything "
            f"imports triton, which interprets them on the CPU ({error})"
        ) from None


def find_launcher() -> native.Launcher | None:
    """Return the compiled module `launcher`, if it is available and the driver supports it."""
    return None if native.why_not_direct() is not None else native.load("launcher")


def _selects(
    kernel: Any,
    constants: tuple[Any, ...],
    inputs: tuple[torch.Tensor | None, ...],
    num_warps: int,
) -> tuple[Any, ...]:
    """Return the key that selects a binary."""
    # By identity, since the hash of a kernel takes a lock; its handle keeps it alive.
    key: tuple[Any, ...] = (id(kernel), constants, num_warps)
    for tensor in inputs:
        if tensor is None:
            key = (key, None)
        else:
            key = (key, tensor.dtype, tensor.data_ptr() % ALIGNMENT == 0)
    return key
