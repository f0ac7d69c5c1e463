"""The replacement of vLLM's class, and the wrappers around two methods of its model runner."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from bt_kernels import native
from bt_kernels.engines.plugin import metrics, settings
from bt_kernels.engines.plugin.counting import COUNTS, count_launches, print_at_exit
from bt_kernels.engines.plugin.messages import describe, warn_once
from bt_kernels.engines.plugin.releases import RELEASES, Release, check_file

if TYPE_CHECKING:
    from bt_kernels.engines.plugin.deferring import DeferringTables

BLOCK_TABLE = "vllm.v1.worker.gpu.block_table"
MODEL_RUNNER = "vllm.v1.worker.gpu.model_runner"
INPUT_BATCH = "vllm.v1.worker.gpu.input_batch"

_NAME = "BlockTables"
_LIVE: WeakSet[Any] = WeakSet()


class _Replacing(type):
    """The type of the class that stands in vLLM's place: calling it builds tables of ours.

    It derives from vLLM's class, so that class attributes and annotations stay as they are, and
    subclasses of others are built as without the plugin.
    """

    theirs: type[Any]
    mode: str
    release: Release

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "theirs" not in vars(cls):  # a subclass of others
            return super().__call__(*args, **kwargs)
        tables = cls.theirs(*args, **kwargs)
        try:
            if cls.mode != settings.OFF:
                tables = _ours(tables, cls, args, kwargs)
        except Exception as error:
            COUNTS.failures += 1
            warn_once(f"tables were not built ({describe(error)}). The engine goes on with its own")
        _record(tables, cls.theirs, args, kwargs)
        return tables

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            "theirs" in vars(cls) and (isinstance(instance, cls.theirs) or _is_live(instance))
        )


def _is_live(instance: Any) -> bool:
    # Not by `in`, which raises for what has no hash.
    return any(tables is instance for tables in _LIVE)


def _ours(tables: Any, cls: _Replacing, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the tables that the engine is given, built beside its own `tables`."""
    if not tables.num_kv_cache_groups:
        return tables  # nothing is ever launched
    from bt_kernels.engines.plugin.deferring import DeferringTables
    from bt_kernels.engines.plugin.shadowing import shadow

    ours: DeferringTables
    if cls.release.is_as_ours:
        ours = _measured(DeferringTables)(*args, **kwargs)
    else:
        from bt_kernels.engines.plugin.older import OlderTables

        ours = _measured(OlderTables)(
            cls.release, **inspect.signature(cls.theirs).bind(*args, **kwargs).arguments
        )
    ours.warmup()  # here and not in a step, for time and for failures
    variant: Any = ours._variant
    count_launches(variant.place)
    if cls.mode == settings.SHADOW:
        shadow(tables, ours, settings.shadow_steps())
        ours = tables
    else:
        ours.take_over(tables, cls.theirs)
    COUNTS.tables += 1
    _LIVE.add(ours)
    _shorten_wrappers()
    print_at_exit()
    metrics.publish()
    return ours


def _measured(kind: type[DeferringTables]) -> Callable[..., DeferringTables]:
    """Return a class of ours, or a subclass that measures its calls if that was asked for."""
    if not settings.prints_counters():
        return kind
    from bt_kernels.engines.plugin.timing import timed

    return timed(kind)


def _record(tables: Any, theirs: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record the calls on tables from now on, if `BT_KERNELS_RECORD` asks for it; never raise."""
    path = settings.record_file()
    if path is None:
        return
    try:
        if tables.num_kv_cache_groups:
            from bt_kernels.engines.plugin.recording import record

            record(tables, path, theirs, args, kwargs)
    except Exception as error:
        warn_once(f"calls are not recorded in {path} ({describe(error)}). The engine goes on")


def replace_class(module: ModuleType, mode: str, release: Release) -> None:
    """Replace the class in its module, and wherever it was imported by name.

    Raises:
        RuntimeError: when the module has another class than vLLM's own, such as another plugin's,
            or its file is not the release's.
    """
    theirs = getattr(module, _NAME, None)
    if isinstance(theirs, _Replacing):
        return
    if not isinstance(theirs, type) or theirs.__module__ != BLOCK_TABLE:
        raise RuntimeError(f"{_NAME} is {theirs!r}; expected vLLM's own class. The engine keeps it")
    check_file(module, release, "The engine keeps its own block tables")
    names = {"__module__": BLOCK_TABLE, "__doc__": theirs.__doc__, "theirs": theirs, "mode": mode}
    _put(theirs, _Replacing(_NAME, (theirs,), names | {"release": release}))


def wrap_runner(module: ModuleType, mode: str, release: Release) -> None:
    """Wrap the two methods of the runner between which an apply waits.

    With `BT_KERNELS_INPUTS`, its method that builds the tables is wrapped, too.

    Raises:
        AttributeError: when the runner lacks one; then every call is a launch of its own.
        RuntimeError: when its file is not the release's; then likewise.
    """
    check_file(module, release, "Each call is a launch of its own")
    runner = getattr(module, "GPUModelRunner", None)
    for name in _WRAPPERS:
        method = vars(runner).get(name) if isinstance(runner, type) else None
        if method is None:
            raise AttributeError(
                f"GPUModelRunner.{name} is missing. Each call is a launch of its own"
            )
    for name, wrap in _WRAPPERS.items():
        method = vars(runner)[name]
        if not hasattr(method, "_bt_kernels_wraps"):
            _wrap(runner, name, wrap)
    if mode != settings.OFF and settings.prepares_inputs():
        try:
            _prepare_inputs_of(module, release)
        except Exception as error:
            warn_once(f"batches are not prepared: {describe(error)}")


def _wrap(runner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    method = vars(runner)[name]
    wrapped = wrap(method)
    wrapped._bt_kernels_wraps = method
    setattr(runner, name, wrapped)


def _prepare_inputs_of(module: ModuleType, release: Release) -> None:
    """Have the runner's batches prepared by ours once it has tables.

    Raises:
        AttributeError: when the runner lacks a method.
        RuntimeError: for a release or a file whose batches were not compared with ours.
    """
    then = "The engine prepares its batches by its own code"
    if not release.input_batch:
        known = [other.version for other in RELEASES.values() if other.input_batch]
        raise RuntimeError(
            f"those of vLLM {release.version} were not compared with ours; expected "
            f"{', '.join(known)}. {then}"
        )
    check_file(sys.modules[INPUT_BATCH], release, then)
    runner: Any = module.GPUModelRunner
    for name in (_BUILDS_TABLES, *_PREPARES):
        if name not in vars(runner):
            raise AttributeError(f"GPUModelRunner.{name} is missing. {then}")
    if not hasattr(vars(runner)[_BUILDS_TABLES], "_bt_kernels_wraps"):
        _wrap(runner, _BUILDS_TABLES, functools.partial(_building, module=module))


def _building(method: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """Wrap `initialize_kv_cache`: behind it, a runner has all that ours needs.

    It is before any batch, so ours compiles its kernels there, as those of the tables.
    """

    @functools.wraps(method)
    def wrapped(runner: Any, *args: Any, **kwargs: Any) -> Any:
        found = method(runner, *args, **kwargs)
        try:
            from bt_kernels.engines.plugin.attaching import attach

            if attach(runner, module):
                kind: Any = module.GPUModelRunner
                for name in _PREPARES:
                    if not hasattr(vars(kind)[name], "_bt_kernels_prepares"):
                        _wrap(kind, name, functools.partial(_preparing, name=name))
        except Exception as error:
            COUNTS.failures += 1
            warn_once(
                f"batches are not prepared ({describe(error)}). The engine does that by its own "
                "code"
            )
        return found

    return wrapped


def _preparing(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a method that prepares batches: tables have an object that does it, or they do not."""

    @functools.wraps(method)
    def wrapped(runner: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = getattr(getattr(runner, "block_tables", None), "_inputs", None)
        if inputs is None:
            return method(runner, *args, **kwargs)
        return getattr(inputs, name)(method, runner, *args, **kwargs)

    marked: Any = wrapped
    marked._bt_kernels_prepares = True
    return wrapped


def _shorten_wrappers() -> None:
    """Put wrappers in C around the methods of the runner, before those in Python, where possible.

    Not in `wrap_runner`: processes without tables need no module in C.
    """
    launcher = native.load("launcher")
    runner = getattr(sys.modules.get(MODEL_RUNNER), "GPUModelRunner", None)
    if launcher is None or not isinstance(runner, type):
        return
    for name in _WRAPPERS:
        wrapped = vars(runner).get(name)
        method = _wrapped_by_us(wrapped)
        if hasattr(wrapped, "_bt_kernels_prepares"):
            continue  # what is inside is in C by now
        if method is not None and isinstance(wrapped, FunctionType):
            around: Any = launcher.Around(method, wrapped, name == "prepare_attn")
            functools.update_wrapper(around, method)
            around._bt_kernels_wraps = method
            setattr(runner, name, around)


def _wrapped_by_us(wrapper: Any) -> Any:
    """Return the method that a wrapper of ours is around; `None` for anything else.

    `functools.wraps` gives somebody's wrapper around ours all attributes of ours.
    """
    method = getattr(wrapper, "_bt_kernels_wraps", None)
    return method if getattr(wrapper, "__wrapped__", None) is method else None


def restore() -> None:
    """Put vLLM's own class and methods back, and make tables that exist objects of that class."""
    recording = sys.modules.get("bt_kernels.engines.plugin.recording")
    if recording is not None:
        recording.end_all()
    for tables in list(_LIVE):
        give_back = getattr(type(tables), "give_back", None)
        if give_back is not None:
            give_back(tables)
    for replacing in {
        found
        for module in list(sys.modules.values())
        if isinstance(found := _class_in(module), _Replacing) and "theirs" in vars(found)
    }:
        _put(replacing, replacing.theirs)
    runner = getattr(sys.modules.get(MODEL_RUNNER), "GPUModelRunner", None)
    for name in (*_WRAPPERS, *_PREPARES, _BUILDS_TABLES) if isinstance(runner, type) else ():
        # One that somebody wrapped again stays, and does nothing without tables of ours.
        while (method := _wrapped_by_us(vars(runner).get(name))) is not None:
            setattr(runner, name, method)


def _put(old: type[Any], new: type[Any]) -> None:
    """Replace a class in all modules that have it under its name."""
    for module in list(sys.modules.values()):
        if _class_in(module) is old:
            setattr(module, _NAME, new)


def _class_in(module: ModuleType) -> Any:
    # Not `getattr`, since modules that load lazily would be loaded.
    return getattr(module, "__dict__", {}).get(_NAME)


def _execute_model(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `execute_model`: within it, an apply may wait, at most to its end."""
    return _around(method, "begin_step", "end_step")


def _prepare_attn(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `prepare_attn`: within it, a gather waits for the slots."""
    return _around(method, "begin_batch", "end_batch")


def _around(method: Callable[..., Any], begin: str, end: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapped(runner: Any, *args: Any, **kwargs: Any) -> Any:
        tables = getattr(runner, "block_tables", None)
        begins = getattr(type(tables), begin, None)
        if begins is None:
            return method(runner, *args, **kwargs)
        begins(tables, runner, *args)
        try:
            return method(runner, *args, **kwargs)
        finally:
            # They may be vLLM's by now.
            ends = getattr(type(tables), end, None)
            if ends is not None:
                ends(tables)

    return wrapped


_WRAPPERS = {"execute_model": _execute_model, "prepare_attn": _prepare_attn}
_PREPARES = ("prepare_inputs", "prepare_attn")
_BUILDS_TABLES = "initialize_kv_cache"
