"""Compiles the helpers in C for a wheel. Without a compiler it warns, and leaves them out."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import cpython_tags


class HelpersHook(BuildHookInterface):  # type: ignore[type-arg]
    """A build hook that adds the compiled helpers to a wheel, and tags it for one Python.

    The package compiles them here as it would at run time: with the same flags, and the compiler of
    `CC`. To build for another processor, let `_PYTHON_HOST_PLATFORM` name it, such as
    `linux-aarch64`, and `CC` be a compiler for it.

    An editable installation gets none: a checkout must hold nothing but its sources, since its
    revisions are compared file by file.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the helpers, or warn that the wheel has none, with the reason."""
        if self.target_name != "wheel" or version == "editable":
            return
        native = _native(Path(self.root))
        why_not = native.why_not_here() or _why_no_wheel()
        binaries = {}
        try:
            for name in ("launcher", "staged") if why_not is None else ():
                binary = native.compiled(Path(native.__file__).with_name(f"{name}.c"))
                binaries[native.file_of(name)] = native.sealed(binary, native.key_of(name))
        except (OSError, subprocess.SubprocessError) as error:
            why_not = f"{error}\n{getattr(error, 'stderr', None) or ''}".strip()
        if why_not is not None:
            self.app.display_warning(
                f"bt-kernels is built without its helpers in C, which it will try to compile when "
                f"it runs: {why_not}"
            )
            return
        self._folder = tempfile.TemporaryDirectory()
        for file, binary in binaries.items():
            path = Path(self._folder.name, file)
            path.write_bytes(binary)
            build_data["force_include"][str(path)] = f"bt_kernels/native/{file}"
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = str(next(cpython_tags(platforms=[system])))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the compiled files, which the wheel holds by now."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _native(root: Path) -> Any:
    """Return the package's module `native`, which needs nothing but the standard library."""
    path = root / "bt_kernels" / "native" / "__init__.py"
    spec = importlib.util.spec_from_file_location("native", path)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    here, there = platform.machine(), sysconfig.get_platform().rpartition("-")[2]
    suffix = EXTENSION_SUFFIXES[0].replace(here, there)
    native.EXTENSION_SUFFIXES = [suffix]  # type: ignore[attr-defined]
    return native


def _why_no_wheel() -> str | None:
    if sys.platform != "linux":
        return "they are for Linux"
    if sys.implementation.name != "cpython":
        return "they are for CPython"
    return None
