"""Settings that a process inherits from its parent, and that would make it misread its children."""

from __future__ import annotations

import signal

# Windows has none.
_ENDED = getattr(signal, "SIGCHLD", None)


def hear_how_children_end() -> None:
    """Restore the default of SIGCHLD if a parent has set it to be ignored.

    A login shell, a supervisor or a container's first process may leave it so, and `exec` keeps it.
    The kernel then forgets how a child ended, and `subprocess` reports exit code 0: a build that
    failed would count as built.
    """
    if _ENDED is not None and signal.getsignal(_ENDED) is signal.SIG_IGN:
        signal.signal(_ENDED, signal.SIG_DFL)
