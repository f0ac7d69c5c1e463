"""Loading the plugin into a process, and taking it out again."""

from __future__ import annotations

import sys
from typing import Any

from bt_kernels.engines.plugin import hooks, messages, metrics, releases, replacing, settings


def load() -> None:
    """Put our block tables into vLLM, if `BT_KERNELS` is `on` or `shadow`; never raise.

    With `off` and `BT_KERNELS_RECORD`, vLLM's own are recorded.

    vLLM calls it in every process, possibly more than once. Nothing is imported: the class is
    replaced when vLLM imports its module, or now where it is imported already. Only releases in
    `releases.RELEASES` are touched; a warning names any other.
    """
    try:
        mode = settings.mode()
        if (mode == settings.OFF and settings.record_file() is None) or hooks.is_installed():
            return
        try:
            release = releases.find(_version())
        except LookupError as error:
            messages.warn_once(f"{error.args[0]}. The engine keeps its own block tables")
            return
        hooks.install(
            {
                replacing.BLOCK_TABLE: lambda module: replacing.replace_class(
                    module, mode, release
                ),
                replacing.MODEL_RUNNER: lambda module: replacing.wrap_runner(module, mode, release),
            }
        )
    except Exception as error:
        messages.warn_once(
            f"the plugin did not load ({messages.describe(error)}). The engine keeps its own block "
            "tables"
        )


def remove() -> None:
    """Restore vLLM as it was before `load`, in this process.

    Tables that exist become objects of vLLM's class, with the same contents at the same addresses.
    Call it between steps.
    """
    hooks.uninstall()
    replacing.restore()
    metrics.withdraw()
    messages.forget()


def _version() -> str | None:
    """Return vLLM's version; `None` if it has none."""
    version: Any = getattr(sys.modules.get("vllm"), "__version__", None)
    if not isinstance(version, str):
        from importlib import metadata  # takes long, and is rarely needed

        try:
            version = metadata.version("vllm")
        except metadata.PackageNotFoundError:
            return None
    return str(version)
