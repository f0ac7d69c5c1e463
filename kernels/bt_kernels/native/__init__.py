"""Helpers in C, from a wheel or compiled here; everything also works without them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

if TYPE_CHECKING:
    from bt_kernels.native import launcher, staged  # the stubs beside the sources in C

SWITCH = "BT_KERNELS_NATIVE"
_FOLDER = Path(__file__).parent
_TIMEOUT_S = 120
_DIGEST_BYTES = hashlib.sha256().digest_size
_FLAGS = ("-O3", "-shared", "-fPIC")


class Launcher(Protocol):
    """The module of `launcher.c`."""

    Device: type[launcher.Device]
    Launch: type[launcher.Launch]
    Step: type[launcher.Step]
    Calls: type[launcher.Calls]
    Inputs: type[launcher.Inputs]
    Waiting: type[launcher.Waiting]
    Noting: type[launcher.Noting]
    Around: type[launcher.Around]

    @staticmethod
    def repeat(view: memoryview, first: int, count: int, words: tuple[int, ...], /) -> None:
        """Write int64 words `count` times from an int32 element on."""

    @staticmethod
    def counts() -> tuple[int, int, int]:
        """Return calls of apply that C made, those that waited, and steps in one call."""

    @staticmethod
    def step_times() -> tuple[int, int, int, dict[int, int]]:
        """Return number, sum and maximum in ns of the steps measured in C, and their buckets."""

    @staticmethod
    def forget_counts() -> None:
        """Begin to count anew."""

    @staticmethod
    def lacking() -> str | None:
        """Return what the CUDA driver lacks, or `None`."""


class Staged(Protocol):
    """The module of `staged.c`."""

    StagedWrites: type[staged.StagedWrites]


@overload
def load(name: Literal["launcher"]) -> Launcher | None: ...
@overload
def load(name: Literal["staged"]) -> Staged | None: ...
def load(name: str) -> Any:
    """Return the module of `<name>.c` beside this file, or `None`; see `why_not`.

    A wheel has it compiled. Elsewhere it is compiled on first use, with the C compiler that Triton
    uses for its launchers, and kept in Triton's cache. A file that is damaged, or of other sources
    or another Python, is never loaded, nor a cached one of another user. Never prints or raises.
    """
    return None if why_not_here() else _outcome(name)[0]


def why_not(name: str) -> str | None:
    """Return why `load` returns `None`, in one line; `None` if it returns a module."""
    return why_not_here() or _outcome(name)[1]


def why_not_direct() -> str | None:
    """Return why the driver cannot launch directly, in one line; `None` if it can.

    Direct launches need the module `launcher`, and a CUDA driver with the functions it calls.
    """
    launcher = load("launcher")
    if launcher is None:
        return why_not("launcher")
    missing = launcher.lacking()
    return None if missing is None else f"the CUDA driver lacks {missing}"


def why_not_here() -> str | None:
    """Return why no helper may be loaded here, whether it compiles or not; `None` if any may be."""
    if os.environ.get(SWITCH) == "0":
        return f"the environment has {SWITCH}=0; unset it"
    # Importing a helper would re-enable the lock for the whole process.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this Python runs without its global lock, which the helpers need"
    if _is_subinterpreter():
        return "this is a subinterpreter, and the helpers' types belong to the main interpreter"
    return None


@lru_cache
def _is_subinterpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # of Python 3.13, and before
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        # Pairs of number and origin since 3.13.
        current, main = interpreters.get_current(), interpreters.get_main()
        return bool(current != main)
    return False


@lru_cache
def _outcome(name: str) -> tuple[ModuleType | None, str | None]:
    """Return the module, or why there is none; cached per process and copy of this package."""
    try:
        return _built(name), None
    except subprocess.CalledProcessError as error:
        return None, f"{name}.c does not compile: {_first_error(error.stderr)}"
    except OSError as error:
        return None, str(error)  # the message names what is missing: compiler, headers, cache
    except Exception as error:
        # Whatever is missing or different here, the Python code works without it.
        return None, f"{type(error).__name__}: {error}"


def _built(name: str) -> ModuleType:
    """Import a module from the wheel or the cache; compile it if neither has it."""
    file, key = file_of(name), key_of(name)
    module = _imported_if_whole(name, _FOLDER / file, key)
    if module is not None:
        return module

    # Triton is imported only when needed, and may be of any version.
    from triton.runtime.cache import get_cache_manager

    with _naming_the_cache():
        cache = get_cache_manager(key.hex())
    found = cache.get_file(file)
    if found is not None and _is_ours(Path(found)):
        module = _imported_if_whole(name, Path(found), key)
    if module is None:
        # The cache stores files atomically, so processes may compile at the same time.
        binary = sealed(compiled(_FOLDER / f"{name}.c"), key)
        with _naming_the_cache():
            kept = cache.put(binary, file, binary=True)
        module = _imported_from_cache(name, kept)
    return module


@contextmanager
def _naming_the_cache() -> Iterator[None]:
    """Add to a system error how to choose another cache."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{error}; set TRITON_CACHE_DIR to a folder that can be written") from error


def _imported_from_cache(name: str, path: str) -> ModuleType:
    """Return a new module of a file that was just compiled.

    Raises:
        OSError: if nothing may be run from its file system, which the loader calls a failure to
            map a segment.
    """
    try:
        return _imported(name, path)
    except ImportError as error:
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            raise OSError(
                f"{Path(path).parent} is on a file system that is mounted noexec; set "
                "TRITON_CACHE_DIR to a folder on another one"
            ) from error
        raise


def file_of(name: str) -> str:
    """Return the name of a compiled module's file, for this Python and platform."""
    return name + EXTENSION_SUFFIXES[0]


def key_of(name: str) -> bytes:
    """Return a digest of the sources, flags, Python and platform that a module is compiled for."""
    key = hashlib.sha256((_FOLDER / f"{name}.c").read_bytes())
    for header in sorted(_FOLDER.glob("*.h")):
        key.update(header.read_bytes())
    key.update(repr((file_of(name), _FLAGS, sysconfig.get_platform())).encode())
    return key.digest()


def sealed(binary: bytes, key: bytes) -> bytes:
    """Append the digest of a compiled file and its `key_of`, where the loader does not look."""
    return binary + hashlib.sha256(binary + key).digest()


def _is_whole(path: Path, key: bytes) -> bool:
    """Return whether a file is undamaged, and of the sources, Python and platform of a key.

    Loading a truncated file ends the process with SIGBUS.
    """
    if not path.is_file():
        return False
    content = path.read_bytes()
    return sealed(content[:-_DIGEST_BYTES], key) == content


def _is_ours(path: Path) -> bool:
    """Return whether a file of the cache is this user's, or root's.

    A cache that several users share may hold somebody else's file, whose code must not run here.
    """
    # Root's files may be loaded: container images are built by root.
    return path.is_file() and _owner_of(path) in (os.geteuid(), 0)


def _owner_of(path: Path) -> int:
    return path.stat().st_uid


def compiled(source: Path) -> bytes:
    """Compile a source file, and return the binary's bytes.

    Raises:
        FileNotFoundError: without a compiler, or without Python's headers.
        subprocess.SubprocessError: when the compiler fails.
    """
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise FileNotFoundError(f"Python.h is not in {headers}; install Python's headers")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.so"
        folders = (f"-I{headers}", f"-I{_FOLDER}")
        command = [*_compiler(), *_FLAGS, *folders, str(source), "-o", str(target)]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
        )
        return target.read_bytes()


def _compiler() -> list[str]:
    """Return the command of the C compiler, chosen as Triton does: `CC`, gcc, or clang."""
    named = os.environ.get("CC")
    if named:
        command = shlex.split(named)
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"CC is {named}, which was not found; set it to a C compiler")
        return command
    for name in ("gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return [path]
    raise FileNotFoundError("no C compiler was found; install gcc or clang, or set CC")


def _imported_if_whole(name: str, path: Path, key: bytes) -> ModuleType | None:
    """Return a new module of a compiled file, or `None` if it must not or cannot be loaded."""
    try:
        return _imported(name, str(path)) if _is_whole(path, key) else None
    except ImportError:
        return None  # it needs a newer C library than there is here


def _imported(name: str, path: str) -> ModuleType:
    """Return a new module of a compiled file; it is not in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _first_error(output: str) -> str:
    lines = output.splitlines() or ["the compiler printed nothing"]
    return next((line for line in lines if "error" in line), lines[0]).strip()
