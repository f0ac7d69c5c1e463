"""The compile ledger: compilations and loads of Triton's binaries, and the binaries launched.

Compiling takes a thousand times as long as a timed call, so a round with a compilation is useless.
A kernel may also have several binaries, which Triton chooses by the arguments; the result of a
case records the ones it launched. Both come from the hooks in `triton.knobs`. Where kernels are
interpreted, nothing is compiled and the ledger stays empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bt_bench.results import CompiledKernel


@dataclass(frozen=True)
class Binary:
    """A loaded binary.

    Args:
        hash: Triton's hash of the source and everything else the compilation depends on.
        registers: per thread.
        spills: 4-byte words of local memory per thread.
    """

    hash: str
    registers: int | None
    spills: int | None


class LaunchedBinaries:
    """The binaries launched during a `CompileLedger.recording`."""

    def __init__(self, binaries: dict[object, Binary]) -> None:
        self._binaries = binaries
        self._names: dict[object, str] = {}  # by function handle

    def kernels(self) -> list[CompiledKernel]:
        """Return the launched kernels, sorted by name, with the binaries of each.

        A kernel whose binary was loaded before the ledger was installed has a name only.
        """
        by_name: defaultdict[str, dict[str, Binary]] = defaultdict(dict)
        for function, name in self._names.items():
            binaries = by_name[name]
            if (binary := self._binaries.get(function)) is not None:
                binaries[binary.hash] = binary
        return [
            CompiledKernel(
                name=name,
                hashes=sorted(binaries),
                registers=[binaries[digest].registers for digest in sorted(binaries)],
                spills=[binaries[digest].spills for digest in sorted(binaries)],
            )
            for name, binaries in sorted(by_name.items())
        ]

    def _on_launch(self, metadata: Any) -> None:
        """Serve as Triton's `launch_enter_hook`; `metadata` is a `LazyDict`."""
        launch = metadata.get()
        self._names[launch["function"]] = launch["name"]


class CompileLedger:
    """A count of compilations and loads, from `install` on.

    Install the ledger once, before the first kernel is launched; otherwise it misses binaries. The
    hook that each launch calls is attached only during a `recording`, never during timing.

    Attributes:
        loads: compilations and loads of binaries so far. A sample is invalid if
            it changes meanwhile.
    """

    def __init__(self) -> None:
        self.loads = 0
        self._binaries: dict[object, Binary] = {}  # by function handle
        self._jit_functions: dict[int, Any] = {}  # by identity: their own hash is slow

    def install(self) -> None:
        """Add the hooks to existing ones, for as long as the process lives; call it once."""
        _attach("jit_post_compile_hook", self._on_compiled)
        _attach("kernel_load_end_hook", self._on_loaded)

    @contextmanager
    def recording(self) -> Iterator[LaunchedBinaries]:
        """Record the launches in the `with` block by any launch path, except replays."""
        recording = LaunchedBinaries(self._binaries)
        detach = _attach("launch_enter_hook", recording._on_launch)
        try:
            yield recording
        finally:
            detach()

    def _on_compiled(self, *_args: object, fn: Any, **_kwargs: object) -> None:
        """Serve as Triton's `jit_post_compile_hook`, which is also called for cached binaries."""
        self.loads += 1
        self._jit_functions[id(fn.jit_function)] = fn.jit_function

    def _on_loaded(
        self, _module: object, function: object, _name: str, _group: object, digest: str
    ) -> None:
        """Serve as Triton's `kernel_load_end_hook`."""
        self.loads += 1
        kernel = self._kernel_of(function)
        self._binaries[function] = Binary(
            digest, getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)
        )

    def _kernel_of(self, function: object) -> Any:
        """Return Triton's object for a loaded binary, which its hooks do not pass; or `None`."""
        for jit_function in self._jit_functions.values():
            for kernels, *_ in getattr(jit_function, "device_caches", {}).values():
                for kernel in kernels.values():
                    if getattr(kernel, "function", None) == function:
                        return kernel
        return None


def _attach(name: str, hook: Callable[..., object]) -> Callable[[], None]:
    """Add a hook to one of Triton's, and return a function that removes it again.

    The existing hook is a `HookChain`, a plain function, which is then called first, or `None`.
    """
    from triton import knobs

    before = getattr(knobs.runtime, name)
    if isinstance(before, knobs.HookChain):
        before.add(hook)
        return lambda: before.remove(hook)

    def both(*args: Any, **kwargs: Any) -> Any:
        result = before(*args, **kwargs) if before is not None else None
        hook(*args, **kwargs)
        return result

    def restore() -> None:
        # If another tool has wrapped this hook in its own, that one has to stay.
        if getattr(knobs.runtime, name) is both:
            setattr(knobs.runtime, name, before)

    setattr(knobs.runtime, name, both)
    return restore
